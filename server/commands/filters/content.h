/* content: publishes filters with contents: loaded, restored, copied, merged or cleared ones. All use one procedure: an
 * unpublished entry is prepared, filled, and published under its name atomically. So a client sees either the old
 * filter or the new one. All go through content_publish(), the one place for filters whose bits did not come from adds.
 *
 * Thread: "pool" (a deferred job), unless it says otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "command.h"
#include "log_payload.h"
#include "registry.h"
#include "server.h"

/* ---- making ---- */

/* Prepares an empty filter with these layers (shapes[0..nlayers-1]). False after an error reply. */
bool content_prepare(struct command_job *job, struct slice name, const struct bloom_params *params,
                     const struct bloom_shape *shapes, unsigned nlayers, struct entry **entry_out);

/* The same, with the layers of the oldest `nlayers` of a filter. */
bool content_prepare_like(struct command_job *job, struct slice name, const struct bloom_filter *like, unsigned nlayers,
                          struct entry **entry_out);

/* For command_do_first(): waits until removed filters are freed, or for a second. */
void content_wait_for_memory(struct command_job *job);

/* A filter has come; the key with this id is missing, 0: none. The log reports it, not too often. */
void content_note_key(struct server *server, uint64_t missing);

/* How a filter is published. */
struct content_publication {
    struct registry_publication how;
    bool empty;       /* it has no bits: only its existence must become durable */
    uint64_t absorbs; /* id of the filter that it replaces and whose adds are passed on to it: see below. 0: none */
};

/* Contents of at most this size are a record of the log; larger ones are files that the log names. Files need several
 * syncs: RESTOREs of 120 bytes are ten times as fast by the log, and RESTOREs of 40 KB five times, though the next save
 * writes the bits again. The limit exists because a record is copied under the registry's mutex: this size in some
 * microseconds, while the expirer takes 20. */
#define CONTENT_IN_LOG_BYTES LOG_CONTENTS_MAX

/* Publishes a prepared filter. REGISTRY_OK: done. REGISTRY_EXISTS, REGISTRY_CHANGED, -ENOMEM, or another -errno with
 * the reason in `err`: nothing has changed and the entry is still the caller's.
 *
 * With a log small contents are in its next frame, as any change is. Others are written to files of the store and
 * synced first, which takes its time; so are small ones while the log has too much to do. With `absorbs`, adds to the
 * old filter continue meanwhile, and some end after the new one has been published. Each sets its bits in both
 * (bloom_merge.h) and, from the moment the two are twins, is recorded for both ids: so changes that the contents lack
 * are in the log. */
int content_publish(struct server *server, struct entry *entry, const struct content_publication *publication,
                    struct errbuf *err);

/* Publishes a prepared filter and replies OK; or abandons it and replies why: `exists` for REGISTRY_EXISTS. */
void content_finish(struct command_job *job, struct entry *entry, const struct content_publication *publication,
                    const char *exists);

/* The status of the registry for one of bloomcore. */
int registry_status(int status);

/* Replies why a filter could not be created: a status of the registry, or an -errno, with its text. Thread: any. */
void reply_not_made(struct reply *reply, int status, const struct errbuf *err);

/* ---- finding ---- */

/* Pins the filter of that name. NULL: none, or it is quarantined, after an error reply (*replied_out). */
struct entry *content_pin(struct command_job *job, struct slice name, bool *replied_out);

/* content_pin() for commands of Bloom filters: a missing filter and a cuckoo filter are errors, too. */
struct entry *content_pin_bloom(struct command_job *job, struct slice name);

/* content_pin() for callers that need no bits (entry_shape()), which stay where they are. Thread: any, online. */
struct entry *content_pin_shape(struct command_job *job, struct slice name, bool *replied_out);

/* ---- large work ---- */

#define CONTENT_LARGE_BYTES (64u << 20) /* work on more than this takes tens of milliseconds of a pool thread */
#define CONTENT_LARGE_JOBS  2           /* of these at a time: the pool has other jobs, too */

/* Called before work on `bytes` bytes. False, after an error reply, when too many large jobs run. If true, the caller
 * calls content_large_end() afterwards with this number. */
bool content_large_begin(struct command_job *job, uint64_t bytes);
void content_large_end(struct command_job *job, uint64_t bytes);
