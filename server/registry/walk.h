/* walk: the entries that a walk over the registry (registry_walk.h) still must yield. Internal to the registry.
 *
 * The walk takes the places, the shards of all databases in one order, one after another. It yields the entries of a
 * place without the mutex. Changes at places that it has taken are noted; a place still to come needs no notes. So a
 * rename from a later place into an earlier one is not lost, as it would be in a plain sweep.
 *
 * After the last place the walk freezes: it notes no later changes, and the existing notes bring the yielded items up
 * to the state of the registry at that moment. So a walk ends even while other threads are busy.
 *
 * An entry has one note, which its next change updates, and none after its deletion: clients cannot make the notes
 * outgrow the registry.
 *
 * Lifetime: zeroed storage to registry_walk_end(). Thread: under the registry's mutex. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- walk notes ---- */

/* The last states of filters that have changed after a walk (walk.h), found by id. Internal to the
 * registry.
 *
 * The notes are in libc's search tree, which unlike a hash table is never moved as a whole under the mutex. It has its
 * own source file because <search.h> has a struct entry, too.
 *
 * Lifetime: a NULL pointer is an empty tree; the owner empties it in the end. Thread: under the registry's mutex. */

struct entry;

/* The state of a filter, to be yielded. The writer of a note pins the entry and the holder of its name. */
struct walk_note {
    uint64_t id;
    struct entry *owner; /* NULL: a new note, or the filter is gone */
    struct entry *holder;
    int64_t expires_ms;
};

struct walk_note *walk_notes_find(void *const *notes, uint64_t id); /* NULL: none */
struct walk_note *walk_notes_get(void **notes, uint64_t id);        /* finds or creates it; NULL without memory */
struct walk_note *walk_notes_any(void *notes);                      /* NULL: none are left */
void walk_notes_remove(void **notes, struct walk_note *note);       /* and frees it */

/* ---- the walk ---- */

/* Pinned entries of the last place that are not yielded yet, in order. */
struct walk_queue {
    struct walk_note *notes; /* notes without an id were deleted meanwhile */
    size_t next;
    size_t count;
    size_t size;
};

struct walk {
    bool active;             /* begun and not yet frozen: changes are noted */
    bool failed;             /* a change could not be noted: the walk is incomplete */
    unsigned place;          /* the next to be taken */
    struct walk_queue taken; /* entries of the last place */
    void *late;              /* walk notes: entries that have changed after the walk, each once */
    uint64_t *deleted;       /* ids that were yielded and then deleted */
    size_t ndeleted, deleted_size;
    void (*on_freeze)(void *ctx);
    void *on_freeze_ctx;
};

/* ---- changes of entries that are in the registry ---- */

void walk_added(struct walk *walk, unsigned place, struct entry *holder);
void walk_changed(struct walk *walk, struct entry *holder); /* its name or its expiry */
void walk_deleted(struct walk *walk, struct entry *owner);
