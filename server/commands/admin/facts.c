#include "facts.h"

#include <stdio.h>
#include <unistd.h>

#include "clock.h"
#include "host.h"
#include "memory_use.h"
#include "persistence.h"
#include "server.h"

static void load_of(const struct server *server, struct facts_load *out)
{
    const struct load_progress *load = &server->persistence->load;
    double seconds = (double)(clock_ms() - load->started_ms) / 1000;
    out->started_unix_s = load->started_unix_ms / 1000;
    out->done = atomic_load_explicit(&load->done_bytes, memory_order_relaxed);
    out->total = atomic_load_explicit(&load->total_bytes, memory_order_relaxed);
    if (out->total < out->done)
        out->total = out->done;
    out->eta_s = out->done ? seconds * (double)(out->total - out->done) / (double)out->done : 1;
}

void readiness_of(struct server *server, struct readiness *readiness_out)
{
    const struct journal *journal = server_journal(server);
    char details[ERRBUF_SIZE];
    struct errbuf missed; /* has paths, which not everybody who may ask should see */
    struct facts_load load;
    load_of(server, &load);
    readiness_out->ready = false;
    if (server_loading(server))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "loading the data directory: %.0f %%",
                 load.total ? 100 * (double)load.done / (double)load.total : 0);
    else if (sstables_may_miss(server->sstables, &missed))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "%s",
                 sstables_is_scanning(server->sstables) ? SSTABLES_SCANNING : SSTABLES_INCOMPLETE);
    else if (persistence_refusal(server, details, sizeof(details)))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "%s: writes are refused",
                 journal && journal_refuses(journal) ? "the log cannot be written" : "the last save failed");
    else if (server_config(server)->data.read_only)
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "read-only is yes: writes are refused");
    else
        *readiness_out = (struct readiness){.ready = true, .reason = "ready"};
}

/* As admission decides: what evictions can make room for is not refused. */
static bool refuses_memory(struct server *server)
{
    const struct config *config = server_config(server);
    bool evicts = config->memory.maxmemory_policy != MEMORY_NOEVICTION && !server_loading(server);
    uint64_t used = evicts ? memory_limited(server) : memory_staying(server);
    bool over = config->memory.maxmemory && used >= config->memory.maxmemory;
    return (over && !(evicts && !residency_is_stuck(server))) || memory_reserve_is_spent(server);
}

uint64_t facts_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long total, resident = 0;
    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void facts_gather(struct server *server, struct facts *f)
{
    struct journal *journal = server_journal(server);
    f->server = server;
    f->config = server_config(server);
    f->gauges = counters_main(server->stats.counters);
    readiness_of(server, &f->readiness);
    load_of(server, &f->load);
    counters_sum(server->stats.counters, &f->stats);
    counters_errors(server->stats.counters, &f->errors);
    sessions_totals(server->clients.sessions, &f->clients);
    f->blocked = 0;
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        f->blocked += host_blocked(server, i);
    memory_use(server, &f->memory);
    f->sizes.used = memory_use_total(&f->memory);
    f->sizes.peak = server_peak_bytes(server);
    if (f->sizes.peak < f->sizes.used)
        f->sizes.peak = f->sizes.used;
    f->sizes.resident = facts_resident_bytes();
    reclaimer_counts(server->reclaimer, &f->sizes.pending_objects, &f->sizes.freed_objects);
    pubsub_totals(server->pubsub, &f->pubsub);
    f->log = (struct journal_info){.records = false};
    if (journal)
        journal_info(journal, &f->log);
    saver_info(server->persistence->saver, &f->saves);
    residency_info(server, &f->residency);
    registry_expiry(server->registry, &f->expiry);
    f->sstables = (struct sstables_numbers){0};
    if (server->sstables)
        sstables_numbers(server->sstables, &f->sstables);
    f->refuses_memory = refuses_memory(server);
    getrusage(RUSAGE_SELF, &f->cpu[0]);
    getrusage(RUSAGE_CHILDREN, &f->cpu[1]);
}
