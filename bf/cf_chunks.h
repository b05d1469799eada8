/* cf_chunks: CF.SCANDUMP, and the checks of CF.LOADCHUNK's words. As in RedisBloom a filter exists from its header on,
 * and chunks are written into it as they come, in any order.
 *
 * Thread: any. */
#ifndef BLOOMERY_CF_CHUNKS_H
#define BLOOMERY_CF_CHUNKS_H

#include "bf_out.h"
#include "cf_request.h"
#include "cuckoo_dump.h"

#define CF_CHUNK_BYTES    (512u << 10) /* the longest of CF.SCANDUMP */
#define CF_FIRST_ITERATOR 1            /* of the header; after it the number of bytes given so far is added */

/* An iterator of CF.SCANDUMP, or of CF.LOADCHUNK: a whole number in its written form. */
bool cf_read_position(struct slice word, bool loads, int64_t *iterator_out, struct errbuf *error);

/* The reply to a valid iterator: the header, a chunk, or the end. */
void cf_reply_chunk(const struct bf_out *out, const struct bloom_filter *filter, int64_t iterator);

/* The plan of a header's filter, and its count of deletions. False, with the text of the error reply. */
bool cf_read_header(struct slice data, struct dump_plan *plan_out, uint64_t *deletes_out, struct errbuf *error);

/* The first slot of a chunk, counted over all sub-filters. False: this filter has no such slot. */
bool cf_chunk_place(const struct bloom_filter *filter, int64_t iterator, struct slice data, uint64_t *at_out);

#endif
