/* hit_share: the share of a filter's latest queries that have found their item, because memory is prefetched
 * differently when most items are absent.
 *
 * A moving average: it follows a change of the queries within some fifty of them. Zero-initialised it begins with
 * "all". Thread: any, on distinct objects. */
#ifndef BLOOMERY_HIT_SHARE_H
#define BLOOMERY_HIT_SHARE_H

#include <stdbool.h>

#define HIT_SHARE_OVER  64   /* queries in the average */
#define HIT_SHARE_WHOLE 4096 /* all have missed */

struct hit_share {
    int misses; /* 0..HIT_SHARE_WHOLE */
};

/* `hits` of n queries, of at most HIT_SHARE_OVER. */
static inline void hit_share_note(struct hit_share *share, unsigned hits, unsigned n)
{
    share->misses += ((int)(n - hits) * HIT_SHARE_WHOLE - (int)n * share->misses) / HIT_SHARE_OVER;
}

/* Whether most queries have missed. */
static inline bool hit_share_is_low(const struct hit_share *share)
{
    return share->misses > HIT_SHARE_WHOLE / 2;
}

#endif
