/* New entries: created under their names, or prepared first and published when they are complete; and the placeholders
 * of filters that cannot be read. */
#include <errno.h>
#include <string.h>

#include "rcu.h"
#include "registry.h"
#include "registry_internal.h"
#include "lock.h"

/* ---- entries that no other thread sees yet ---- */

typedef int filter_init_fn(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);

/* A filter without items, dirty. REGISTRY_OK; REGISTRY_REFUSED, REGISTRY_LIMIT (with the reason) or -ENOMEM. */
static int make_filter(struct registry *r, struct slice name, struct bloom_class *class, filter_init_fn *init,
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

static struct entry *make_quarantined(struct registry *r, struct slice name, const char *reason)
{
    struct entry *entry = entry_alloc(r->slab, ENTRY_QUARANTINED, name, strlen(reason) + 1);
    if (entry)
        strcpy(entry_body(entry), reason);
    return entry;
}

/* ---- creating ---- */

/* Inserts a new entry under its name. REGISTRY_OK, REGISTRY_EXISTS (the entry is unused) or -ENOMEM. */
static int insert(struct registry *r, struct entry *entry, uint64_t id, struct entry **entry_out)
{
    struct slice name = entry_name(entry);
    uint64_t hash = registry_hash(r, name);
    int status = REGISTRY_OK;

    lock_take(&r->lock);
    struct entry *existing;
    if (registry_slot(r, hash, name, &existing)) {
        *entry_out = entry_owner(existing);
        status = REGISTRY_EXISTS;
    } else {
        entry->id = id ? id : atomic_load(&r->next_id);
        if (registry_place(r, hash, entry)) {
            if (entry->id >= atomic_load(&r->next_id))
                atomic_store(&r->next_id, entry->id + 1);
            registry_note_added(r, hash, entry);
            walk_added(&r->walk, place_of_shard(hash), entry);
            registry_tell(
                r, &(struct registry_effect){.kind = REGISTRY_CREATED, .id = entry->id, .name = name, .entry = entry});
            *entry_out = entry;
        } else {
            status = -ENOMEM;
        }
    }
    lock_give(&r->lock);
    return status;
}

static int create(struct registry *r, struct slice name, uint64_t id, struct bloom_class *class, bool evicted,
                  struct entry **entry_out, struct errbuf *err)
{
    struct entry *entry;
    int status = make_filter(r, name, class, bloom_filter_init, &entry, err);
    if (status != REGISTRY_OK)
        return status;
    if (evicted)
        entry_start_evicted(entry);
    status = insert(r, entry, id, entry_out);
    if (status != REGISTRY_OK) {
        bloom_filter_deinit(entry_body(entry));
        entry_discard(entry);
    }
    return status;
}

int registry_create_filter(struct registry *r, struct slice name, uint64_t id, struct bloom_class *class,
                           struct entry **entry_out, struct errbuf *err)
{
    return create(r, name, id, class, false, entry_out, err);
}

int registry_create_evicted(struct registry *r, struct slice name, uint64_t id, struct bloom_class *class,
                            struct entry **entry_out, struct errbuf *err)
{
    return create(r, name, id, class, true, entry_out, err);
}

int registry_create_quarantined(struct registry *r, struct slice name, uint64_t id, const char *reason)
{
    struct entry *entry = make_quarantined(r, name, reason), *existing;
    if (!entry)
        return -ENOMEM;
    int status = insert(r, entry, id, &existing);
    if (status != REGISTRY_OK)
        entry_discard(entry);
    return status;
}

/* ---- publishing ---- */

/* Under the mutex. */
static void take_id(struct registry *r, struct entry *entry)
{
    entry->id = atomic_load(&r->next_id);
    atomic_store(&r->next_id, entry->id + 1);
}

int registry_prepare(struct registry *r, struct slice name, struct bloom_class *class, bool instead,
                     struct entry **entry_out, struct errbuf *err)
{
    int status = make_filter(r, name, class, instead ? bloom_filter_init_instead : bloom_filter_init, entry_out, err);
    if (status == REGISTRY_OK) {
        lock_take(&r->lock);
        take_id(r, *entry_out);
        lock_give(&r->lock);
    }
    return status;
}

/* Under the mutex: the holder of the name of a new entry: itself, or `alias` with the expiry. NULL: no memory. */
static struct entry *holder_of(struct registry *r, uint64_t hash, struct entry *entry, struct entry *alias,
                               int64_t expires_ms)
{
    if (!expires_ms)
        return entry;
    if (!registry_make_space(r, hash_database(hash)) || !registry_reserve_expiry(r, alias))
        return NULL;
    entry_alias(alias)->owner = entry;
    atomic_store_explicit(&entry_alias(alias)->expires_ms, expires_ms, memory_order_relaxed);
    return alias;
}

/* Under the mutex, as a client may delete the name afterwards: `alias`, if a change with this status did not use it. */
static struct entry *unused(struct entry *alias, int status)
{
    return alias && (status != REGISTRY_OK || !entry_alias(alias)->owner) ? alias : NULL;
}

/* Under the mutex. `alias` is given if the filter may have an expiry, and used only if it has one. */
static int publish_locked(struct registry *r, struct entry *entry, const struct registry_publication *how,
                          struct entry *alias)
{
    struct slice name = entry_name(entry);
    uint64_t hash = registry_hash(r, name);
    struct entry *replaced;
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &replaced);

    if (slot && how->only_new)
        return REGISTRY_EXISTS;
    if (how->expected_id != 0 && (!slot || entry_owner(replaced)->id != how->expected_id))
        return REGISTRY_CHANGED;
    int64_t expires_ms = !how->keep_expiry ? how->expires_ms : slot ? entry_expires_ms(replaced) : 0;
    struct entry *holder = holder_of(r, hash, entry, alias, expires_ms);
    if (!holder)
        return -ENOMEM;
    if (slot)
        registry_exchange(r, hash, slot, holder);
    else if (!registry_place(r, hash, holder))
        return -ENOMEM;
    registry_note_added(r, hash, entry);
    walk_added(&r->walk, place_of_shard(hash), holder);
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
    if ((how->expires_ms || how->keep_expiry) && !(alias = registry_alias(r, entry_name(entry), NULL)))
        return -ENOMEM;

    lock_take(&r->lock);
    int status = publish_locked(r, entry, how, alias);
    alias = unused(alias, status);
    lock_give(&r->lock);
    entry_discard(alias);
    return status;
}

