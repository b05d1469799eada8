/* bloom_pages: zeroed memory for the words of layers of medium size; several share a huge page. Internal to bloomcore.
 *
 * A query of a layer on pages of 4 KiB costs a TLB miss for each word. Layers of less than 2 MiB fill no huge page
 * alone, and the heap puts them on small ones. Here they are runs of small pages in regions of 16 MiB, of two kinds:
 *
 * Loose: small pages, each of which is memory only when it is written to. For layers that are empty, as a filter with
 * few items may have a hundred times as many bits.
 *
 * Dense: huge pages. For layers all of whose words are written at once: filters that are loaded, restored, copied or
 * merged, those of SSTables. Neighbours that are freed leave holes. Where runs take less than half of 2 MiB, the rest
 * goes back to the system. So a dense region has at most twice the memory that its runs take, and less than 2 MiB at
 * its end.
 *
 * A region without runs is unmapped. A region is small enough for a limited address space (ulimit -v). It is one of the
 * kernel's mappings, and the kernel allows 65,530.
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lock.h"

/* Runs have from MIN to below MAX bytes. Below MIN whole pages would waste more than a sixteenth. */
#define BLOOM_PAGES_MIN ((size_t)64 << 10)
#define BLOOM_PAGES_MAX ((size_t)2 << 20)

enum bloom_pages_kind {
    BLOOM_PAGES_LOOSE,
    BLOOM_PAGES_DENSE,
};

struct bloom_region;

struct bloom_pages {
    struct lock lock;
    struct bloom_region *first[2]; /* by kind; NULL: none */
    size_t page;                   /* bytes of a small page, the unit of runs */
};

void bloom_pages_init(struct bloom_pages *pages);
void bloom_pages_deinit(struct bloom_pages *pages); /* all runs must have been freed */

/* A run of `bytes` zero bytes that begins at a page; NULL without memory. The caller frees it. */
void *bloom_pages_alloc(struct bloom_pages *pages, size_t bytes, enum bloom_pages_kind kind);

/* `bytes` as at the allocation. 0.1 ms per megabyte in use. */
void bloom_pages_free(struct bloom_pages *pages, void *run, size_t bytes);

enum bloom_pages_kind bloom_pages_kind_of(const void *run);
