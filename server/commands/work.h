/* work: the bound on what the commands of a worker do before it answers, counted instead of measured.
 *
 * The unit is a look at one layer for one item, or one word, or 256 bytes of words: words x layers x bytes. It takes a
 * fifth of a microsecond where nothing is in the cache, and usually a tenth of that. A bit whose page the kernel must
 * make first costs WORK_PAGE, a move of a fingerprint one unit, or an eighth in the cache.
 *
 * A connection's turn, a round of turns, and a transaction have 8,192, 16,384 and 32,768 units: less than two, four and
 * seven milliseconds.
 *
 * Thread: any, in an RCU read section. */
#ifndef BLOOMERY_WORK_H
#define BLOOMERY_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"

#define WORK_PAGE 16
#define WORK_MADE 64 /* a filter that an add makes */

/* One item of a filter: a query of it, or an add. */
uint32_t work_of_item(const struct bloom_filter *filter, bool adds);

#endif
