#include "cf_chunks.h"

#include <stdlib.h>

#include "bloom_size.h"

/* ---- CF.SCANDUMP ---- */

bool cf_read_position(struct slice word, bool loads, int64_t *iterator_out, struct errbuf *error)
{
    if (slice_to_int64(word, iterator_out) && (loads ? *iterator_out != 0 : *iterator_out >= 0))
        return true;
    errbuf_set(error, "%s", CF_BAD_POSITION);
    return false;
}

static void reply_end(const struct bf_out *out)
{
    out->ops->array(out->ctx, 2);
    out->ops->integer(out->ctx, 0);
    out->ops->null(out->ctx);
}

static void reply_header(const struct bf_out *out, const struct bloom_filter *filter)
{
    unsigned char bytes[CUCKOO_HEADER_MAX];
    struct cuckoo_head head;
    cuckoo_head_of(filter, &head);
    size_t len = cuckoo_head_put(&head, bytes);
    out->ops->array(out->ctx, 2);
    out->ops->integer(out->ctx, CF_FIRST_ITERATOR);
    out->ops->bytes(out->ctx, bytes, len);
}

/* The bytes from `at`, counted over all sub-filters, to the end of their sub-filter, at most CF_CHUNK_BYTES. 0:
 * none. */
static uint64_t chunk_at(const struct bloom_filter *filter, uint64_t at)
{
    for (unsigned i = 0, n = bloom_filter_nlayers(filter); i < n; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        uint64_t len = cuckoo_shape_bytes(&view.shape);
        if (at < len)
            return len - at < CF_CHUNK_BYTES ? len - at : CF_CHUNK_BYTES;
        at -= len;
    }
    return 0;
}

void cf_reply_chunk(const struct bf_out *out, const struct bloom_filter *filter, int64_t iterator)
{
    uint64_t at = (uint64_t)iterator - CF_FIRST_ITERATOR, len = iterator ? chunk_at(filter, at) : 0;
    if (iterator == 0) {
        reply_header(out, filter);
        return;
    }
    if (len == 0) {
        reply_end(out);
        return;
    }
    unsigned char *bytes = malloc((size_t)len);
    if (!bytes) {
        out->ops->error(out->ctx, "ERR out of memory");
        return;
    }
    cuckoo_read(filter, at, bytes, (size_t)len);
    out->ops->array(out->ctx, 2);
    out->ops->integer(out->ctx, iterator + (int64_t)len);
    out->ops->bytes(out->ctx, bytes, (size_t)len);
    free(bytes);
}

/* ---- CF.LOADCHUNK ---- */

/* A header costs no memory, but a save writes all slots that it announces. */
#define HEADER_MAX_BYTES (BLOOM_MAX_WORDS * 8)

bool cf_read_header(struct slice data, struct dump_plan *plan_out, uint64_t *deletes_out, struct errbuf *error)
{
    struct cuckoo_head head;
    struct errbuf reason = {""};
    if (!cuckoo_head_get((const unsigned char *)data.ptr, data.len, &head)) {
        errbuf_set(error, "%s", CF_BAD_HEADER);
        return false;
    }
    *deletes_out = head.deletes;
    if (cuckoo_head_plan(&head, plan_out, &reason) != DUMP_OK)
        errbuf_set(error, "%s", CF_NOT_MADE);
    else if (plan_out->bytes > HEADER_MAX_BYTES)
        errbuf_set(error, CF_NO_MEMORY,
                   "a header may promise less than 16 GB of slots, what one sub-filter has at most");
    else
        return true;
    return false;
}

bool cf_chunk_place(const struct bloom_filter *filter, int64_t iterator, struct slice data, uint64_t *at_out)
{
    uint64_t end = (uint64_t)iterator - CF_FIRST_ITERATOR;
    *at_out = end - data.len;
    return iterator > 0 && data.len > 0 && end >= data.len && cuckoo_has_slots(filter, *at_out, data.len);
}
