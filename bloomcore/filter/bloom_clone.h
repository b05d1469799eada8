/* bloom_clone: a snapshot of a filter whose bits may be set and cleared, for long reads: a save, a dump. Only cuckoo
 * filters need this; bits of Bloom filters are only set, and can be read while they change.
 *
 * Lifetime: bloom_clone_make() to bloom_clone_free(). Thread: any, not on a loop. */
#ifndef BLOOMERY_BLOOM_CLONE_H
#define BLOOMERY_BLOOM_CLONE_H

#include "bloom_types.h"

/* A copy of a cuckoo filter, whose memory counts. It may pass the limits of memory: it is freed soon. 0 or -ENOMEM. */
int bloom_clone_make(struct bloom_filter *filter, struct bloom_filter **clone_out, struct errbuf *err);
void bloom_clone_free(struct bloom_filter *clone); /* NULL is fine */

#endif
