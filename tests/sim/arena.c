#include "arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES ((size_t)512 << 20)
#define CLASSES     32 /* powers of two */
#define SMALLEST    5

struct block {
    size_t class;
    struct block *next;
};

static struct arena {
    size_t used;
    struct block *unused[CLASSES];
} * arena;

void arena_create(void)
{
    arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) {
        perror("arena");
        abort();
    }
    arena_empty();
}

void arena_empty(void)
{
    *arena = (struct arena){.used = sizeof(*arena)};
}

static size_t class_of(size_t size)
{
    size_t class = SMALLEST;
    while (((size_t)1 << class) < size + sizeof(struct block))
        class ++;
    return class;
}

void *arena_malloc(size_t size)
{
    size_t class = class_of(size);
    struct block *block = arena->unused[class];
    if (block) {
        arena->unused[class] = block->next;
    } else {
        if (arena->used + ((size_t)1 << class) > ARENA_BYTES) {
            fprintf(stderr, "arena: full\n");
            abort();
        }
        block = (struct block *)(void *)((char *)arena + arena->used);
        arena->used += (size_t)1 << class;
    }
    *block = (struct block){.class = class};
    return block + 1;
}

void *arena_calloc(size_t n, size_t size)
{
    return memset(arena_malloc(n * size), 0, n * size);
}

void arena_free(void *memory)
{
    struct block *block = memory;
    if (!memory)
        return;
    block--;
    block->next = arena->unused[block->class];
    arena->unused[block->class] = block;
}

void *arena_realloc(void *old, size_t size)
{
    struct block *block = old;
    if (old && class_of(size) == block[-1].class)
        return old;
    void *memory = arena_malloc(size);
    if (old) {
        size_t had = ((size_t)1 << block[-1].class) - sizeof(struct block);
        memcpy(memory, old, had < size ? had : size);
        arena_free(old);
    }
    return memory;
}

char *arena_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(arena_malloc(size), text, size);
}
