#include "server_facts.h"

#include <stdio.h>

#include "host.h"
#include "memory_reserve.h"
#include "persistence.h"
#include "server.h"

static double loaded_percent(const struct server *server)
{
    double total = (double)atomic_load_explicit(&server->persistence->load.total_bytes, memory_order_relaxed);
    double done = (double)atomic_load_explicit(&server->persistence->load.done_bytes, memory_order_relaxed);
    return total <= 0 ? 0 : done >= total ? 100 : 100 * done / total; /* the total is an estimate */
}

void readiness_of(struct server *server, struct readiness *readiness_out)
{
    const struct journal *journal = server_journal(server);
    char details[ERRBUF_SIZE];
    struct errbuf missed; /* has paths, which not everybody who may ask should see */
    readiness_out->ready = false;
    if (server_loading(server))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "loading the data directory: %.0f %%",
                 loaded_percent(server));
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

void server_facts(struct server *server, struct server_facts *facts_out)
{
    struct journal *journal = server_journal(server);
    readiness_of(server, &facts_out->readiness);
    counters_sum(server->stats.counters, &facts_out->stats);
    counters_errors(server->stats.counters, &facts_out->errors);
    sessions_totals(server->clients.sessions, &facts_out->clients);
    facts_out->blocked = 0;
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        facts_out->blocked += host_blocked(server, i);
    memory_use(server, &facts_out->memory);
    pubsub_totals(server->pubsub, &facts_out->pubsub);
    facts_out->log = (struct journal_info){.records = false};
    if (journal)
        journal_info(journal, &facts_out->log);
    saver_info(server->persistence->saver, &facts_out->saves);
    residency_info(server, &facts_out->residency);
    registry_expiry(server->registry, &facts_out->expiry);
    facts_out->sstables = (struct sstables_numbers){0};
    if (server->sstables)
        sstables_numbers(server->sstables, &facts_out->sstables);
    facts_out->refuses_memory = refuses_memory(server);
}
