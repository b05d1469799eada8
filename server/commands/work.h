/* work: the bound on what the commands of a worker do before it answers, counted instead of measured.
 *
 * The unit is a look at one layer for one item, or a word, or 128 bytes of words: words x layers x bytes. It takes an
 * eighth of a microsecond where nothing is in the cache, and usually a tenth of that. A bit whose page the kernel must
 * make first is WORK_PAGE units. A look at a layer of a cuckoo filter and a moved fingerprint are a unit, or an eighth
 * of it in the cache.
 *
 * A connection's turn, a round of turns (io/turns.h) and a transaction have 8,192, 16,384 and 65,536 units: one, two
 * and eight milliseconds.
 *
 * Thread: any, in an RCU read section. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bloom_batch.h"
#include "command_row.h"
#include "resp_parse.h"

#define WORK_TRANSACTION UINT64_C(65536)
#define WORK_INLINE      UINT64_C(4096) /* a command that may defer has no more on the loop */

#define WORK_PAGE  16
#define WORK_MADE  64  /* a filter is made */
#define WORK_LAYER 100 /* a layer is added; the others are gone through, too */
#define WORK_SLOW  512 /* a command that names no filter, and is not fast in Redis's table: lines of text, settings */

/* One item of a filter: a query of it, or an add. */
uint32_t work_of_item(const struct bloom_filter *filter, bool adds);

/* The same of a Bloom filter. */
static inline uint32_t work_of_bloom_item(const struct bloom_filter *filter)
{
    return bloom_filter_nlayers(filter) + WORK_PAGE * bloom_filter_young_bits(filter);
}

/* BF.INFO with a field for which bits are counted. */
uint64_t work_of_bits(const struct bloom_filter *filter);

/* The words of a command, whatever its filters are. `npatterns`: those of the client's rights, with which each name is
 * compared; 0: it may use all names. */
uint64_t work_of_words(const struct command *row, const struct resp_command *cmd, size_t npatterns);
