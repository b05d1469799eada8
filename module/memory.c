#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "settings.h"

#define HUGE_PAGE   ((uintptr_t)2 << 20)
#define PROBE_BYTES ((size_t)1 << 18)   /* from this size on, a probe checks whether there is enough memory */
#define SMALL_BYTES ((uint64_t)1 << 20) /* too small for a read of INFO */

/* An allocator hands out and takes back untouched memory at no cost. */
static bool exists(size_t bytes)
{
    if (bytes < PROBE_BYTES || !engine.TryAlloc)
        return true;
    void *probe = engine.TryAlloc(bytes);
    engine.Free(probe);
    return probe != NULL;
}

/* Random bits of a filter beyond the cache cost a TLB miss each on small pages, and a fork copies an entry for each of
 * these. The first touch of a huge page zeroes 2 MiB. That takes less time than 512 small ones, but all at once: hence
 * a setting. It has an effect if the kernel is set to "madvise"; if it is set to "always", the engine has switched huge
 * pages off for its process. */
static void advise(void *memory, size_t bytes)
{
    uintptr_t from = ((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1),
              to = ((uintptr_t)memory + bytes) & ~(HUGE_PAGE - 1);
    if (memory && settings.huge_pages && from < to)
        (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
}

/* A change that a primary or a log has made is made here, too, or the values would differ from then on. So its memory
 * is the engine's own, which ends the process when there is none: the next start synchronises anew. */
void *memory_zeroed(size_t bytes)
{
    void *memory = NULL;
    if (engine.TryCalloc)
        memory = engine.TryCalloc(1, bytes);
    else if (exists(bytes))
        memory = engine.Calloc(1, bytes);
    if (!memory && memory_obeys())
        memory = engine.Calloc(1, bytes);
    advise(memory, bytes);
    return memory;
}

void memory_release(void *memory)
{
    engine.Free(memory);
}

const struct bloom_memory engine_memory = {.zeroed = memory_zeroed, .release = memory_release};

bool memory_obeys(void)
{
    return engine.GetContextFlags(NULL) & (ENGINE_CTX_REPLICA | ENGINE_CTX_LOADING | ENGINE_CTX_SYNCING);
}

/* The engine checks its maxmemory only before a command, and a filter may be larger than the remaining memory. Where a
 * policy removes keys, that makes room afterwards; otherwise nothing does. For small amounts its check is enough. */
static bool within_maxmemory(uint64_t bytes, struct errbuf *err)
{
    int no_limit = 0, unknown = 0;
    if (bytes < SMALL_BYTES || !engine.GetServerInfo || !engine.ServerInfoGetFieldUnsigned || !engine.FreeServerInfo)
        return true;
    struct engine_server_info *info = engine.GetServerInfo(NULL, "memory");
    unsigned long long limit = engine.ServerInfoGetFieldUnsigned(info, "maxmemory", &no_limit);
    unsigned long long used = engine.ServerInfoGetFieldUnsigned(info, "used_memory", &unknown);
    engine.FreeServerInfo(NULL, info);
    if (engine.GetContextFlags(NULL) & ENGINE_CTX_EVICTS)
        used = 0;
    if (no_limit || unknown || limit == 0 || (used <= limit && bytes <= limit - used))
        return true;
    return errbuf_fail(err, false, "%llu more bytes would make %llu in use, and maxmemory is %llu",
                       (unsigned long long)bytes, used + (unsigned long long)bytes, limit);
}

bool memory_allowed(uint64_t filter_bytes, uint64_t more_bytes, struct errbuf *err)
{
    uint64_t limit = (uint64_t)settings.max_filter_bytes;
    if (limit == 0 || filter_bytes <= limit)
        return within_maxmemory(more_bytes, err);
    return errbuf_fail(err, false, "the filter would need %llu bytes, the limit for one filter is %llu",
                       (unsigned long long)filter_bytes, (unsigned long long)limit);
}

bool memory_possible(uint64_t bytes, struct errbuf *err)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0 || bytes / (uint64_t)page <= (uint64_t)pages)
        return true;
    return errbuf_fail(err, false, "%llu bytes exceed the machine's memory", (unsigned long long)bytes);
}

bool memory_may_load(uint64_t filter_bytes, uint64_t more_bytes, struct errbuf *err)
{
    struct errbuf over = {""};
    if (!memory_possible(filter_bytes, err))
        return false;
    if (!memory_obeys())
        return memory_allowed(filter_bytes, more_bytes, err);
    if (memory_allowed(filter_bytes - more_bytes, 0, &over) && !memory_allowed(filter_bytes, 0, &over))
        engine.Log(NULL, "warning", "bloomery: it is loaded all the same: %s", over.text);
    return true;
}
