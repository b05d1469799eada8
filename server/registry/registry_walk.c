#include "registry_walk.h"

#include <errno.h>

#include "registry_internal.h"
#include "lock.h"

void registry_walk_begin(struct registry *r)
{
    lock_take(&r->lock);
    r->walk = (struct walk){.active = true};
    lock_give(&r->lock);
}

void registry_walk_on_freeze(struct registry *r, void (*fn)(void *ctx), void *ctx)
{
    lock_take(&r->lock);
    r->walk.on_freeze = fn;
    r->walk.on_freeze_ctx = ctx;
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
    bool taken;
    while (!(taken = walk_next_taken(&r->walk, note_out)) && take_shard(r))
        ;
    if (!taken) {
        walk_freeze(&r->walk);
        taken = walk_next_noted(&r->walk, note_out);
    }
    if (taken && note_out->owner) {
        atomic_fetch_or(&note_out->owner->state, ENTRY_WALKED);
        atomic_fetch_and(&note_out->owner->state, ~ENTRY_TAKEN);
    }
    return taken;
}

int registry_walk_next(struct registry *r, struct registry_item *item_out)
{
    struct walk_note note;
    lock_take(&r->lock);
    bool taken = take_next(r, &note);
    bool failed = r->walk.failed;
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
    lock_take(&r->lock);
    walk_end(&r->walk);
    lock_give(&r->lock);
}
