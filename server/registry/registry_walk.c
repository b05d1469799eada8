/* The walk takes the shards one after another, each with its few thousand entries under the mutex, and yields them
 * without the mutex. Entries put into a shard that was taken are noted; a shard still to come needs no notes. So a
 * rename from a later shard into one that was taken is not lost, as it would be in a plain sweep.
 *
 * When the last shard is yielded the walk freezes: later changes are not noted, and the existing notes bring the
 * yielded items up to the state of the registry at that moment. So a walk ends, however busy other threads are.
 *
 * An entry has one note, which its next change updates, and none after its deletion: clients cannot make the notes
 * outgrow the registry. */
#include <errno.h>
#include <stdlib.h>

#include "registry_internal.h"
#include "walk_notes.h"

static void pin_both(struct entry *owner, struct entry *holder)
{
    entry_pin(owner);
    if (holder != owner)
        entry_pin(holder);
}

static void unpin_both(struct entry *owner, struct entry *holder)
{
    entry_unpin(owner);
    if (holder != owner)
        entry_unpin(holder);
}

static void item_unpin(struct registry_item *item)
{
    if (item->entry)
        unpin_both(item->entry, item->holder);
}

/* ---- the last shard ---- */

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

static struct registry_item item_of(struct entry *owner, struct entry *holder, int64_t expires_ms)
{
    return (struct registry_item){
        .id = owner->id, .entry = owner, .name = entry_name(holder), .expires_ms = expires_ms, .holder = holder};
}

static void note_taken(struct registry *r, struct entry *holder)
{
    if (registry_is_over(r, holder))
        return;
    struct entry *owner = entry_owner(holder);
    if (!queue_push(&r->walk.taken, item_of(owner, holder, entry_expires_ms(holder)))) {
        r->walk.failed = true;
        return;
    }
    pin_both(owner, holder);
    atomic_fetch_or(&owner->state, ENTRY_TAKEN);
}

static void queue_forget(struct walk_queue *queue, struct entry *owner)
{
    size_t i = queue->next;
    while (queue->items[i].entry != owner)
        i++;
    item_unpin(&queue->items[i]);
    queue->items[i] = (struct registry_item){0};
}

static void queue_drop(struct walk_queue *queue)
{
    for (size_t i = queue->next; i < queue->count; i++) {
        if (queue->items[i].entry)
            atomic_fetch_and(&queue->items[i].entry->state, ~ENTRY_TAKEN);
        item_unpin(&queue->items[i]);
    }
    free(queue->items);
    *queue = (struct walk_queue){0};
}

/* ---- changes behind the walk ---- */

static void drop_note(struct walk *walk, struct walk_note *note)
{
    unpin_both(note->owner, note->holder);
    walk_notes_remove(&walk->late, note);
}

/* Notes the present state of an entry that is in the registry. */
static void note_entry(struct registry *r, struct entry *holder)
{
    struct entry *owner = entry_owner(holder);
    struct walk_note *note = walk_notes_get(&r->walk.late, owner->id);
    if (!note) {
        r->walk.failed = true;
        return;
    }
    struct walk_note before = *note;
    pin_both(owner, holder);
    *note = (struct walk_note){owner->id, owner, holder, entry_expires_ms(holder)};
    if (before.owner)
        unpin_both(before.owner, before.holder);
}

static bool walk_has_passed(const struct registry *r, unsigned place)
{
    return r->walk.active && place < r->walk.shard;
}

void walk_note_added(struct registry *r, uint64_t hash, struct entry *holder)
{
    if (walk_has_passed(r, place_of_shard(hash)))
        note_entry(r, holder);
}

/* Noted in every shard: an earlier state of the filter may have been noted or yielded. */
void walk_note_changed(struct registry *r, struct entry *holder)
{
    if (r->walk.active)
        note_entry(r, holder);
}

static bool note_id_gone(struct walk *walk, uint64_t id)
{
    if (walk->ngone == walk->gone_size) {
        size_t size = walk->gone_size ? walk->gone_size * 2 : 64;
        uint64_t *ids = realloc(walk->gone, size * sizeof(*ids));
        if (!ids)
            return false;
        walk->gone = ids;
        walk->gone_size = size;
    }
    walk->gone[walk->ngone++] = id;
    return true;
}

/* Releases the entry, so that its memory is freed at once. Its deletion is yielded only if the entry was: a client that
 * creates and deletes filters again and again leaves no notes. */
void walk_note_gone(struct registry *r, struct entry *owner)
{
    struct walk *walk = &r->walk;
    if (!walk->active)
        return;
    uint32_t state = atomic_fetch_and(&owner->state, ~ENTRY_TAKEN);
    if (state & ENTRY_TAKEN)
        queue_forget(&walk->taken, owner);
    struct walk_note *note = walk_notes_find(&walk->late, owner->id);
    if (note)
        drop_note(walk, note);
    if ((state & ENTRY_WALKED) && !note_id_gone(walk, owner->id))
        walk->failed = true;
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

/* ---- the walk ---- */

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

/* Takes the next entry of a shard. False: there is no shard left. */
static bool take_from_shard(struct registry *r, struct registry_item *item_out)
{
    struct walk *walk = &r->walk;
    struct walk_queue *queue = &walk->taken;
    for (;;) {
        while (queue->next < queue->count) {
            *item_out = queue->items[queue->next++];
            if (item_out->entry)
                return true;
        }
        while (walk->shard < PLACES && !registry_space(r, walk->shard / SHARD_COUNT))
            walk->shard += SHARD_COUNT;
        if (walk->shard == PLACES)
            return false;
        struct keyspace *space = registry_space(r, walk->shard / SHARD_COUNT);
        struct table *table = atomic_load_explicit(&space->shards[walk->shard % SHARD_COUNT], memory_order_relaxed);
        walk->shard++;
        for_each_slot(table, note_taken, r);
    }
}

/* Takes the next note, in any order. False: there is none left. */
static bool take_note(struct walk *walk, struct registry_item *item_out)
{
    if (walk->ngone) {
        *item_out = (struct registry_item){.id = walk->gone[--walk->ngone]};
        return true;
    }
    struct walk_note *note = walk_notes_any(walk->late);
    if (!note)
        return false;
    *item_out = item_of(note->owner, note->holder, note->expires_ms); /* with its pins */
    walk_notes_remove(&walk->late, note);
    return true;
}

/* Takes the next item; false when there is none. Under the mutex. */
static bool walk_take(struct registry *r, struct registry_item *item_out)
{
    bool taken = take_from_shard(r, item_out);
    if (!taken) {
        walk_freeze(&r->walk);
        taken = take_note(&r->walk, item_out);
    }
    if (taken && item_out->entry) {
        atomic_fetch_or(&item_out->entry->state, ENTRY_WALKED);
        atomic_fetch_and(&item_out->entry->state, ~ENTRY_TAKEN);
    }
    return taken;
}

int registry_walk_next(struct registry *r, struct registry_item *item_out)
{
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
    r->walk.active = false;
    queue_drop(&r->walk.taken);
    for (struct walk_note *note; (note = walk_notes_any(r->walk.late));)
        drop_note(&r->walk, note);
    free(r->walk.gone);
    r->walk.gone = NULL;
    pthread_mutex_unlock(&r->lock);
}
