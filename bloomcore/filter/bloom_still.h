/* bloom_still: the state of a filter at one moment, for long reads while other threads change it: a save, a dump. Only
 * cuckoo filters need this; bits of Bloom filters are only set, and can be read while they change.
 *
 * A still is a filter that has the shape, the counts and the words of that moment, but no memory for all of these: see
 * bloom_layer_view.still. It takes memory, which no limit counts, for what is changed before it has been read.
 *
 * Lifetime: bloom_still_begin() to bloom_still_end(), while the filter lives. Thread: any, not on a loop. */
#ifndef BLOOMERY_BLOOM_STILL_H
#define BLOOMERY_BLOOM_STILL_H

#include "bloom_types.h"

/* Of a cuckoo filter, at a moment during the call. 0 or -ENOMEM. */
int bloom_still_begin(struct bloom_filter *filter, struct bloom_filter **still_out, struct errbuf *err);
void bloom_still_end(struct bloom_filter *still); /* NULL is fine */

#endif
