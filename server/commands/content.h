/* content: filters that come into being whole: loaded, restored, copied, merged, emptied. All go the same way: an entry
 * is prepared where nobody sees it, filled, and put under its name at one moment; so a client sees the old filter or
 * the new one, and never a part. And all go through content_publish(), so that what else there is to do with a filter
 * whose bits did not come from adds is done in one place.
 *
 * Thread: "pool" (a deferred job), unless it says otherwise. */
#ifndef BLOOMERY_CONTENT_H
#define BLOOMERY_CONTENT_H

#include <stdbool.h>
#include <stddef.h>

#include "command.h"
#include "log_contents.h"
#include "registry.h"
#include "server.h"

/* ---- arguments for jobs ------------------------------------------------------------------------------------------ */

/* A copy of a command's arguments in one piece of memory, for command_defer(). */
struct job_args {
    size_t argc;
    struct slice argv[];
};

/* Copies all arguments and defers the command; job->data is the struct job_args. An argument longer than `longest` is
 * cut to one byte more, so that somebody's mistake of half a gigabyte is not copied on the loop. Thread: loop. */
void content_defer(struct command_ctx *ctx, size_t longest, void (*run)(struct command_job *job));

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Prepares an empty filter with these layers (shapes[0..nlayers-1]; variant and parameters as given). false: the reason
 * has been replied. */
bool content_prepare(struct command_job *job, struct slice name, const struct bloom_params *params,
                     const struct bloom_shape *shapes, unsigned nlayers, struct entry **entry_out);

/* The same layers as the oldest `nlayers` of a filter. */
bool content_prepare_like(struct command_job *job, struct slice name, const struct bloom_filter *like, unsigned nlayers,
                          struct entry **entry_out);

/* How a filter is published. */
struct content_publication {
    struct registry_publication how;
    bool empty;        /* it has no bits: there is nothing to be made durable but that it exists */
    uint64_t absorbs;  /* the id of the filter that it takes the place of and whose adds are passed on to it: see below.
                        * 0:  none */
};

/* Contents of at most so many bytes of bits are in the log, as their own record; others in files that it names. Files cost
 * some syncs and a directory each: RESTOREs of 120 bytes are ten times as fast by the log, and of 40 KB five times, though the
 * next save writes all of it once more. What sets the limit is that a record is copied under the registry's mutex: these bytes
 * in some microseconds, while the expirer takes it for 20. */
#define CONTENT_IN_LOG_BYTES LOG_CONTENTS_MAX

/* Publishes a prepared filter. REGISTRY_OK: done. REGISTRY_EXISTS, REGISTRY_CHANGED, -ENOMEM, or another -errno with
 * the reason in `err`: nothing has changed and the entry is still the caller's.
 *
 * With a log small contents are in its next frame, as any change is. Others are written to files of the store and synced
 * first, which takes its time; so are small ones while the log has too much to do. With `absorbs`, adds to the old
 * filter go on meanwhile, and some end after the new one has been published. Each sets its bits in both (bloom_merge.h)
 * and, from the moment the two are twins, is recorded for both ids: so what the contents lack is in the log. */
int content_publish(struct server *server, struct entry *entry, const struct content_publication *publication,
                    struct errbuf *err);

/* Publishes a prepared filter and replies OK; or gives it up and replies why, with `exists` if there is a filter of that
 * name (of REGISTRY_EXISTS). */
void content_finish(struct command_job *job, struct entry *entry, const struct content_publication *publication,
                    const char *exists);

/* Replies why a filter could not be made: a status of the registry or of bloomcore's, with its text. Any thread. */
void reply_not_made(struct reply *reply, int status, const struct errbuf *err);

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* Pins the filter of that name. NULL: there is none, or it is quarantined, which has then been replied (*replied_out).
 */
struct entry *content_pin(struct command_job *job, struct slice name, bool *replied_out);

/* ---- large work -------------------------------------------------------------------------------------------------- */

#define CONTENT_LARGE_BYTES (64u << 20) /* work on more than this takes tens of milliseconds of a pool thread */
#define CONTENT_LARGE_JOBS  2           /* so many of those at a time: the pool has others to serve */

/* To be asked before work on so many bytes; false when there is too much at the moment, which has been replied. If
 * true, content_large_end() with the same number. */
bool content_large_begin(struct command_job *job, uint64_t bytes);
void content_large_end(struct command_job *job, uint64_t bytes);

#endif
