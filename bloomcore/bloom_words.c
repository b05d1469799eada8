/* Random bits of a filter larger than the cache cost one TLB miss each with 4 KiB pages; on huge pages batched queries
 * are half as fast again. Transparent huge pages need a mapping aligned to 2 MiB, so a little more is mapped and the
 * ends are given back. The mapping reserves no swap: a filter of 10 GB may be created on any machine and takes what it
 * uses. */
#include "bloom_words.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE (UINT64_C(2) << 20)

static size_t mapped_length(uint64_t nwords)
{
    const uint64_t page = 4096; /* munmap rounds up to larger pages by itself */

    return (size_t)((nwords * 8 + page - 1) / page * page);
}

static void *map_aligned(size_t len)
{
    size_t slack = (size_t)HUGE_PAGE;
    char *raw = mmap(NULL, len + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (raw == MAP_FAILED)
        return NULL;

    size_t lead = (size_t)(-(uintptr_t)raw & (HUGE_PAGE - 1));
    if (lead > 0)
        munmap(raw, lead);
    if (slack > lead)
        munmap(raw + lead + len, slack - lead);
#ifdef MADV_HUGEPAGE
    madvise(raw + lead, len, MADV_HUGEPAGE); /* a wish: without huge pages everything works, only slower */
#endif
    return raw + lead;
}

_Atomic uint64_t *bloom_words_alloc(uint64_t nwords)
{
    if (nwords * 8 >= BLOOM_MAPPED_BYTES)
        return map_aligned(mapped_length(nwords));
    return calloc((size_t)nwords, sizeof(_Atomic uint64_t));
}

void bloom_words_free(_Atomic uint64_t *words, uint64_t nwords)
{
    if (!words)
        return;
    if (nwords * 8 >= BLOOM_MAPPED_BYTES)
        munmap((void *)words, mapped_length(nwords));
    else
        free((void *)words);
}
