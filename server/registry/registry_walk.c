/* The walk takes the shards one after another, each under the mutex for the few thousand entries it has, and yields
 * them outside. What is put into a shard that has been taken is noted as a late item; a shard still to come needs no
 * note. So a rename from a shard not yet taken into one that has been taken is not lost, as it would be by a plain
 * sweep.
 *
 * When the last shard has been yielded the walk freezes: from then on nothing is noted, and the late items that there
 * are make what has been yielded equal to what the registry held at that moment. So a walk ends, however busy the
 * others are. */
#include <errno.h>
#include <stdlib.h>

#include "registry_internal.h"

static bool queue_push(struct walk_queue *queue, struct registry_item item)
{
    if (queue->next == queue->count)
        queue->next = queue->count = 0;
    if (queue->count == queue->size) {
        size_t size = queue->size ? queue->size * 2 : 64;
        struct registry_item *items = realloc(queue->items, size * sizeof(*items));
        if (!items)
            return false;
        queue->items = items;
        queue->size = size;
    }
    queue->items[queue->count++] = item;
    return true;
}

static void item_unpin(struct registry_item *item)
{
    if (!item->entry)
        return;
    entry_unpin(item->entry);
    if (item->holder != item->entry)
        entry_unpin(item->holder);
}

static void queue_drop(struct walk_queue *queue)
{
    for (size_t i = queue->next; i < queue->count; i++)
        item_unpin(&queue->items[i]);
    free(queue->items);
    *queue = (struct walk_queue){0};
}

/* Notes an entry that is in the registry, pinned. */
static void note_entry(struct registry *r, struct walk_queue *queue, struct entry *holder)
{
    struct entry *owner = entry_owner(holder);
    struct registry_item item = {.id = owner->id,
                                 .entry = owner,
                                 .name = entry_name(holder),
                                 .expires_ms = entry_expires_ms(holder),
                                 .holder = holder};
    if (!queue_push(queue, item)) {
        r->walk.failed = true;
        return;
    }
    entry_pin(owner);
    if (holder != owner)
        entry_pin(holder);
}

static bool walk_has_passed(const struct registry *r, unsigned shard)
{
    return r->walk.active && shard < r->walk.shard;
}

void walk_note_added(struct registry *r, uint64_t hash, struct entry *holder)
{
    if (walk_has_passed(r, hash_shard(hash)))
        note_entry(r, &r->walk.late, holder);
}

/* Noted wherever it happened: an earlier state of the filter may be among the late items already. */
void walk_note_changed(struct registry *r, struct entry *holder)
{
    if (r->walk.active)
        note_entry(r, &r->walk.late, holder);
}

/* Noted wherever it happened: the filter may have been yielded in a shard that it was renamed away from. The mark saves
 * the work for items of it that are still waiting. */
void walk_note_gone(struct registry *r, struct entry *owner)
{
    if (!r->walk.active)
        return;
    atomic_fetch_or(&owner->state, ENTRY_GONE);
    if (!queue_push(&r->walk.late, (struct registry_item){.id = owner->id}))
        r->walk.failed = true;
}

static void for_each_slot(const struct table *table, void (*fn)(struct registry *, struct entry *), struct registry *r)
{
    for (uint64_t i = 0; table && i < table->size; i++) {
        uint64_t slot = atomic_load_explicit(&table->slots[i], memory_order_relaxed);
        if (slot_holds_entry(slot))
            fn(r, slot_entry(slot));
    }
}

static void note_cleared(struct registry *r, struct entry *holder)
{
    walk_note_gone(r, entry_owner(holder));
}

void walk_note_cleared(struct registry *r, const struct table *table)
{
    if (r->walk.active)
        for_each_slot(table, note_cleared, r);
}

static void note_taken(struct registry *r, struct entry *holder)
{
    if (!registry_is_over(r, holder))
        note_entry(r, &r->walk.taken, holder);
}

void registry_walk_begin(struct registry *r)
{
    pthread_mutex_lock(&r->lock);
    r->walk = (struct walk){.active = true};
    pthread_mutex_unlock(&r->lock);
}

void registry_walk_on_freeze(struct registry *r, void (*fn)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&r->lock);
    r->walk.on_freeze = fn;
    r->walk.on_freeze_ctx = ctx;
    pthread_mutex_unlock(&r->lock);
}

static void walk_freeze(struct walk *walk)
{
    if (!walk->active)
        return;
    walk->active = false;
    if (walk->on_freeze)
        walk->on_freeze(walk->on_freeze_ctx);
}

/* The next item under the mutex, or false when there is none for now. */
static bool walk_take(struct registry *r, struct registry_item *item_out)
{
    struct walk *walk = &r->walk;
    while (walk->taken.next == walk->taken.count && walk->shard < SHARD_COUNT) {
        struct table *table = atomic_load_explicit(&r->shards[walk->shard], memory_order_relaxed);
        walk->shard++;
        for_each_slot(table, note_taken, r);
    }
    struct walk_queue *queue = &walk->taken;
    if (queue->next == queue->count) {
        walk_freeze(walk);
        queue = &walk->late;
    }
    if (walk->failed || queue->next == queue->count)
        return false;
    *item_out = queue->items[queue->next++];
    return true;
}

static bool known_to_be_gone(const struct registry_item *item)
{
    return item->entry && (atomic_load(&item->entry->state) & ENTRY_GONE);
}

int registry_walk_next(struct registry *r, struct registry_item *item_out)
{
    for (;;) {
        pthread_mutex_lock(&r->lock);
        bool taken = walk_take(r, item_out);
        bool failed = r->walk.failed;
        pthread_mutex_unlock(&r->lock);
        if (failed && taken)
            item_unpin(item_out);
        if (failed)
            return -ENOMEM;
        if (!taken)
            return 0;
        if (!known_to_be_gone(item_out))
            break;
        item_unpin(item_out);
    }
    /* Cleared before the bits are read: see entry_mark_dirty(). */
    if (item_out->entry)
        item_out->dirty = atomic_fetch_and(&item_out->entry->state, ~ENTRY_DIRTY) & ENTRY_DIRTY;
    atomic_thread_fence(memory_order_seq_cst); /* the saver's loads of words are relaxed */
    return 1;
}

void registry_walk_release(struct registry *r, struct registry_item *item)
{
    (void)r;
    item_unpin(item);
}

void registry_walk_end(struct registry *r)
{
    pthread_mutex_lock(&r->lock);
    queue_drop(&r->walk.taken);
    queue_drop(&r->walk.late);
    r->walk.active = false;
    pthread_mutex_unlock(&r->lock);
}
