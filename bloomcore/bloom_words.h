/* bloom_words: zeroed memory for the bits of large layers. Internal to bloomcore. Thread: any. */
#ifndef BLOOMERY_BLOOM_WORDS_H
#define BLOOMERY_BLOOM_WORDS_H

#include <stdatomic.h>
#include <stdint.h>

/* From this size on, words are mapped on their own and on huge pages; below, they come from the heap. */
#define BLOOM_MAPPED_BYTES (UINT64_C(2) << 20)

/* `nwords` zero words (1..BLOOM_MAX_WORDS), aligned to 8 bytes or better, or NULL when there is no memory. Costs
 * nothing but address space until the words are touched, when they are at least BLOOM_MAPPED_BYTES. */
_Atomic uint64_t *bloom_words_alloc(uint64_t nwords);

/* `nwords` as given to bloom_words_alloc(). NULL is fine. Takes about 0.1 ms per megabyte in use. */
void bloom_words_free(_Atomic uint64_t *words, uint64_t nwords);

#endif
