#include "log_contents.h"

#include <errno.h>

#include "filterdb.h"
#include "log_varint.h"

#define LAYER_HEAD_MAX (1 + 2 * VARINT_MAX) /* hash count, count of words, count of items */
#define HEAD_BYTES     2                    /* variant, count of layers */

int log_contents_encode(struct log_bytes *bytes, const struct bloom_filter *filter, size_t max_bytes)
{
    unsigned nlayers = bloom_filter_nlayers(filter); /* it may grow meanwhile, and that is in the log */
    struct bloom_layer_view view;
    uint64_t words = 0;

    for (unsigned i = 0; i < nlayers; i++) {
        bloom_filter_layer(filter, i, &view);
        words += view.shape.nwords;
    }
    if (words > max_bytes / 8)
        return LOG_CONTENTS_LARGE;
    int rc = log_bytes_reserve(bytes, HEAD_BYTES + nlayers * LAYER_HEAD_MAX + (size_t)words * 8);
    if (rc != 0)
        return rc;
    unsigned char *at = bytes->ptr + bytes->len;
    *at++ = view.shape.variant;
    *at++ = (unsigned char)nlayers;
    for (unsigned i = 0; i < nlayers; i++) {
        bloom_filter_layer(filter, i, &view);
        *at++ = view.shape.k;
        at = varint_put(at, view.shape.nwords);
        filterdb_encode_words(BLOOM_NA, view.words, (size_t)view.shape.nwords, at);
        at += view.shape.nwords * 8;
        atomic_thread_fence(memory_order_acquire); /* an add takes its place, then sets its bits */
        bloom_filter_layer(filter, i, &view);
        at = varint_put(at, view.items);
    }
    bytes->len = (size_t)(at - bytes->ptr);
    return 0;
}

static bool decode_layer(const unsigned char **at, const unsigned char *end, uint8_t variant, struct log_layer *layer)
{
    uint64_t nwords, items;

    if (*at == end)
        return false;
    uint8_t k = *(*at)++;
    if (k < 1 || k > BLOOM_MAX_K || !varint_get(at, end, &nwords) || nwords < 1 || nwords > LOG_CONTENTS_MAX / 8 ||
        nwords * 8 > (uint64_t)(end - *at))
        return false;
    layer->words = *at;
    *at += nwords * 8;
    if (!varint_get(at, end, &items))
        return false;
    layer->shape = (struct bloom_shape){.nwords = nwords, .k = k, .variant = variant};
    layer->items = items;
    return true;
}

bool log_contents_decode(const void *bytes, size_t len, struct log_contents *contents_out)
{
    const unsigned char *at = bytes;
    uint64_t words = 0;

    if (len < HEAD_BYTES)
        return false;
    const unsigned char *end = at + len;
    uint8_t variant = *at++;
    unsigned nlayers = *at++;
    if (variant > BLOOM_KA || nlayers < 1 || nlayers > BLOOM_MAX_LAYERS)
        return false;
    for (unsigned i = 0; i < nlayers; i++) {
        if (!decode_layer(&at, end, variant, &contents_out->layers[i]))
            return false;
        words += contents_out->layers[i].shape.nwords;
    }
    contents_out->nlayers = nlayers;
    return at == end && words <= LOG_CONTENTS_MAX / 8;
}

int log_contents_fill(const struct log_contents *contents, struct bloom_filter *filter, struct errbuf *err)
{
    for (unsigned i = 0; i < contents->nlayers; i++) {
        const struct log_layer *layer = &contents->layers[i];
        struct bloom_layer_view view;
        int rc = i > 0 ? bloom_filter_append_layer(filter, &layer->shape, err) : 0;

        if (rc == -ENOMEM)
            errbuf_set(err, "out of memory");
        if (rc != 0)
            return rc;
        bloom_filter_layer(filter, i, &view);
        filterdb_decode_words(BLOOM_NA, layer->words, (size_t)layer->shape.nwords, view.words);
        bloom_filter_set_items(filter, i, layer->items);
    }
    return 0;
}
