#include "server_facts.h"

#include "host.h"
#include "server.h"

void server_facts(struct server *server, struct server_facts *facts_out)
{
    struct journal *journal = server_journal(server);
    readiness_of(server, &facts_out->readiness);
    counters_sum(server->counters, &facts_out->stats);
    counters_errors(server->counters, &facts_out->errors);
    sessions_totals(server->sessions, &facts_out->clients);
    facts_out->blocked = 0;
    for (unsigned i = 0; i < server->nworkers; i++)
        facts_out->blocked += host_sleepers(server, i);
    memory_use(server, &facts_out->memory);
    pubsub_totals(server->pubsub, &facts_out->pubsub);
    facts_out->log = (struct journal_info){.records = false};
    if (journal)
        journal_info(journal, &facts_out->log);
    saver_info(server->saver, &facts_out->saves);
    residency_info(server, &facts_out->residency);
    registry_expiry(server->registry, &facts_out->expiry);
}
