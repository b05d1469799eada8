#include "walk.h"

#include <search.h>
#include <stdlib.h>

static int compare_ids(const void *a, const void *b)
{
    uint64_t first = ((const struct walk_note *)a)->id, second = ((const struct walk_note *)b)->id;
    return (first > second) - (first < second);
}

struct walk_note *walk_notes_find(void *const *notes, uint64_t id)
{
    struct walk_note *const *node = tfind(&(struct walk_note){.id = id}, notes, compare_ids);
    return node ? *node : NULL;
}

struct walk_note *walk_notes_get(void **notes, uint64_t id)
{
    struct walk_note *note = walk_notes_find(notes, id);
    if (note || !(note = calloc(1, sizeof(*note))))
        return note;
    note->id = id;
    if (tsearch(note, notes, compare_ids))
        return note;
    free(note);
    return NULL;
}

struct walk_note *walk_notes_any(void *notes)
{
    return notes ? *(struct walk_note **)notes : NULL;
}

void walk_notes_remove(void **notes, struct walk_note *note)
{
    tdelete(note, notes, compare_ids);
    free(note);
}
