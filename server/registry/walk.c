#include "walk.h"

#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "entry_internal.h"
#include "alloc.h"
#include "lock.h"
#include "registry_internal.h"
#include "registry_walk.h"

static struct walk_note note_of(struct entry *owner, struct entry *holder)
{
    entry_pin(owner);
    if (holder != owner)
        entry_pin(holder);
    return (struct walk_note){owner->id, owner, holder, entry_expires_ms(holder)};
}

/* Releases the pins of a yielded state; NULL is fine. Thread: any. */
static void walk_unpin(struct entry *owner, struct entry *holder)
{
    if (!owner)
        return;
    entry_unpin(owner);
    if (holder != owner)
        entry_unpin(holder);
}

/* ---- the place that was taken last ---- */

/* Puts an entry of the place that the walk takes into the queue. */
static void walk_take(struct walk *walk, struct entry *holder)
{
    struct entry *owner = entry_owner(holder);
    struct walk_queue *queue = &walk->taken;
    if (queue->next == queue->count)
        queue->next = queue->count = 0;
    if (GROW(queue->notes, queue->count, queue->size) != 0) {
        walk->failed = true;
        return;
    }
    queue->notes[queue->count++] = note_of(owner, holder);
    atomic_fetch_or(&owner->state, ENTRY_TAKEN);
}

static void queue_forget(struct walk_queue *queue, struct entry *owner)
{
    size_t i = queue->next;
    while (i < queue->count && queue->notes[i].owner != owner)
        i++;
    CHECK(i < queue->count);
    walk_unpin(owner, queue->notes[i].holder);
    queue->notes[i] = (struct walk_note){0};
}

/* The next state to be yielded, with its pins. `owner` is NULL for a deleted filter. False: none left. */
static bool walk_next_taken(struct walk *walk, struct walk_note *note_out)
{
    struct walk_queue *queue = &walk->taken;
    while (queue->next < queue->count) {
        *note_out = queue->notes[queue->next++];
        if (note_out->owner)
            return true;
    }
    return false;
}

/* ---- changes after the walk ---- */

static void drop_note(struct walk *walk, struct walk_note *note)
{
    walk_unpin(note->owner, note->holder);
    walk_notes_remove(&walk->late, note);
}

/* Noted at every place: an earlier state of the filter may have been noted or yielded. */
void walk_changed(struct walk *walk, struct entry *holder)
{
    if (!walk->active)
        return;
    struct entry *owner = entry_owner(holder);
    struct walk_note *note = walk_notes_get(&walk->late, owner->id);
    if (!note) {
        walk->failed = true;
        return;
    }
    struct walk_note before = *note;
    *note = note_of(owner, holder);
    walk_unpin(before.owner, before.holder);
}

void walk_added(struct walk *walk, unsigned place, struct entry *holder)
{
    if (place < walk->place)
        walk_changed(walk, holder);
}

/* Releases the entry, so that its memory is freed immediately. Its deletion is yielded only if the entry was: a client
 * that creates and deletes filters again and again leaves no notes. */
void walk_deleted(struct walk *walk, struct entry *owner)
{
    if (!walk->active)
        return;
    uint32_t state = atomic_fetch_and(&owner->state, ~ENTRY_TAKEN);
    if (state & ENTRY_TAKEN)
        queue_forget(&walk->taken, owner);
    struct walk_note *note = walk_notes_find(&walk->late, owner->id);
    if (note)
        drop_note(walk, note);
    if (!(state & ENTRY_WALKED))
        return;
    if (GROW(walk->deleted, walk->ndeleted, walk->deleted_size) == 0)
        walk->deleted[walk->ndeleted++] = owner->id;
    else
        walk->failed = true;
}

/* ---- the calls of registry_walk.h ---- */

void registry_walk_begin(struct registry *r, void (*on_freeze)(void *ctx), void *ctx)
{
    lock_take(&r->lock);
    CHECK(!r->walk.active && !r->walk.late); /* one at a time: a save would miss filters */
    r->walk = (struct walk){.active = true, .on_freeze = on_freeze, .on_freeze_ctx = ctx};
    lock_give(&r->lock);
}

/* Takes the next shard. False: none left. */
static bool take_shard(struct registry *r)
{
    struct walk *walk = &r->walk;
    while (walk->place < PLACES && !registry_space(r, walk->place / SHARD_COUNT))
        walk->place += SHARD_COUNT;
    if (walk->place == PLACES)
        return false;
    struct keyspace *space = registry_space(r, walk->place / SHARD_COUNT);
    const struct table *table = atomic_load_explicit(&space->shards[walk->place++ % SHARD_COUNT], memory_order_relaxed);
    uint64_t at = 0;
    for (struct entry *holder; (holder = table_sweep(table, &at));)
        if (!registry_is_over(r, holder))
            walk_take(walk, holder);
    return true;
}

/* Takes the next state; false when there is none. Under the mutex. */
static bool take_next(struct registry *r, struct walk_note *note_out)
{
    struct walk *walk = &r->walk;
    while (!walk_next_taken(walk, note_out)) {
        if (take_shard(r))
            continue;
        bool freezes = walk->active && walk->on_freeze;
        walk->active = false;
        if (freezes)
            walk->on_freeze(walk->on_freeze_ctx);
        struct walk_note *late = walk_notes_any(walk->late);
        if (walk->ndeleted) {
            *note_out = (struct walk_note){.id = walk->deleted[--walk->ndeleted]};
            return true;
        }
        if (!late)
            return false;
        *note_out = *late;
        walk_notes_remove(&walk->late, late);
        break;
    }
    atomic_fetch_or(&note_out->owner->state, ENTRY_WALKED);
    atomic_fetch_and(&note_out->owner->state, ~ENTRY_TAKEN);
    return true;
}

int registry_walk_next(struct registry *r, struct registry_item *item_out)
{
    struct walk_note note;
    lock_take(&r->lock);
    bool taken = take_next(r, &note), failed = r->walk.failed;
    lock_give(&r->lock);
    if (failed && taken)
        walk_unpin(note.owner, note.holder);
    if (failed)
        return -ENOMEM;
    if (!taken)
        return 0;
    *item_out = (struct registry_item){
        .id = note.id, .entry = note.owner, .expires_ms = note.expires_ms, .holder = note.holder};
    if (note.owner) {
        item_out->name = entry_name(note.holder);
        /* Cleared before the bits are read: see entry_mark_dirty(). */
        item_out->dirty = atomic_fetch_and(&note.owner->state, ~ENTRY_DIRTY) & ENTRY_DIRTY;
    }
    atomic_thread_fence(memory_order_seq_cst); /* the saver's loads of words are relaxed */
    return 1;
}

void registry_walk_release(struct registry_item *item)
{
    walk_unpin(item->entry, item->holder);
}

void registry_walk_end(struct registry *r)
{
    struct walk *walk = &r->walk;
    struct walk_note taken;
    lock_take(&r->lock);
    while (walk_next_taken(walk, &taken)) {
        atomic_fetch_and(&taken.owner->state, ~ENTRY_TAKEN);
        walk_unpin(taken.owner, taken.holder);
    }
    for (struct walk_note *note; (note = walk_notes_any(walk->late));)
        drop_note(walk, note);
    free(walk->taken.notes);
    free(walk->deleted);
    *walk = (struct walk){0};
    lock_give(&r->lock);
}
