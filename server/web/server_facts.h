/* server_facts: the numbers of the whole daemon, for metrics and the status page.
 *
 * Thread: an online RCU reader, not a loop. */
#ifndef BLOOMERY_SERVER_FACTS_H
#define BLOOMERY_SERVER_FACTS_H

#include "errorstats.h"
#include "journal.h"
#include "memory_use.h"
#include "pubsub.h"
#include "registry.h"
#include "residency.h"
#include "saver.h"
#include "session.h"
#include "sstables.h"
#include "stats.h"

struct server;

/* False with a reason of one short sentence, which has no name of a file or filter in it: it is public. */
struct readiness {
    bool ready;
    char reason[96];
};

/* Whether the daemon would serve reads and writes now. */
void readiness_of(struct server *server, struct readiness *readiness_out);

/* Large: not for a stack. */
struct server_facts {
    struct readiness readiness;
    struct stats stats; /* one snapshot of the counters */
    struct errorstats errors;
    struct sessions_totals clients;
    unsigned blocked; /* clients that wait: WAIT, WAITAOF, DEBUG SLEEP */
    struct memory_use memory;
    struct pubsub_totals pubsub;
    struct journal_info log; /* all 0 while filters are being loaded */
    struct saver_info saves;
    struct residency_info residency;
    struct registry_expiry expiry;
    struct sstables_numbers sstables; /* all 0 without sstable-dir */
    bool refuses_memory;              /* commands that need memory: maxmemory, or the system has none */
};

void server_facts(struct server *server, struct server_facts *facts_out);

#endif
