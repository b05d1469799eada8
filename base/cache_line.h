/* cache_line: data that one thread writes often shares no cache line with data that others use. Structs with members
 * that are aligned to CACHE_LINE come from cache_lines_alloc(). Thread: any. */
#ifndef BLOOMERY_CACHE_LINE_H
#define BLOOMERY_CACHE_LINE_H

#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_LINE 64

/* Zeroed memory that begins with a cache line, for free(). `size`: of a type that is aligned so. NULL: no memory. */
static inline void *cache_lines_alloc(size_t size)
{
    void *memory = aligned_alloc(CACHE_LINE, size);
    return memory ? memset(memory, 0, size) : NULL;
}

#endif
