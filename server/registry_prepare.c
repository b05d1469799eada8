/* Entries that are made first and put under their name when they are complete. */
#include <errno.h>
#include <stdlib.h>

#include "registry_internal.h"

int registry_prepare(struct registry *r, struct slice name, struct bloom_class *class, bool instead,
                     struct entry **entry_out, struct errbuf *err)
{
    if (name.len > REGISTRY_MAX_NAME) {
        errbuf_set(err, "the name has %zu bytes; at most %d are allowed", name.len, REGISTRY_MAX_NAME);
        return REGISTRY_REFUSED;
    }
    struct entry *entry = entry_alloc(ENTRY_FILTER, name, bloom_filter_bytes(class));
    if (!entry)
        return -ENOMEM;
    int status = instead ? bloom_filter_init_instead(entry_filter(entry), class, err)
                         : bloom_filter_init(entry_filter(entry), class, err);
    if (status) {
        free(entry);
        return status < 0 ? status : REGISTRY_LIMIT;
    }
    atomic_store_explicit(&entry->state, ENTRY_DIRTY, memory_order_relaxed);
    pthread_mutex_lock(&r->lock);
    entry->id = atomic_load(&r->next_id);
    atomic_store(&r->next_id, entry->id + 1);
    pthread_mutex_unlock(&r->lock);
    *entry_out = entry;
    return REGISTRY_OK;
}

static int publish_locked(struct registry *r, struct entry *entry, const struct registry_publication *how,
                          struct entry **replaced_out)
{
    struct slice name = entry_created_name(entry);
    uint64_t hash = registry_hash(r, name);
    struct entry *holder;
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &holder);

    if (slot && how->only_new)
        return REGISTRY_EXISTS;
    if (how->expected_id != 0 && (!slot || entry_owner(holder)->id != how->expected_id))
        return REGISTRY_CHANGED;
    if (slot) {
        slot_replace(slot, hash, entry);
        registry_note_removed(r, entry_owner(holder));
        walk_note_gone(r, entry_owner(holder));
        *replaced_out = holder;
    } else if (!shard_insert(registry_shard(r, hash), &r->env, hash, entry)) {
        return -ENOMEM;
    }
    registry_note_added(r, entry);
    walk_note_added(r, hash, entry);
    return REGISTRY_OK;
}

int registry_publish(struct registry *r, struct entry *entry, const struct registry_publication *how)
{
    struct entry *replaced = NULL;

    if (how->expires_ms != 0)
        return -ENOTSUP;
    pthread_mutex_lock(&r->lock);
    int status = publish_locked(r, entry, how, &replaced);
    pthread_mutex_unlock(&r->lock);
    if (replaced)
        reclaimer_defer(r->env.reclaimer, entry_reclaim, replaced);
    return status;
}

void registry_abandon(struct registry *r, struct entry *entry)
{
    reclaimer_defer(r->env.reclaimer, entry_reclaim, entry); /* it may be gigabytes, and somebody may still be adding to it */
}
