/* alloc: arrays that double, cache lines, memory for keys. Thread: any, on distinct objects. */
#pragma once

#include <errno.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* An array, which may be NULL, with room for one more than `count` elements of `each` bytes; `size` is its room in
 * elements. NULL: no memory, and nothing has changed. */
static inline void *grow_array(void *array, size_t count, size_t *size, size_t each)
{
    if (count < *size)
        return array;
    void *larger = realloc(array, (*size ? 2 * *size : 16) * each);
    *size = larger ? (*size ? 2 * *size : 16) : *size;
    return larger;
}

/* grow_array() of a variable, which keeps its value if there is no memory. 0 or -ENOMEM. */
#define GROW(array, count, size)                                                \
    __extension__({                                                             \
        void *grown_ = grow_array((array), (count), &(size), sizeof(*(array))); \
        if (grown_)                                                             \
            (array) = grown_;                                                   \
        grown_ ? 0 : -ENOMEM;                                                   \
    })

/* ---- data that one thread writes often shares no cache line with data that others use. Structs with members that are
 * aligned to CACHE_LINE come from cache_lines_alloc(). ---- */

#define CACHE_LINE 64

/* Zeroed memory that begins with a cache line, for free(). `size`: of a type that is aligned so. NULL: no memory. */
static inline void *cache_lines_alloc(size_t size)
{
    void *memory = aligned_alloc(CACHE_LINE, size);
    return memory ? memset(memory, 0, size) : NULL;
}

/* ---- memory for keys: pages of its own, which core dumps leave out, erased when they are given back ---- */

/* Zero bytes, `len` of them, in whole pages; NULL without memory. */
static inline void *secret_alloc(size_t len)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    (void)madvise(at, len, MADV_DONTDUMP);
    return at;
}

/* `len` as requested. NULL is fine. */
static inline void secret_free(void *at, size_t len)
{
    if (!at)
        return;
    explicit_bzero(at, len);
    munmap(at, len);
}
