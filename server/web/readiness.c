#include "readiness.h"

#include <stdio.h>

#include "journal.h"
#include "persistence.h"
#include "server.h"

static double loaded_percent(const struct server *server)
{
    double total = (double)atomic_load_explicit(&server->load.total_bytes, memory_order_relaxed);
    double done = (double)atomic_load_explicit(&server->load.done_bytes, memory_order_relaxed);
    return total <= 0 ? 0 : done >= total ? 100 : 100 * done / total; /* the total is an estimate */
}

void readiness_of(struct server *server, struct readiness *readiness_out)
{
    const struct journal *journal = server_journal(server);
    char details[ERRBUF_SIZE];
    readiness_out->ready = false;
    if (server_loading(server))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "loading the data directory: %.0f %%",
                 loaded_percent(server));
    else if (persistence_refusal(server, details, sizeof(details)))
        snprintf(readiness_out->reason, sizeof(readiness_out->reason), "%s: writes are refused",
                 journal && journal_refuses(journal) ? "the log cannot be written" : "the last save failed");
    else
        *readiness_out = (struct readiness){.ready = true, .reason = "ready"};
}
