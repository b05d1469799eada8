/* saver: saves the data directory: on request, by the `save <seconds> <changes>` rules, and at shutdown. Its own thread
 * saves, so a save of any size delays no client.
 *
 * Thread: any, except where noted. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"

struct saver;
struct server;
struct store;

/* Starts the thread. The store is borrowed. 0, -ENOMEM or another -errno. */
int saver_create(struct saver **saver_out, struct server *server, struct store *store);

/* Lets a running save finish and ends the thread. NULL is fine. */
void saver_destroy(struct saver *saver);

enum saver_request {
    SAVER_STARTED = 0,   /* a save begins now */
    SAVER_BUSY = 1,      /* one is running; nothing was done */
    SAVER_SCHEDULED = 2, /* one is running; another will follow (only when asked to schedule) */
};
enum saver_request saver_start(struct saver *saver, bool schedule);

/* The same, scheduling, for BGREWRITEAOF: it counts as begun because of the log. */
enum saver_request saver_rewrite(struct saver *saver);

/* Saves and waits for the result. 0, SAVER_BUSY, or -EIO with the reason in `err`. Thread: pool, offline. */
int saver_run(struct saver *saver, struct errbuf *err);

/* As saver_run(), but waits for a running save first instead of refusing. -ECANCELED: the thread ends. */
int saver_run_next(struct saver *saver, struct errbuf *err);

/* As saver_run_next(), at the end of the process and without save-rate-limit. `most_ms` above 0 bounds the wait:
 * SAVER_BUSY then means that the save continues. */
int saver_run_final(struct saver *saver, int64_t most_ms, struct errbuf *err);

/* Starts a save when a rule or the log wants one. The main thread calls it a few times a second. */
void saver_tick(struct saver *saver);

/* Whether the last save failed; a load. */
bool saver_has_failed(const struct saver *saver);

struct saver_info {
    bool running;
    bool last_ok;                 /* of the last save that ended; true before the first */
    int64_t last_save_unix;       /* seconds; of the last good save, or of the start */
    int64_t last_duration_ms;     /* -1 before the first */
    int64_t running_ms;           /* how long the running one has taken so far, -1 when none runs */
    uint64_t changes;             /* changes since the last good save began */
    uint64_t saves;               /* good saves since the start */
    uint64_t rewrites;            /* of these, begun because of the log */
    uint64_t failures;            /* bad ones in a row */
    bool scheduled;               /* another one follows */
    bool for_log;                 /* the running one was begun because of the log */
    char last_error[ERRBUF_SIZE]; /* why the last one failed, "" when it did not */
};
void saver_info(struct saver *saver, struct saver_info *info_out);
