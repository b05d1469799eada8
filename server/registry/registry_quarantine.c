/* A filter whose bits have left memory and cannot be read again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "registry_internal.h"

/* Under the mutex: `made` takes the place of `entry`, with its expiry and its id, in `alias` if there is one. */
static int replace_locked(struct registry *r, struct slice name, const struct entry *entry, struct entry *made,
                          struct entry *alias, void (*note)(void *ctx, uint64_t id), void *ctx)
{
    uint64_t hash = registry_hash(r, name);
    struct entry *holder;
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &holder);
    if (!slot || entry_owner(holder) != entry)
        return REGISTRY_CHANGED;
    int64_t expires_ms = entry_expires_ms(holder);
    if (expires_ms && (!registry_make_space(r, hash_database(hash)) || !registry_reserve_expiry(r, alias)))
        return -ENOMEM;
    if (expires_ms) {
        entry_alias(alias)->owner = made;
        atomic_store_explicit(&entry_alias(alias)->expires_ms, expires_ms, memory_order_relaxed);
    }
    note(ctx, entry->id);
    struct entry *now = expires_ms ? alias : made;
    registry_exchange(r, hash, slot, now);
    registry_drop(r, holder);
    registry_note_added(r, hash, made);
    walk_note_changed(r, now);
    if (expires_ms)
        registry_put_expiry(r, alias, expires_ms);
    return REGISTRY_OK;
}

int registry_quarantine(struct registry *r, struct slice name, const struct entry *entry, const char *reason,
                        void (*note)(void *ctx, uint64_t id), void *ctx)
{
    struct entry *made = entry_alloc(r->slab, ENTRY_QUARANTINED, name, sizeof(struct quarantine) + strlen(reason) + 1);
    struct entry *alias = registry_alias(r, name, NULL);
    int status = made && alias ? REGISTRY_OK : -ENOMEM;
    if (status == REGISTRY_OK) {
        strcpy(entry_quarantine(made)->reason, reason);
        made->id = entry->id;
        pthread_mutex_lock(&r->lock);
        status = replace_locked(r, name, entry, made, alias, note, ctx);
        pthread_mutex_unlock(&r->lock);
    }
    if (status != REGISTRY_OK)
        entry_discard(made);
    if (status != REGISTRY_OK || !entry_alias(alias)->owner)
        entry_discard(alias);
    return status;
}
