/* log_history: the fate of each filter since the save, from the control records of the log. It keeps the last state of
 * each filter, so that filters can be loaded in any order, by many threads, under their final names.
 *
 * It knows no filter and no file, so that a start, and a check that changes nothing, get the same result.
 *
 * Lifetime: log_history_create() to log_history_destroy(). Thread: log_history_resolve() and log_history_get(): any.
 * The rest: one, while no other works on it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "database.h"
#include "errbuf.h"
#include "log_payload.h"
#include "store_loader.h"

struct filter_block;
struct log_history;

/* A layer that the log has. */
struct log_grown {
    struct bloom_shape shape; /* nwords 0: not known */
    struct bloom_turn turn;   /* of a window; number 0: none */
};

/* Of one filter. */
struct log_filter {
    uint64_t id;
    bool gone;    /* deleted */
    bool created; /* by the log: `params` and `shape` are its own */
    bool renamed;
    bool expiry_changed;
    uint64_t loaded; /* the number of the record that created it with contents in files; 0: none */
    char *name;      /* NULL unless created or renamed */
    size_t name_len;
    int64_t expires_ms;
    struct bloom_params params;
    struct bloom_shape shape;
    unsigned char *contents; /* created with these (log_payload.h), which can be decoded; NULL: created empty */
    size_t contents_len;
    struct log_grown *grown; /* layers by index; NULL: none */
    unsigned ngrown;
    bool turns;            /* the log has turns: it is a window */
    uint64_t grown_number; /* of the last record of a layer */
};

struct log_history_options {
    uint64_t control; /* control records up to this number are in the save */
    bool accepted;    /* the save was made after a loss had been accepted, by a daemon that kept the log */
    /* Called for a filter with contents in files (LOG_LOADED). 0, LOG_DAMAGED (not a valid record), or -errno. */
    int (*on_written)(void *ctx, const struct log_control *control, struct errbuf *err);
    void *ctx;
};

/* 0 or -ENOMEM. */
int log_history_create(struct log_history **history_out, const struct log_history_options *options);
void log_history_destroy(struct log_history *history); /* NULL is fine */

/* For log_reader_options.on_control; ctx is the history. 0, -ENOMEM, or the result of on_written(). */
int log_history_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err);

/* For log_reader_options.on_process. */
void log_history_process(void *ctx);

/* Whether a filter of the save or of a record is still there, as store_loader.resolve. Puts the name and the expiry
 * that the log has given it into `info`; the history owns the name. */
bool log_history_resolve(const struct log_history *history, struct store_filter *info);

/* NULL: the log has nothing about it. */
const struct log_filter *log_history_get(const struct log_history *history, uint64_t id);

/* Whether layers of this filter that contradict it have been accepted before: the save was made without them. */
bool log_history_growth_is_settled(const struct log_history *history, const struct log_filter *filter);

/* Frees the contents of a filter that has been created: they take as much memory as the filter. */
void log_history_drop_contents(struct log_history *history, uint64_t id);

/* A place among the filters; zeroed: before the first. */
struct log_history_place {
    const struct filter_block *block;
    size_t index;
};

/* Returns the filter at that place and moves the place after it; NULL: no more. In the order of their first records. */
const struct log_filter *log_history_next(const struct log_history *history, struct log_history_place *at);

uint64_t log_history_highest_id(const struct log_history *history); /* in any record; 0: none */

/* Applies the log's exchanges of databases to *databases, which are those of the save. */
void log_history_databases(const struct log_history *history, struct databases *databases);

/* The number of control records that were skipped: valid only with a save that was not made (LOG_BREAK). */
uint64_t log_history_unjoined(const struct log_history *history);
