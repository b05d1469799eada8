/* bloom_class: the data that filters of equal parameters and equal first layer share, so that a small filter costs
 * little more than its bits. Counted references. Thread: any. */
#ifndef BLOOMERY_BLOOM_CLASS_H
#define BLOOMERY_BLOOM_CLASS_H

#include "bloom_pool.h"

/* The class for these parameters. `shape` is the shape of the first layer (loading, import). NULL: bloom_size_plan()
 * sizes it (variant BLOOM_NA) or, with RedisBloom's options, redisbloom_size(). 0, BLOOM_REFUSED, or -ENOMEM. The
 * caller owns a reference. */
int bloom_class_get(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shape,
                    struct bloom_class **class_out, struct errbuf *err);
struct bloom_class *bloom_class_retain(struct bloom_class *class);
void bloom_class_release(struct bloom_class *class); /* NULL is fine */

uint64_t bloom_class_bytes(const struct bloom_class *class); /* of the words of the first layer */

#endif
