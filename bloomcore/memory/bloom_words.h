/* bloom_words: zeroed memory for the bits of layers that are not small. Internal to bloomcore.
 *
 * In a filter larger than the cache each random bit costs a TLB miss with pages of 4 KiB. On huge pages of 2 MiB
 * batched queries are twice as fast. But the first touch of a huge page zeroes 2 MiB: 0.1 ms, and 5 ms where the host
 * of a virtual machine must find the memory. The first thousand adds to a new filter of 4 GB would touch all of its
 * 2000 pages. So words start on small pages, whose first touch costs a microsecond, or ten.
 *
 * A background thread moves a layer to huge pages when its first filling is over or has paused (bloom_settle.h). It
 * does not begin earlier. It would compete for the host's memory with adds that touch small pages for the first time,
 * and the filling would take twice as long.
 *
 * A layer with less than one item for each 2 MiB stays on small pages, and takes one of these for each of its bits.
 * Reading takes no memory: the kernel maps its page of zeros.
 *
 * Thread: any. */
#ifndef BLOOMERY_BLOOM_WORDS_H
#define BLOOMERY_BLOOM_WORDS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_pages.h"
#include "bloom_types.h"
#include "lock.h"

struct bloom_layer;

/* From this size on, words have a mapping of their own and begin BLOOM_ROOM_HEAD bytes after the beginning of a huge
 * page. From BLOOM_PAGES_MIN on, they are runs of pages that share mappings (bloom_pages.h). Smaller ones come from the
 * heap. */
#define BLOOM_MAPPED_BYTES BLOOM_ROOM_MIN_BYTES

/* The sources of words, and the mappings on small pages. */
struct bloom_maps {
    const struct bloom_memory *memory; /* the source of all words; NULL: the heap and mappings */
    struct bloom_pages pages;          /* layers of medium size; its lock is of the ring, too */
    pthread_cond_t idle;               /* signalled when a mapping is no longer busy */
    struct bloom_map *first;           /* ring; NULL: none */
    size_t n;                          /* in the ring */
};

void bloom_maps_init(struct bloom_maps *maps, const struct bloom_memory *memory);
void bloom_maps_deinit(struct bloom_maps *maps);

/* Allocates `nwords` zero words (1..BLOOM_MAX_WORDS) for a layer of the filter, aligned to at least 8 bytes; NULL
 * without memory. Words of at least BLOOM_MAPPED_BYTES cost little but address space until they are written. The caller
 * frees them before `layer` and `filter`. */
_Atomic uint64_t *bloom_words_alloc(struct bloom_maps *maps, const struct bloom_filter *filter,
                                    const struct bloom_layer *layer, uint64_t nwords);

/* `nwords` as given to bloom_words_alloc(). NULL is fine. Takes about 0.1 ms per megabyte in use. */
void bloom_words_free(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* As `room` of bloom_layer_view; NULL for words that are not mapped on their own. */
unsigned char *bloom_words_room(const struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* For words of which few will be written: they stay on small pages. */
void bloom_words_stay(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* For words that will all be written soon, by a thread that can wait: huge pages from the start. Returns the new place
 * of the words. Words of less than BLOOM_MAPPED_BYTES may have moved: they must all be zero still, unless this has been
 * called for them before, and no other thread may use them. */
_Atomic uint64_t *bloom_words_fill(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

#endif
