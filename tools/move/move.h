/* move: copies the filters of one running server into another. The payloads are opaque here: what DUMP or BF.SCANDUMP
 * of the source answer is what RESTORE or BF.LOADCHUNK of the target get. The source is only read.
 *
 * There is no state between two runs but the target itself. A filter appears there at one moment and whole: by RESTORE,
 * or by the rename of a name that only this run knows. So a filter that the target has under its name, with the same
 * BF.INFO, is one that has been moved, and a run that was interrupted at any point goes on when it is started again.
 *
 *   scanner thread:  SCAN, BF.INFO -> queue of filters
 *   worker threads:  queue -> BF.INFO of the target -> small ones: PTTL, DUMP -> RESTORE, many at a time
 *                                                      others:     BF.SCANDUMP -> BF.LOADCHUNK -> rename
 *                    -> with `verify`: the answers of both servers to the same random items
 *
 * Thread: the caller's, which shows the progress and takes SIGINT and SIGTERM meanwhile. */
#ifndef BLOOMERY_MOVE_H
#define BLOOMERY_MOVE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "errbuf.h"
#include "server_url.h"

struct move_options {
    const struct server_url *from, *to;
    const char *match; /* a pattern of names; NULL: all */
    unsigned jobs;     /* worker threads, 1..MOVE_MAX_JOBS */
    int64_t timeout_ms;
    int64_t retry_ms; /* how long a lost server is asked again, without any filter moved meanwhile */
    bool dry_run;     /* says what would be done */
    bool replace;     /* a filter of the target with another content is replaced */
    bool verify;
    bool progress; /* a line on stderr */
    bool met;      /* both servers have answered a moment ago: one that is away is waited for from the first moment */
};

#define MOVE_MAX_JOBS 64

/* How it ended for a filter. */
enum move_outcome {
    MOVE_MOVED,
    MOVE_THERE,    /* moved already */
    MOVE_GONE,     /* deleted or expired meanwhile */
    MOVE_TAKEN,    /* the target has something else under the name */
    MOVE_UNREAD,   /* the source refused */
    MOVE_REFUSED,  /* the target refused */
    MOVE_CHANGING, /* it grew whenever it was read */
    MOVE_DIFFERS,  /* verified, and not the same */
    MOVE_OUTCOMES
};

struct move_summary {
    uint64_t filters[MOVE_OUTCOMES];
    uint64_t bytes;   /* of MOVE_MOVED, as BF.INFO tells sizes */
    uint64_t changed; /* of MOVE_MOVED: those to which items were added while they were read in chunks */
    double seconds;
    int signal; /* the one that ended the run; 0: none */
};

/* Moves all filters. 0, or -errno with the reason when it ended before it had been through all of them; `summary_out`
 * is filled in any case. What becomes of single filters is told on stderr, with `dry_run` on stdout. */
int move_run(const struct move_options *options, struct move_summary *summary_out, struct errbuf *err);

/* The same for each database of the source that has keys, into that of the same number. The addresses name none. */
int move_all_databases(const struct move_options *options, struct move_summary *summary_out, struct errbuf *err);

#endif
