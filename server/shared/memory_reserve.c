#include "memory_reserve.h"

#include <stdlib.h>

#include "server.h"

/* Enough for some tens of connections with their buffers, and so large that free() returns it to the system. */
#define RESERVE_BYTES ((size_t)512 * 1024)

void memory_reserve_keep(struct server *server)
{
    void *none = NULL, *memory;
    if (!memory_reserve_is_spent(server) || !(memory = malloc(RESERVE_BYTES)))
        return;
    if (!atomic_compare_exchange_strong(&server->memory.reserve, &none, memory))
        free(memory);
}

bool memory_reserve_spend(struct server *server)
{
    void *memory = atomic_exchange(&server->memory.reserve, NULL);
    free(memory);
    return memory != NULL;
}

bool memory_reserve_is_spent(const struct server *server)
{
    return !atomic_load_explicit(&server->memory.reserve, memory_order_relaxed);
}
