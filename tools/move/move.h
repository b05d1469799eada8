/* move: copies the filters of a running server to another. Payloads are opaque: the replies to DUMP or BF.SCANDUMP of
 * the source go to RESTORE or BF.LOADCHUNK of the target. The source is only read. Cuckoo filters have CF.INFO,
 * CF.SCANDUMP, CF.LOADCHUNK and CF.MEXISTS instead of BF.INFO and so on.
 *
 * The only state between two runs is the target. A filter appears there atomically: by RESTORE, or by renaming a
 * temporary name. So a filter that the target has under its name, with the same BF.INFO, has been moved, and an
 * interrupted run continues when it is started again. Equal numbers alone prove nothing: another database may have the
 * name, too. So bits are compared before a filter counts as moved.
 *
 *   scanner thread:  SCAN, BF.INFO -> queue of filters
 *   worker threads:  queue -> BF.INFO of the target -> small ones: PTTL, DUMP -> RESTORE, many at a time
 *                                                      others:     BF.SCANDUMP -> BF.LOADCHUNK -> rename
 *                    -> where the target had the name: the first bits of both
 *                    -> with `verify`: the answers of both servers to the same random items
 *
 * Thread: the caller's, which shows the progress and takes SIGINT and SIGTERM. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "errbuf.h"
#include "server_call.h"

struct move_options {
    const struct server_url *from, *to;
    const char *match; /* a pattern of names; NULL: all */
    unsigned jobs;     /* worker threads, 1..MOVE_MAX_JOBS */
    int64_t timeout_ms;
    int64_t retry_ms; /* how long to retry a lost server without any progress */
    bool dry_run;     /* only prints the moves */
    bool replace;     /* a filter of the target with another content is replaced */
    bool verify;
    bool progress; /* a line on stderr also if that is no terminal */
    bool met;      /* both servers have just answered: a failure is retried from the start */
};

#define MOVE_MAX_JOBS     64
#define MOVE_KEYS_SIZE    85 /* ids of missing keys for messages: five, and the rest is cut */
#define MOVE_KEYS_WARNING "warning: KEYED filters in the target answer errors until its key file has the keys %s"

/* The outcome for a filter. */
enum move_outcome {
    MOVE_MOVED,
    MOVE_THERE,    /* moved already */
    MOVE_GONE,     /* deleted or expired during the move */
    MOVE_TAKEN,    /* the target has other data under the name */
    MOVE_UNREAD,   /* the source refused */
    MOVE_REFUSED,  /* the target refused */
    MOVE_CHANGING, /* it grew, or a cuckoo filter changed, each time it was read */
    MOVE_DIFFERS,  /* verified, and not the same */
    MOVE_LEFT,     /* a temporary filter of an interrupted run */
    MOVE_OUTCOMES
};

struct move_summary {
    uint64_t filters[MOVE_OUTCOMES];
    uint64_t bytes;   /* of MOVE_MOVED, sizes as in BF.INFO */
    uint64_t changed; /* of MOVE_MOVED: those to which items were added while they were read in chunks */
    double seconds;
    int signal; /* the one that ended the run; 0: none */
};

/* Moves all filters. 0, or -errno with the reason if it ended early; `summary_out` is filled in any case. Lines about
 * single filters go to stderr, with `dry_run` to stdout. */
int move_run(const struct move_options *options, struct move_summary *summary_out, struct errbuf *err);

/* The same for each database of the source that has keys, into that of the same number. The addresses name none. */
int move_all_databases(const struct move_options *options, struct move_summary *summary_out, struct errbuf *err);

/* Asks the target for keys of KEYED filters that it lacks, so that these filters reply with errors. Their ids, with
 * commas between them, into `ids_out`, cut at `size`. 1; 0: none, or the target is an engine, which does not report
 * them; or -errno, as for a user who may not run INFO. */
int move_missing_keys(const struct move_options *options, char *ids_out, size_t size, struct errbuf *err);

/* The same, of keys that filters of the source have: others do not matter for a move. All that the target lacks, if the
 * source does not report the keys of its filters, or reports as many as it can. */
int move_needed_keys(const struct move_options *options, char *ids_out, size_t size, struct errbuf *err);

/* Finds a database of the source other than that of its address with keys in it. 1; 0: there is none; or -errno. */
int move_other_database(const struct move_options *options, int64_t *number_out, struct errbuf *err);

/* pause: holds the writers of the source back while a move runs, by CLIENT PAUSE WRITE, and makes the source read-only
 * at its end where it is Bloomery. A thread renews the pause, which ends by itself 15 s after this process has died.
 * Until the end everything can be undone.
 *
 * Lifetime: pause_begin() to pause_end(). Thread: the one that has begun it. */

struct pause;

/* Tries all commands that are needed later, too, in forms that change nothing: a copy may take hours. NULL with the
 * reason: the source refuses one of them, or is read-only already. */
struct pause *pause_begin(const struct move_options *options, struct errbuf *err);

/* Makes the source read-only and disconnects its clients, so that a write that the pause has caught half way is never
 * acknowledged. 1; 0: it is no Bloomery, and has no such setting; or -errno: -ECANCELED if writers got through. */
int pause_close_source(struct pause *pause, struct errbuf *err);

/* Lets the writers go on; with `undo` a source that became read-only accepts writes again. Returns the seconds since
 * the beginning. Adds to `err` what could not be undone. */
double pause_end(struct pause *pause, bool undo, struct errbuf *err);
