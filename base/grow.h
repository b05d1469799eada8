/* grow: room in an array that doubles. Thread: any, on distinct arrays. */
#ifndef BLOOMERY_GROW_H
#define BLOOMERY_GROW_H

#include <errno.h>
#include <stdlib.h>

/* The array, which may be NULL, with room for one more than `count` elements of `each` bytes; `size` is its room in
 * elements. NULL: no memory, and nothing has changed. */
static inline void *grow_array(void *array, size_t count, size_t *size, size_t each)
{
    if (count < *size)
        return array;
    void *larger = realloc(array, (*size ? 2 * *size : 16) * each);
    *size = larger ? (*size ? 2 * *size : 16) : *size;
    return larger;
}

/* The same for an array in a variable, which keeps its value without memory: 0 or -ENOMEM. */
#define GROW(array, count, size)                                                \
    __extension__({                                                             \
        void *grown_ = grow_array((array), (count), &(size), sizeof(*(array))); \
        if (grown_)                                                             \
            (array) = grown_;                                                   \
        grown_ ? 0 : -ENOMEM;                                                   \
    })

#endif
