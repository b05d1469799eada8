/* walk_notes: the last states of filters that have changed after a walk (walk.h), found by id. Internal to the
 * registry.
 *
 * The notes are in libc's search tree, which unlike a hash table is never moved as a whole under the mutex. It has its
 * own source file because <search.h> has a struct entry, too.
 *
 * Lifetime: a NULL pointer is an empty tree; the owner empties it in the end. Thread: under the registry's mutex. */
#ifndef BLOOMERY_WALK_NOTES_H
#define BLOOMERY_WALK_NOTES_H

#include <stdint.h>

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

#endif
