#include "alloc_countdown.h"

#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size) __attribute__((weak)); /* not every program wraps it */
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static bool armed, failed, always;
static size_t left;

void alloc_countdown_start(size_t n)
{
    armed = true;
    failed = always = false;
    left = n;
}

void alloc_exhausted_start(void)
{
    alloc_countdown_start(0);
    always = true;
}

bool alloc_countdown_stop(void)
{
    armed = false;
    return failed;
}

static bool fails_now(void)
{
    if (!armed || (failed && !always))
        return false;
    failed = always || left-- == 0;
    return failed;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails_now() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails_now() ? NULL : __real_aligned_alloc(alignment, size);
}
