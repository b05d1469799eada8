#include "alloc_fault.h"

#include <stdio.h>
#include <stdlib.h>

#define BLOCKS_MAX 256

void *__real_realloc(void *old, size_t size);
void __real_free(void *block);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *block);

static void *blocks[BLOCKS_MAX];
static size_t calls;
static int fail_at = -1;

void alloc_fault_at(int n)
{
    fail_at = n;
    calls = 0;
}

size_t alloc_calls(void)
{
    return calls;
}

size_t alloc_live(void)
{
    size_t n = 0;

    for (size_t i = 0; i < BLOCKS_MAX; i++)
        n += blocks[i] != NULL;
    return n;
}

/* Blocks of other allocators are not in the table and not counted. */
static void **slot_of(void *block)
{
    for (size_t i = 0; i < BLOCKS_MAX; i++)
        if (blocks[i] == block)
            return &blocks[i];
    return NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
    size_t call = calls++;

    if (fail_at >= 0 && call >= (size_t)fail_at)
        return NULL;

    void **slot = slot_of(old); /* of NULL: a free slot */
    if (slot == NULL) {
        fprintf(stderr, "alloc_fault: more than %d blocks, or a block that is not realloc's\n", BLOCKS_MAX);
        abort();
    }
    void *block = __real_realloc(old, size);
    if (block != NULL)
        *slot = block;
    return block;
}

void __wrap_free(void *block)
{
    void **slot = block != NULL ? slot_of(block) : NULL;

    if (slot != NULL)
        *slot = NULL;
    __real_free(block);
}