int registry_publish_quarantined(struct registry *r, struct slice name, const char *reason, uint64_t *id_out)
{
    struct registry_publication how = {0};
    struct entry *entry = make_quarantined(r, name, reason);
    if (!entry)
        return -ENOMEM;
    lock_take(&r->lock);
    take_id(r, entry);
    int status = publish_locked(r, entry, &how, NULL);
    lock_give(&r->lock);
    if (status == REGISTRY_OK)
        *id_out = entry->id; /* only the caller replaces it */
    else
        entry_discard(entry);
    return status;
}

void registry_abandon(struct registry *r, struct entry *entry)
{
    /* it may have gigabytes, and a thread may still be adding to it */
    reclaimer_defer(r->env.reclaimer, entry_reclaim, entry, entry_charged(entry));
}

/* ---- filters whose bits cannot be read again ---- */

/* Under the mutex: `made` takes the place of `entry`, with its expiry and its id, in `alias` if there is one. */
static int replace_locked(struct registry *r, struct slice name, const struct entry *entry, struct entry *made,
                          struct entry *alias, void (*note)(void *ctx, uint64_t id), void *ctx)
{
    uint64_t hash = registry_hash(r, name);
    struct entry *replaced;
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &replaced);
    if (!slot || entry_owner(replaced) != entry)
        return REGISTRY_CHANGED;
    int64_t expires_ms = entry_expires_ms(replaced);
    struct entry *holder = holder_of(r, hash, made, alias, expires_ms);
    if (!holder)
        return -ENOMEM;
    note(ctx, entry->id);
    registry_exchange(r, hash, slot, holder);
    registry_drop(r, replaced);
    registry_note_added(r, hash, made);
    walk_changed(&r->walk, holder);
    if (expires_ms)
        registry_put_expiry(r, alias, expires_ms);
    atomic_store_explicit(&r->unrecorded, false, memory_order_release); /* there is no effect to report */
    return REGISTRY_OK;
}

int registry_quarantine(struct registry *r, struct slice name, const struct entry *entry, const char *reason,
                        void (*note)(void *ctx, uint64_t id), void *ctx)
{
    struct entry *made = make_quarantined(r, name, reason), *alias = registry_alias(r, name, NULL);
    int status = -ENOMEM;
    if (made && alias) {
        made->id = entry->id;
        lock_take(&r->lock);
        status = replace_locked(r, name, entry, made, alias, note, ctx);
        alias = unused(alias, status);
        lock_give(&r->lock);
    }
    if (status != REGISTRY_OK)
        entry_discard(made);
    entry_discard(alias);
    return status;
}
