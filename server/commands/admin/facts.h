/* facts: the numbers of the whole daemon, for INFO, metrics and the status page. The table facts.def has their names.
 *
 * Thread: an online RCU reader, not a loop. */
#pragma once

#include <math.h>
#include <sys/resource.h>

#include "acl.h"
#include "clock.h"
#include "half_loads.h"
#include "host.h"
#include "journal.h"
#include "memory_use.h"
#include "persistence.h"
#include "pubsub.h"
#include "registry.h"
#include "residency.h"
#include "saver.h"
#include "server.h"
#include "session.h"
#include "sstables.h"
#include "stats.h"

/* False with a reason of one short sentence, which has no name of a file or filter in it: it is public. */
struct readiness {
    bool ready;
    char reason[96];
};

/* Whether the daemon would serve reads and writes now. */
void readiness_of(struct server *server, struct readiness *readiness_out);

/* While filters are being loaded. */
struct facts_load {
    int64_t started_unix_s;
    uint64_t total, done; /* bytes; the total is an estimate, and not below the other */
    double eta_s;
};

struct facts_sizes {
    uint64_t used, peak;
    uint64_t resident, virtual_bytes; /* memory of the process in RAM, and its addresses; 0: unknown */
    uint64_t pending_objects, freed_objects;
};

/* Large: not for a stack. */
struct facts {
    struct server *server;
    const struct config *config;
    const struct stats *gauges;
    struct readiness readiness;
    struct stats stats; /* one snapshot of the counters */
    struct errorstats errors;
    struct sessions_totals clients;
    unsigned blocked; /* clients that wait: WAIT, WAITAOF, DEBUG SLEEP */
    struct memory_use memory;
    struct facts_sizes sizes;
    struct pubsub_totals pubsub;
    struct facts_load load;
    struct journal_info log; /* all 0 while filters are being loaded */
    struct saver_info saves;
    struct residency_info residency;
    struct registry_expiry expiry;
    struct sstables_numbers sstables; /* all 0 without sstable-dir */
    bool refuses_memory;              /* commands that need memory: maxmemory */
    struct rusage cpu[2];             /* of the process, and of its children */
    struct bf_totals totals;          /* the caller's; nothing else needs them */
};

/* All but `totals`. */
void facts_gather(struct server *server, struct facts *facts_out);

/* Appends the lines of INFO's sections about single commands and errors. */
void facts_of_commands(const struct facts *facts, struct buf *out);

void facts_process_bytes(uint64_t *resident_out, uint64_t *virtual_out);

/* ---- for values in the table ---- */

#define WHILE_LOADING(x) (server_loading(f->server) ? (double)(x) : NAN)
#define WITH_LOG(x)      (f->config->log.appendonly ? (double)(x) : NAN)

static inline int64_t uptime_s(const struct facts *f)
{
    return (clock_ms() - f->server->process.started_ms) / 1000;
}

/* Memory that the process occupied before it had any filter does not count as fragmentation: with a few small filters
 * it would hide all the rest. */
static inline double fragmentation(const struct facts *f)
{
    uint64_t expected = f->sizes.used + f->server->memory.startup_resident;
    return expected ? (double)f->sizes.resident / (double)expected : 0;
}

static inline double percent(uint64_t part, uint64_t whole)
{
    return whole ? (double)part * 100 / (double)whole : 0;
}

static inline bool is_saving(const struct facts *f)
{
    return f->saves.running && f->saves.running_ms >= 0;
}

static inline int64_t whole_s(int64_t ms)
{
    return ms < 0 ? -1 : ms / 1000;
}

static inline double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static inline uint64_t cycle_us(const struct facts *f)
{
    uint64_t cycles = stats_get(&f->gauges->loop_cycles_per_sec);
    return cycles ? stats_get(&f->gauges->loop_ns_per_sec) / cycles / 1000 : 0;
}

static inline double observed_rate(const struct facts *f)
{
    uint64_t wrong = stats_get(&f->stats.false_positives), misses = stats_get(&f->stats.query_misses);
    return wrong ? (double)wrong / (double)(wrong + misses) : 0;
}

/* Removed filters are among the evicted ones until they are freed. */
static inline uint64_t resident_filters(const struct facts *f)
{
    uint64_t filters = registry_count(f->server->registry);
    return filters > f->residency.evicted ? filters - f->residency.evicted : 0;
}
