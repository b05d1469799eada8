/* secret: memory for keys: pages of its own, which core dumps leave out, erased when they are given back. Thread: any.
 */
#ifndef BLOOMERY_SECRET_H
#define BLOOMERY_SECRET_H

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

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

#endif
