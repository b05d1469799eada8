/* persistence: joins the registry, the loops and the saver to the journal, and decides when writes are refused.
 *
 * Thread: any, except where noted. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "journal.h"
#include "server.h"
#include "store.h"

/* The load at the start; it runs beside the workers, which refuse nearly all commands meanwhile. */
struct load_progress {
    _Atomic bool active;
    _Atomic uint64_t total_bytes; /* an estimate */
    _Atomic uint64_t done_bytes;
    int64_t started_unix_ms;
    int64_t started_ms; /* monotonic */
    struct load *load;  /* internal to load.c */
};

/* The data on the disk, and the parts that write and read it. Constant once the workers run, except the atomics. */
struct persistence {
    struct store *store; /* the data directory, opened */
    struct saver *saver;
    struct residency *residency; /* bits that are not in memory */
    struct expirer *expirer;
    struct journal_keep log_kept;  /* kept while the log has adds to filters in quarantine */
    uint64_t log_accepted;         /* store_checkpoint.accepted of the saves to come; set before the first one */
    _Atomic unsigned evicting;     /* residency_some_evicted() */
    _Atomic size_t loaded_filters; /* at the start */
    _Atomic size_t load_expired;   /* filters of the data directory that had expired by the start */
    struct load_progress load;
};

struct config;
struct registry_effect;

static inline bool server_loading(const struct server *server)
{
    return atomic_load_explicit(&server->persistence->load.active, memory_order_acquire);
}

/* Starts the journal where the log that was read at the start ends, and records if the settings request it. All filters
 * are in the registry, none is served yet. The status of journal_create(). */
int persistence_start(struct server *server, const struct journal_start *from, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Ends the journal, which syncs all records first. Called after the workers have ended. */
void persistence_stop(struct server *server);

/* server_config_replace(), and applies the new settings to the log. */
void persistence_config_replace(struct server *server, struct config *config);

/* The payload of REGISTRY_LOADED: contents that did not come from adds, as the record of files (store.h) or the
 * contents themselves (log_payload.h). NULL if nothing is recorded. */
struct persistence_contents {
    bool in_files;
    const void *ptr;
    size_t len;
};

/* Whether the writes of this iteration are refused. The first is cheap; the second writes the error into `text`. */
bool persistence_refuses(struct server *server);
bool persistence_refusal(struct server *server, char *text, size_t size);

/* ---- the start (load.c) ---- */

/* Fills the registry at the start, from the files of the last save and then from the log.
 *
 * It runs in its own thread. Meanwhile the workers answer -LOADING to commands that touch filters.
 *
 * Thread: the main thread, except load_report(). */

struct server;

/* Begins to load all filters of the store. Filters with damaged files are quarantined and logged. `done` is called
 * once, in the loading thread: after success server_loading() is false and writes are recorded; after a failure no
 * filter may be served. 0 or -errno. */
int load_start(struct server *server, void (*done)(struct server *server));

/* Waits for the end of the load. 0, or -1 with the reason in `err`. Called once after a successful load_start(). */
int load_join(struct server *server, struct errbuf *err);

/* Called instead of load_join() right before the process ends: leaves the thread running. */
void load_leave(struct server *server);

/* Writes a report of the store or the log to the daemon's messages. For store_options; ctx is the server. */
void load_report(void *ctx, enum store_severity severity, const char *text);

/* ---- effects ---- */

/* Passes changes of whole filters (created, loaded, deleted, expired, renamed, given an expiry) on to the
 * parts of the server that need them. It is the registry's one listener; a new consumer gets a line here, and no
 * command must care.
 *
 * Thread: effects_attach(): after loading, before the workers start. The consumers run under the registry's mutex
 * (registry_effect.h). */

void effects_attach(struct server *server);

/* Waits a while if consumers have fallen behind: for threads that change masses of filters. */
void effects_pace(void *server);
