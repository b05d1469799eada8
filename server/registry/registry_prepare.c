/* Entries that are created first and published when they are complete. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "registry_internal.h"

int registry_make_filter(struct registry *r, struct slice name, struct bloom_class *class, filter_init_fn *init,
                         struct entry **entry_out, struct errbuf *err)
{
    if (!registry_name_fits(name, err))
        return REGISTRY_REFUSED;
    struct entry *entry = entry_alloc(r->slab, ENTRY_FILTER, name, bloom_filter_bytes(class));
    if (!entry)
        return -ENOMEM;
    int status = init(entry_body(entry), class, err);
    if (status) {
        entry_discard(entry);
        return status < 0 ? status : REGISTRY_LIMIT;
    }
    entry_mark_dirty(entry);
    *entry_out = entry;
    return REGISTRY_OK;
}

struct entry *registry_make_quarantined(struct registry *r, struct slice name, const char *reason)
{
    struct entry *entry = entry_alloc(r->slab, ENTRY_QUARANTINED, name, sizeof(struct quarantine) + strlen(reason) + 1);
    if (entry)
        strcpy(entry_quarantine(entry)->reason, reason);
    return entry;
}

/* Under the mutex. */
static void take_id(struct registry *r, struct entry *entry)
{
    entry->id = atomic_load(&r->next_id);
    atomic_store(&r->next_id, entry->id + 1);
}

int registry_prepare(struct registry *r, struct slice name, struct bloom_class *class, bool instead,
                     struct entry **entry_out, struct errbuf *err)
{
    int status =
        registry_make_filter(r, name, class, instead ? bloom_filter_init_instead : bloom_filter_init, entry_out, err);
    if (status == REGISTRY_OK) {
        pthread_mutex_lock(&r->lock);
        take_id(r, *entry_out);
        pthread_mutex_unlock(&r->lock);
    }
    return status;
}

/* Under the mutex. `alias` is given if the filter may have an expiry, and used only if it has one. */
static int publish_locked(struct registry *r, struct entry *entry, const struct registry_publication *how,
                          struct entry *alias)
{
    struct slice name = entry_created_name(entry);
    uint64_t hash = registry_hash(r, name);
    struct entry *replaced;
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &replaced);

    if (slot && how->only_new)
        return REGISTRY_EXISTS;
    if (how->expected_id != 0 && (!slot || entry_owner(replaced)->id != how->expected_id))
        return REGISTRY_CHANGED;
    int64_t expires_ms = !how->keep_expiry ? how->expires_ms : slot ? entry_expires_ms(replaced) : 0;
    struct entry *holder = expires_ms ? alias : entry;
    if (expires_ms && (!registry_make_space(r, hash_database(hash)) || !registry_reserve_expiry(r, alias)))
        return -ENOMEM;
    if (expires_ms) {
        entry_alias(alias)->owner = entry;
        atomic_store_explicit(&entry_alias(alias)->expires_ms, expires_ms, memory_order_relaxed);
    }
    if (slot)
        registry_exchange(r, hash, slot, holder);
    else if (!registry_place(r, hash, holder))
        return -ENOMEM;
    registry_note_added(r, hash, entry);
    walk_note_added(r, hash, holder);
    if (slot)
        registry_give_up(r, replaced);
    registry_tell(r, &(struct registry_effect){.kind = how->empty ? REGISTRY_CREATED : REGISTRY_LOADED,
                                               .id = entry->id,
                                               .name = name,
                                               .replaced_id = slot ? entry_owner(replaced)->id : 0,
                                               .expires_ms = expires_ms,
                                               .entry = entry,
                                               .payload = how->payload,
                                               .event = how->event});
    if (slot)
        registry_drop(r, replaced);
    if (expires_ms)
        registry_put_expiry(r, alias, expires_ms);
    return REGISTRY_OK;
}

int registry_publish(struct registry *r, struct entry *entry, const struct registry_publication *how)
{
    struct entry *alias = NULL;
    if ((how->expires_ms || how->keep_expiry) && !(alias = registry_alias(r, entry_created_name(entry), NULL)))
        return -ENOMEM;

    pthread_mutex_lock(&r->lock);
    int status = publish_locked(r, entry, how, alias);
    bool used = status == REGISTRY_OK && alias && entry_alias(alias)->owner;
    pthread_mutex_unlock(&r->lock);
    if (!used)
        entry_discard(alias);
    return status;
}

int registry_publish_quarantined(struct registry *r, struct slice name, const char *reason, uint64_t *id_out)
{
    struct registry_publication how = {0};
    struct entry *entry = registry_make_quarantined(r, name, reason);
    if (!entry)
        return -ENOMEM;
    pthread_mutex_lock(&r->lock);
    take_id(r, entry);
    int status = publish_locked(r, entry, &how, NULL);
    pthread_mutex_unlock(&r->lock);
    if (status == REGISTRY_OK)
        *id_out = entry->id; /* only the caller replaces it */
    else
        entry_discard(entry);
    return status;
}

void registry_abandon(struct registry *r, struct entry *entry)
{
    reclaimer_defer(r->env.reclaimer, entry_reclaim,
                    entry); /* it may have gigabytes, and a thread may still be adding to it */
}
