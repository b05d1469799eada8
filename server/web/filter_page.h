/* filter_page: the bits of one filter for programs (docs/LOCAL.md).
 *
 *   GET /filters/NAME[?db=N]   the bits (below); If-None-Match counts
 *
 * Thread: the web thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "registry.h"
#include "web_internal.h"

#define FILTERS "/filters/" /* the path of its route, which represents any name */

/* FILTERS if the request is for it; otherwise NULL. */
const char *filter_page_path(const struct http_head *head);

void filter_page_copy(struct web_request *request);

/* ---- the bits of a filter as the body of a reply, in pieces while it is in use ----
 *
 * The body has its layers as Filter.db files, the oldest first; in RedisBloom's layout as files of filterdb.h.
 *
 * Items that were there at the begin are in the copy, unless a window forgets them meanwhile; later ones may be. Layers
 * that the filter gets later are not in it.
 *
 * A reply has it from the begin to filter_copy_destroy(). */

#define FILTER_COPY_PIECE ((size_t)256 << 10)

struct filter_copy;

void filter_copy_destroy(struct filter_copy *copy); /* NULL is fine */

void filter_copy_skip(struct filter_copy *copy); /* none of it is sent */
uint64_t filter_copy_left(const struct filter_copy *copy);

/* Appends the next FILTER_COPY_PIECE bytes, or the rest. False: the filter is not the same any more. */
bool filter_copy_next(struct filter_copy *copy, struct buf *out);
