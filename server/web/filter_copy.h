/* filter_copy: the bits of a filter as the body of a reply, produced in pieces while the filter is in use. The body has
 * its layers as Filter.db files, the oldest first; in RedisBloom's layout as files of filterdb.h (docs/LOCAL.md).
 *
 * Items that were there at the begin are in the copy, unless a window forgets them meanwhile; later ones may be. Layers
 * that the filter gets later are not in it.
 *
 * Lifetime: filter_copy_create() to filter_copy_destroy(). Thread: an online RCU reader. */
#ifndef BLOOMERY_FILTER_COPY_H
#define BLOOMERY_FILTER_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "registry.h"

#define FILTER_COPY_PIECE ((size_t)256 << 10)

struct filter_copy;

/* Takes over the caller's pin of the entry, also when it fails: NULL, with the reason. `epoch`: of the process; counts
 * of changes begin again with it. */
struct filter_copy *filter_copy_create(struct entry *entry, uint64_t epoch, const char **reason_out);
void filter_copy_destroy(struct filter_copy *copy); /* NULL is fine */

uint64_t filter_copy_bytes(const struct filter_copy *copy); /* of all of it */

/* Appends fields of HTTP that describe the filter, with an ETag that changes with its answers. */
void filter_copy_fields(const struct filter_copy *copy, struct buf *out);
bool filter_copy_matches(const struct filter_copy *copy, const char *etags); /* of an If-None-Match */

/* Only these bytes of it, 0 <= from <= end. Before the first piece. */
void filter_copy_limit(struct filter_copy *copy, uint64_t from, uint64_t end);
uint64_t filter_copy_left(const struct filter_copy *copy);

/* Appends the next FILTER_COPY_PIECE bytes, or the rest. False: the filter is not the same any more. */
bool filter_copy_next(struct filter_copy *copy, struct buf *out);

#endif
