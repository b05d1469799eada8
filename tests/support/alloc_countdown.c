#include "alloc_countdown.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
    __attribute__((weak)); /* some programs do not wrap it */
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);

static atomic_bool armed, failed, always;
static _Atomic size_t left;
static _Thread_local bool spared;

void alloc_countdown_start(size_t n)
{
    failed = false;
    always = false;
    left = n;
    armed = true;
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

void alloc_countdown_spare(bool on)
{
    spared = on;
}

static bool fails_now(void)
{
    if (!armed || spared || (failed && !always))
        return false;
    if (!always && left-- != 0)
        return false;
    failed = true;
    return true;
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

void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    return fails_now() ? MAP_FAILED : __real_mmap(addr, len, prot, flags, fd, offset);
}
