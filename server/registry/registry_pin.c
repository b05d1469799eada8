#include "registry_internal.h"

struct entry *registry_pin(struct registry *r, struct slice name)
{
    uint64_t hash = registry_hash(r, name);

    pthread_mutex_lock(&r->lock);
    struct entry *entry = registry_find(r, hash, name); /* certainly in the registry: the mutex excludes a removal */
    if (entry)
        entry_pin(entry);
    pthread_mutex_unlock(&r->lock);
    return entry;
}

void registry_pin_prepared(struct entry *entry)
{
    entry_pin(entry);
}

void registry_unpin(struct entry *entry)
{
    entry_unpin(entry);
}
