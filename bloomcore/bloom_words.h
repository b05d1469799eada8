/* bloom_words: zeroed memory for the bits of large layers. Internal to bloomcore.
 *
 * Random bits of a filter larger than the cache cost one TLB miss each with pages of 4 KiB; on huge pages of 2 MiB
 * batched queries are half as fast again. But the first touch of a huge page zeroes 2 MiB, 0.1 ms and up, and the first
 * thousand adds to a new filter of 4 GB touch all of its 2000 pages: whoever serves clients would stand still for a
 * second. So words start on small pages, whose first touch costs a microsecond. When a filter is in use, a thread in
 * the background first populates the small pages, which holds up nobody, and then makes them huge one by one, slowly,
 * because a page that is being copied is one that others wait for (bloom_maps_settle()).
 *
 * All that is five times the work of huge pages from the start. A new filter of moderate size is therefore given these ahead
 * of its use: the thread populates it at once. What has been populated and not been used is bounded, in total.
 *
 * Thread: any. */
#ifndef BLOOMERY_BLOOM_WORDS_H
#define BLOOMERY_BLOOM_WORDS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"

/* From this size on, words are mapped on their own, BLOOM_ROOM_HEAD bytes behind the beginning of a huge page; below, they come
 * from the heap. */
#define BLOOM_MAPPED_BYTES BLOOM_ROOM_MIN_BYTES

/* The mappings that are still on small pages, or that are populated ahead. */
struct bloom_maps {
    pthread_mutex_t lock;
    pthread_cond_t settled;  /* a mapping is no longer worked on */
    struct bloom_map *first; /* ring; NULL: none */
    uint64_t ahead;          /* bytes of those that are populated ahead, and have not been used */
    uint64_t ahead_limit;
    void (*wake)(void *ctx); /* NULL: nobody */
    void *wake_ctx;
};

void bloom_maps_init(struct bloom_maps *maps);
void bloom_maps_deinit(struct bloom_maps *maps);

/* As bloom_pool_set_ahead(). */
void bloom_maps_set_ahead(struct bloom_maps *maps, uint64_t bytes, void (*wake)(void *ctx), void *ctx);

/* `nwords` zero words (1..BLOOM_MAX_WORDS), aligned to 8 bytes or better, or NULL when there is no memory. Costs next
 * to nothing but address space until the words are touched, when they are at least BLOOM_MAPPED_BYTES. `ahead`: they are
 * hardly used at once, and may be populated before they are. */
_Atomic uint64_t *bloom_words_alloc(struct bloom_maps *maps, uint64_t nwords, bool ahead);

/* `nwords` as given to bloom_words_alloc(). NULL is fine. Takes about 0.1 ms per megabyte in use. */
void bloom_words_free(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* As `room` of bloom_layer_view; NULL for words that are not mapped on their own. */
unsigned char *bloom_words_room(_Atomic uint64_t *words, uint64_t nwords);

/* All words will be written soon, by somebody who can afford to wait: huge pages from the start. */
void bloom_words_fill(struct bloom_maps *maps, _Atomic uint64_t *words, uint64_t nwords);

/* Does 2 MiB of that, in a mapping that is in use or populated ahead, and says what it has done. Takes a millisecond or
 * so; bloom_words_free() of the same words waits for it. One thread at a time. */
enum bloom_settled bloom_maps_settle(struct bloom_maps *maps);

#endif
