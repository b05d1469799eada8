#include "memory_use.h"

#include "notify.h"
#include "pubsub.h"
#include "rcu.h"
#include "server.h"
#include "sstables.h"

/* The memory that maxmemory limits. */
static void count_filters(const struct server *server, struct memory_use *use)
{
    uint64_t slab = registry_slab_bytes(server->registry), in_slab = bloom_pool_inline_bytes(server->pool);
    if (server->sstables)
        slab += registry_slab_bytes(sstables_registry(server->sstables));
    use->bits = bloom_pool_bytes(server->pool);
    use->entries = (slab > in_slab ? slab - in_slab : 0) + bloom_pool_header_bytes(server->pool);
    use->index = registry_index_bytes(server->registry);
    if (server->sstables)
        use->index += registry_index_bytes(sstables_registry(server->sstables));
    use->expiry = registry_expiry_bytes(server->registry);
    use->users = atomic_load_explicit(&server->memory.of_users, memory_order_relaxed);
}

void memory_use(const struct server *server, struct memory_use *use_out)
{
    const struct journal *journal = server_journal(server);
    struct memory_use use = {.bits = 0};
    count_filters(server, &use);
    for (unsigned i = 0; i < server->threads.max_workers; i++)
        use.clients += atomic_load_explicit(&server->memory.of_clients[i].bytes, memory_order_relaxed);
    if (server->pubsub)
        use.pubsub = pubsub_bytes(server->pubsub);
    if (server->notify)
        use.pubsub += notify_bytes(server->notify);
    if (journal)
        use.log = journal_memory(journal);
    use.log += bloom_pool_still_bytes(server->pool);
    *use_out = use;
}

uint64_t memory_use_dataset(const struct memory_use *use)
{
    return use->bits + use->entries;
}

uint64_t memory_use_limited(const struct memory_use *use)
{
    return memory_use_dataset(use) + use->index + use->expiry + use->users;
}

uint64_t memory_use_total(const struct memory_use *use)
{
    return memory_use_limited(use) + use->clients + use->pubsub + use->log;
}

uint64_t memory_used(const struct server *server)
{
    struct memory_use use;
    memory_use(server, &use);
    return memory_use_total(&use);
}

uint64_t memory_limited(const struct server *server)
{
    struct memory_use use = {.bits = 0};
    count_filters(server, &use);
    return memory_use_limited(&use);
}

uint64_t memory_staying(const struct server *server)
{
    uint64_t before = reclaimer_bytes(server->reclaimer), used = memory_limited(server);
    uint64_t after = reclaimer_bytes(server->reclaimer), evicting = before > after ? before : after;
    return evicting < used ? used - evicting : 0; /* others have replaced filters, and freed them, between the reads */
}

bool memory_waits_for_eviction(const struct server *server, uint64_t bytes)
{
    uint64_t limit = server_config(server)->memory.maxmemory;
    return reclaimer_bytes(server->reclaimer) > 0 &&
           memory_limited(server) + bytes > (limit ? limit : 2 * memory_staying(server));
}

uint64_t memory_overhead(void *server)
{
    struct memory_use use = {.bits = 0};
    count_filters(server, &use);
    return memory_use_limited(&use) - use.bits;
}

/* ---- clients ---- */

#define CLIENTS_MIN  (UINT64_C(128) * 1024) /* as in Redis: an operator can still connect and set another value */
#define CLIENTS_AUTO (UINT64_C(64) << 20)   /* room for usual batches, even with a small maxmemory */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t memory_clients_limit(const struct server *server, const struct config *config)
{
    uint64_t machine = server->memory.machine_bytes,
             whole = config->memory.maxmemory ? config->memory.maxmemory : machine;
    if (config->memory.maxmemory_clients == 0)
        return 0;
    if (config->memory.maxmemory_clients == CONFIG_AUTO)
        return most(whole / 4, machine / 4 < CLIENTS_AUTO ? machine / 4 : CLIENTS_AUTO);
    return most(config_share(config->memory.maxmemory_clients, whole), CLIENTS_MIN);
}

uint64_t memory_of_clients(const struct server *server)
{
    uint64_t held = 0;
    for (unsigned i = 0; i < server->threads.max_workers; i++)
        held += atomic_load_explicit(&server->memory.of_clients[i].held, memory_order_relaxed);
    return held;
}
