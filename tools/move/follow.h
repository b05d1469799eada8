/* follow: --follow and --cutover: rounds that carry the changes of the source, until it is read-only.
 *
 *   watch (follow_watch.h): names that have changed -> followed.h
 *   round: move_run() over these names: filters are sent whole, names that are gone are deleted in the target
 *
 * The first round scans the source, and so does one after a lost connection, as messages may be missing then. A round
 * takes at most as long as the target is behind: changes before its beginning are in the target at its end.
 *
 * Cutover, once a round has taken at most `behind_ms`:
 *   1. CLIENT PAUSE WRITE: writers wait. Acknowledged writes have changed their filters; their messages are awaited
 *   2. one more round
 *   3. the source becomes read-only, which a refused DEL proves
 *   4. CLIENT KILL of all other clients: a write that the pause caught half way is never acknowledged
 *   5. CLIENT UNPAUSE: writes of returning clients are refused
 * The pause ends by itself 15 s after this process has died. A failure before 4 is undone, and clients continue.
 *
 * Thread: the caller's, which takes SIGINT and SIGTERM. */
#ifndef BLOOMERY_FOLLOW_H
#define BLOOMERY_FOLLOW_H

#include "errbuf.h"
#include "move.h"

struct follow_options {
    struct move_options move; /* `replace` unless `merge` */
    int64_t behind_ms;        /* the target counts as caught up when it is behind by this at most */
    bool cutover;             /* and ends then; otherwise it continues until a signal */
};

struct follow_summary {
    struct move_summary moved; /* `filters` counts names by their last outcome; bytes of all rounds */
    uint64_t rounds;
    bool cut;           /* the source is read-only */
    double pause;       /* seconds for which writers were held back */
    const char *answer; /* of the source to writes from now on: "READONLY" */
};

/* 0, or -errno with the reason. Without an error and without `cut`, a cutover was given up since filters are missing in
 * the target. `summary_out` is filled in any case. */
int follow_run(const struct follow_options *options, struct follow_summary *summary_out, struct errbuf *err);

#endif
