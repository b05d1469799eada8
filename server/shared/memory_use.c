#include "memory_use.h"

#include "bloom_filter.h"
#include "broadcast.h"
#include "notify.h"
#include "pubsub.h"
#include "server.h"
#include "sstables.h"

void memory_use(const struct server *server, struct memory_use *use_out)
{
    const struct journal *journal = server_journal(server);
    struct memory_use use = {.bits = bloom_pool_bytes(server->pool)};
    uint64_t slab = registry_slab_bytes(server->registry), in_slab = bloom_pool_inline_bytes(server->pool);
    if (server->sstables)
        slab += registry_slab_bytes(sstables_registry(server->sstables));
    use.entries = (slab > in_slab ? slab - in_slab : 0) + bloom_pool_header_bytes(server->pool);
    use.index = registry_index_bytes(server->registry);
    if (server->sstables)
        use.index += registry_index_bytes(sstables_registry(server->sstables));
    use.expiry = registry_expiry_bytes(server->registry);
    for (unsigned i = 0; i < server->max_workers; i++)
        use.clients += atomic_load_explicit(&server->memory.of_clients[i].bytes, memory_order_relaxed);
    if (server->pubsub)
        use.pubsub = pubsub_bytes(server->pubsub);
    if (server->notify)
        use.pubsub += notify_bytes(server->notify);
    use.users = atomic_load_explicit(&server->memory.of_users, memory_order_relaxed);
    if (server->broadcast)
        use.pubsub += broadcast_bytes(server->broadcast);
    if (journal)
        use.log = journal_memory(journal);
    *use_out = use;
}

uint64_t memory_use_dataset(const struct memory_use *use)
{
    return use->bits + use->entries;
}

uint64_t memory_use_total(const struct memory_use *use)
{
    return memory_use_dataset(use) + use->index + use->expiry + use->clients + use->pubsub + use->users + use->log;
}

uint64_t memory_used(const struct server *server)
{
    struct memory_use use;
    memory_use(server, &use);
    return memory_use_total(&use);
}

uint64_t memory_limited(const struct server *server)
{
    struct memory_use use;
    memory_use(server, &use);
    return memory_use_total(&use) - use.log;
}

uint64_t memory_beside_bits(void *server)
{
    struct memory_use use;
    memory_use(server, &use);
    return memory_use_total(&use) - use.log - use.bits;
}
