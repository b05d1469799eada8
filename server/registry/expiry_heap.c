#include "expiry_heap.h"

#include <stdlib.h>

#include "entry_internal.h"
#include "grow.h"

#define PAGE_NODES 1024u /* 16 kB */

/* Node i is at position i + 3, so that the four children of a node share a cache line. */
#define SHIFT 3u

static struct expiry_node *node_at(const struct expiry_heap *heap, size_t i)
{
    return &heap->pages[(i + SHIFT) / PAGE_NODES][(i + SHIFT) % PAGE_NODES];
}

static void set_node(struct expiry_heap *heap, size_t i, struct expiry_node node)
{
    *node_at(heap, i) = node;
    entry_alias(node.alias)->place = (uint32_t)i + 1;
}

size_t expiry_heap_bytes(const struct expiry_heap *heap)
{
    return heap->npages * PAGE_NODES * sizeof(struct expiry_node) + heap->pages_size * sizeof(*heap->pages);
}

void expiry_heap_deinit(struct expiry_heap *heap)
{
    for (size_t i = 0; i < heap->npages; i++)
        free(heap->pages[i]);
    free(heap->pages);
    *heap = (struct expiry_heap){0};
}

bool expiry_heap_reserve(struct expiry_heap *heap)
{
    if (heap->count >= UINT32_MAX - 1)
        return false;
    if ((heap->count + SHIFT) / PAGE_NODES < heap->npages)
        return true;
    if (GROW(heap->pages, heap->npages, heap->pages_size) != 0)
        return false;
    struct expiry_node *page = aligned_alloc(64, PAGE_NODES * sizeof(*page));
    if (!page)
        return false;
    heap->pages[heap->npages++] = page;
    return true;
}

/* Puts the node at i or above, where it belongs. */
static void sift_up(struct expiry_heap *heap, size_t i, struct expiry_node node)
{
    while (i > 0) {
        size_t parent = (i - 1) / 4;
        if (node_at(heap, parent)->expires_ms <= node.expires_ms)
            break;
        set_node(heap, i, *node_at(heap, parent));
        i = parent;
    }
    set_node(heap, i, node);
}

/* Puts the node at i or below, where it belongs. */
static void sift_down(struct expiry_heap *heap, size_t i, struct expiry_node node)
{
    for (;;) {
        size_t child = 4 * i + 1, least = child;
        if (child >= heap->count)
            break;
        for (size_t c = child + 1; c < child + 4 && c < heap->count; c++)
            if (node_at(heap, c)->expires_ms < node_at(heap, least)->expires_ms)
                least = c;
        if (node_at(heap, least)->expires_ms >= node.expires_ms)
            break;
        set_node(heap, i, *node_at(heap, least));
        i = least;
    }
    set_node(heap, i, node);
}

static void place_node(struct expiry_heap *heap, size_t i, struct expiry_node node)
{
    if (i > 0 && node_at(heap, (i - 1) / 4)->expires_ms > node.expires_ms)
        sift_up(heap, i, node);
    else
        sift_down(heap, i, node);
}

void expiry_heap_put(struct expiry_heap *heap, struct entry *alias, int64_t expires_ms)
{
    uint32_t place = entry_alias(alias)->place;
    size_t i = place ? place - 1 : heap->count++;
    if (place)
        heap->sum_ms -= (uint64_t)node_at(heap, i)->expires_ms;
    heap->sum_ms += (uint64_t)expires_ms;
    place_node(heap, i, (struct expiry_node){expires_ms, alias});
}

/* Keeps one spare page, because the next name with a time to live would need it again. */
static void drop_pages(struct expiry_heap *heap)
{
    size_t needed = (heap->count + SHIFT) / PAGE_NODES + 2;
    while (heap->npages > needed)
        free(heap->pages[--heap->npages]);
}

void expiry_heap_remove(struct expiry_heap *heap, struct entry *alias)
{
    uint32_t place = entry_alias(alias)->place;
    if (!place)
        return;
    entry_alias(alias)->place = 0;
    heap->sum_ms -= (uint64_t)node_at(heap, place - 1)->expires_ms;
    struct expiry_node last = *node_at(heap, --heap->count);
    if (last.alias != alias)
        place_node(heap, place - 1, last);
    drop_pages(heap);
}

void expiry_heap_replace(struct expiry_heap *heap, struct entry *from, struct entry *to)
{
    uint32_t place = entry_alias(from)->place;
    if (!place)
        return;
    entry_alias(from)->place = 0;
    set_node(heap, place - 1, (struct expiry_node){node_at(heap, place - 1)->expires_ms, to});
}

struct entry *expiry_heap_first(const struct expiry_heap *heap, int64_t *expires_ms_out)
{
    if (!heap->count)
        return NULL;
    *expires_ms_out = node_at(heap, 0)->expires_ms;
    return node_at(heap, 0)->alias;
}
