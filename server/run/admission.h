/* admission: the one check of a command before it runs, in the pipeline or by itself.
 *
 * The general reasons against commands (settings, loading, memory, the log, CLIENT PAUSE) are a mask, computed once per
 * iteration. A command's row has the reasons that concern it; for the pipeline's commands these are known
 * beforehand, so that one comparison admits them. The session holds the restrictions of a connection's own state.
 *
 * Thread: the loop's. */
#pragma once

#include "conn_list.h"
#include "dispatch_errors.h"
#include "pipeline.h"

struct command;
struct conn;
struct io;
struct log_waits;
struct resp_command;

/* Reasons, ored. */
enum {
    ADMISSION_LOADING = 1 << 0,       /* filters are being loaded */
    ADMISSION_READ_ONLY = 1 << 1,     /* writes are refused: read-only, persistence_refuses() */
    ADMISSION_NO_MEMORY = 1 << 2,     /* maxmemory is reached */
    ADMISSION_PAUSED_WRITES = 1 << 3, /* CLIENT PAUSE ... WRITE */
    ADMISSION_PAUSED = 1 << 4,        /* CLIENT PAUSE */
    ADMISSION_LOG_FULL = 1 << 5,      /* the log thread is behind */
    ADMISSION_ONE_BY_ONE = 1 << 6,    /* each command is timed by itself: none goes through the pipeline */
    ADMISSION_MAKES_ROOM = 1 << 7,    /* maxmemory is reached, and bits are being evicted (residency.h) */
};

struct admission {
    struct io *io;
    const struct log_waits *log;
    unsigned reasons;                 /* as of this iteration */
    unsigned concern[PIPELINE_KINDS]; /* the reasons that concern the pipeline's commands */
    struct conn_link paused;          /* CONN_WAITS_PAUSE */
    struct conn_link for_memory;      /* CONN_WAITS_MEMORY */
};

/* `counters`: command_index() of the pipeline's commands. */
void admission_init(struct admission *admission, struct io *io, const struct log_waits *log,
                    const size_t counters[PIPELINE_KINDS]);

/* Computes the mask: once per iteration, after log_waits_look(), whose result is `log_full`. `loading`:
 * server_loading() from before that look, or a command might run without the log. Wakes paused connections. */
void admission_look(struct admission *admission, bool loading, bool log_full);

/* The same for parts of it, when a command may have changed the settings, or CLIENT PAUSE has. */
void admission_look_at_settings(struct admission *admission);
void admission_look_at_pause(struct admission *admission);

enum admission_answer {
    ADMISSION_RUN,
    ADMISSION_QUEUE,       /* it belongs to an open transaction */
    ADMISSION_REFUSE,      /* with the error in the text */
    ADMISSION_WAIT_PAUSE,  /* retry when the pause is over */
    ADMISSION_WAIT_ROOM,   /* retry when there is room in the log */
    ADMISSION_WAIT_MEMORY, /* retry when bits have been evicted */
};

/* The source of the command. */
enum admission_of {
    ADMISSION_OF_NEW,   /* from the client; all checks */
    ADMISSION_OF_BEGUN, /* has run some of its slices and has a part of its reply: only missing memory for the log, or
                         * a right that was taken away meanwhile, refuses it */
    ADMISSION_OF_EXEC,  /* was checked when it was queued; does not wait */
};

/* Decides on a command of this row. Writes `text_out`, an error with its code, for ADMISSION_REFUSE only. */
enum admission_answer admission_check(const struct admission *admission, struct conn *conn,
                                      const struct command *command, const struct resp_command *cmd,
                                      enum admission_of of, char text_out[DISPATCH_ERROR_SIZE]);

/* Whether a BF.EXISTS or BF.ADD of this connection passes all checks and may go through the pipeline. Otherwise
 * admission_check() gives the reason. */
bool admission_by_pipeline(const struct admission *admission, const struct conn *conn, enum pipeline_kind kind);
