/* bloom_words: zeroed memory for the bits of large layers. Internal to bloomcore.
 *
 * Random bits of a filter larger than the cache cost one TLB miss each with pages of 4 KiB; on huge pages of 2 MiB
 * batched queries are twice as fast. But the first touch of a huge page zeroes 2 MiB, 0.1 ms, where the host of a virtual
 * machine has to find memory for it 7 ms, and the first thousand adds to a new filter of 4 GB touch all of its 2000 pages:
 * whoever serves clients would stand still for seconds. So words start on small pages, whose first touch costs a
 * microsecond. As soon as a filter has so many items that hardly a huge page of it would be untouched, a thread in the
 * background makes its pages huge, one by one (bloom_maps_settle()). It does so at once, as a page of which little has
 * been touched is made huge four times as fast as one all of whose small pages have to be copied.
 *
 * That is more work than huge pages from the start. A new filter of moderate size is therefore given these ahead
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
    char *spare;             /* a huge page of settle()'s own; NULL before it has needed one */
    bool has_spare;          /* it has memory */
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

/* `words` of BLOOM_MAPPED_BYTES and more have so many bits that they are worth huge pages: one item for each, as each item
 * touches several. Without it settle() finds out by itself, after a while. Costs a load after the first time. */
void bloom_words_in_use(struct bloom_maps *maps, _Atomic uint64_t *words);

/* Does 2 MiB of that, in a mapping that is in use or populated ahead, and says what it has done. Takes a millisecond or
 * so; bloom_words_free() of the same words waits for it. One thread at a time. */
enum bloom_settled bloom_maps_settle(struct bloom_maps *maps);

#endif
