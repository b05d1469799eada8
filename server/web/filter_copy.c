#include "filter_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "entry.h"
#include "filterdb.h"

struct copied_layer {
    unsigned index;
    struct bloom_shape shape;
    uint64_t items;
};

struct filter_copy {
    struct entry *entry;
    char etag[64]; /* with its quotes */
    uint64_t items;
    uint64_t bytes, at, end;
    unsigned variant;
    unsigned n;
    struct copied_layer layers[];
};

/* ---- the filter of a copy ---- */

static void take_layers(struct filter_copy *copy, const struct bloom_filter *filter, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        if (view.forgotten)
            continue;
        copy->layers[copy->n++] = (struct copied_layer){i, view.shape, view.items};
        copy->bytes += export_file_bytes(&view.shape);
    }
}

struct filter_copy *filter_copy_create(struct entry *entry, uint64_t epoch, const char **reason_out)
{
    const struct bloom_filter *filter = entry_filter(entry);
    struct bloom_layer_view first;
    struct filter_copy *copy = NULL;
    *reason_out = "its bits are not in memory; a query reloads them";
    if (filter)
        bloom_filter_layer(filter, 0, &first);
    if (filter && entry_is_cuckoo(entry)) {
        *reason_out = "this is a cuckoo filter, which has no bits to copy; query it with CF.MEXISTS, dump it with "
                      "CF.SCANDUMP";
    } else if (filter) {
        unsigned n = bloom_filter_nlayers(filter);
        *reason_out = "out of memory for this reply";
        copy = calloc(1, sizeof(*copy) + n * sizeof(copy->layers[0]));
        if (copy) {
            copy->entry = entry;
            snprintf(copy->etag, sizeof(copy->etag), "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"", epoch, entry->id,
                     bloom_filter_changes_settled(filter));
            copy->items = bloom_filter_items(filter);
            copy->variant = first.shape.variant;
            take_layers(copy, filter, n);
            copy->end = copy->bytes;
        }
    }
    if (!copy)
        entry_unpin(entry);
    return copy;
}

void filter_copy_destroy(struct filter_copy *copy)
{
    if (copy)
        entry_unpin(copy->entry);
    free(copy);
}

uint64_t filter_copy_bytes(const struct filter_copy *copy)
{
    return copy->bytes;
}

void filter_copy_fields(const struct filter_copy *copy, struct buf *out)
{
    const struct bloom_filter *filter = entry_shape(copy->entry);
    const struct bloom_params *params = filter ? bloom_filter_params(filter) : NULL;
    buf_appendf(out, "ETag: %s\r\nAccept-Ranges: bytes\r\nBloomery-Layers: %u\r\nBloomery-Items: %" PRIu64 "\r\n",
                copy->etag, copy->n, copy->items);
    buf_appendf(out, "Bloomery-Layout: %s\r\n", bloom_variant_name(copy->variant));
    if (params && params->key)
        buf_appendf(out, "Bloomery-Key: %016" PRIx64 "\r\n", params->key);
    if (params && params->window)
        buf_appendf(out, "Bloomery-Window: %" PRIu64 " %s\r\n", params->window,
                    params->window_flags & BLOOM_WINDOW_ITEMS ? "items" : "microseconds");
}

/* Tags are compared as weak ones; text between them does not matter, as none of our tags is part of another. */
bool filter_copy_matches(const struct filter_copy *copy, const char *etags)
{
    return strcmp(etags, "*") == 0 || strstr(etags, copy->etag) != NULL;
}

/* ---- pieces ---- */

void filter_copy_limit(struct filter_copy *copy, uint64_t from, uint64_t end)
{
    copy->at = from;
    copy->end = end;
}

uint64_t filter_copy_left(const struct filter_copy *copy)
{
    return copy->end - copy->at;
}

/* Bytes from..end of the layer's file, which has the header before the words. */
static bool append_layer(const struct bloom_filter *filter, const struct copied_layer *layer, uint64_t from,
                         uint64_t end, struct buf *out)
{
    unsigned char head[BITS_FILE_HEADER_BYTES], bytes[8192];
    const size_t header = export_file_header(bloom_filter_params(filter), &layer->shape, layer->items, head);
    struct bloom_layer_view view;
    bloom_filter_layer(filter, layer->index, &view);
    if (!view.words || view.shape.nwords != layer->shape.nwords)
        return false;
    while (from < end && !buf_failed(out)) {
        uint64_t word = from < header ? 0 : (from - header) / 8, left = layer->shape.nwords - word;
        uint64_t begin = from < header ? 0 : header + 8 * word;
        size_t n = left < sizeof(bytes) / 8 ? (size_t)left : sizeof(bytes) / 8, len = from < header ? header : 8 * n;
        if (from >= header)
            filterdb_encode_words((enum bloom_variant)layer->shape.variant, view.words + word, n, bytes);
        uint64_t until = begin + len < end ? begin + len : end;
        buf_append(out, (from < header ? head : bytes) + (from - begin), (size_t)(until - from));
        from = until;
    }
    return true;
}

bool filter_copy_next(struct filter_copy *copy, struct buf *out)
{
    const struct bloom_filter *filter = entry_filter(copy->entry);
    uint64_t until = copy->end - copy->at < FILTER_COPY_PIECE ? copy->end : copy->at + FILTER_COPY_PIECE, begin = 0;
    bool good = filter != NULL;
    for (unsigned i = 0; good && i < copy->n && begin < until; i++) {
        uint64_t end = begin + export_file_bytes(&copy->layers[i].shape);
        if (copy->at < end)
            good = append_layer(filter, &copy->layers[i], copy->at > begin ? copy->at - begin : 0,
                                (until < end ? until : end) - begin, out);
        begin = end;
    }
    copy->at = until;
    return good && !buf_failed(out);
}
