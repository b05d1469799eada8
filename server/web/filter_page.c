#include "filter_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl_check.h"
#include "acl_user.h"
#include "bloom_filter.h"
#include "bloom_keyring.h"
#include "bloom_layout.h"
#include "command.h"
#include "entry.h"
#include "filterdb.h"
#include "rcu.h"
#include "registry_key.h"
#include "server.h"
#include "sstables.h"

const char *filter_page_path(const struct http_head *head)
{
    return strncmp(head->path, FILTERS, strlen(FILTERS)) == 0 && head->path[strlen(FILTERS)] ? FILTERS : NULL;
}

/* ---- the filter ---- */

/* The key of the name in the path; malloc'ed. NULL: it has been answered. */
static char *read_key(struct web_request *request, struct slice *key_out)
{
    struct slice name = slice_of(request->head.path + strlen(FILTERS)), number;
    struct server *server = request->web->server;
    int64_t db = 0;
    if (http_argument(&request->head, "db", &number) &&
        (!slice_to_int64(number, &db) || db < 0 || db >= server_config(server)->data.databases)) {
        web_reply_text(request, HTTP_BAD_REQUEST, "db must be the number of a database");
        return NULL;
    }
    char *bytes = malloc(name.len + DATABASE_PREFIX);
    if (!bytes) {
        web_reply_text(request, HTTP_UNAVAILABLE, "out of memory for this reply");
        return NULL;
    }
    *key_out = key_write(bytes, registry_database(server->registry, (unsigned)db), name);
    return bytes;
}

/* A pin on the filter. NULL: it has been answered. */
static struct entry *take_filter(struct web_request *request)
{
    const struct server *server = request->web->server;
    struct slice key;
    char *bytes = read_key(request, &key);
    struct entry *entry = NULL;
    if (!bytes)
        return NULL;
    if (!acl_may_read(request->user, (size_t)command_find(slice_of("bf.scandump")),
                      registry_number(server->registry, key_database(key)), key_name(key))) {
        web_reply_text(request, HTTP_FORBIDDEN, "this user may not run 'bf.scandump' on this filter");
    } else if (!(entry = registry_pin(server->registry, key)) && !(entry = sstables_pin(server->sstables, key))) {
        web_reply_text(request, HTTP_NOT_FOUND, "no such filter");
    } else if (entry_quarantine_reason(entry)) {
        web_reply_text(request, HTTP_UNAVAILABLE,
                       sstables_is_unread(entry) ? SSTABLES_UNREAD "; a query reads it"
                                                 : "the filter is quarantined; BF.INFO shows the reason");
        entry_unpin(entry);
        entry = NULL;
    }
    free(bytes);
    return entry;
}

/* ---- the copy ---- */

struct copied_layer {
    unsigned index;
    struct bloom_shape shape;
    uint64_t items;
};

struct filter_copy {
    struct entry *entry;
    char etag[64]; /* with its quotes */
    uint64_t items, bytes, at;
    unsigned variant, n;
    struct copied_layer layers[];
};

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

/* Takes over the caller's pin of the entry, also when it fails: NULL, with the reason. `epoch`: of the process; counts
 * of changes begin again with it. */
static struct filter_copy *create_copy(struct entry *entry, uint64_t epoch, const char **reason_out)
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

/* Appends fields of HTTP that describe the filter, with an ETag that changes with its answers. */
static void write_fields(const struct filter_copy *copy, struct buf *out)
{
    const struct bloom_filter *filter = entry_shape(copy->entry);
    const struct bloom_params *params = filter ? bloom_filter_params(filter) : NULL;
    buf_appendf(out, "ETag: %s\r\nBloomery-Layers: %u\r\nBloomery-Items: %" PRIu64 "\r\n", copy->etag, copy->n,
                copy->items);
    buf_appendf(out, "Bloomery-Layout: %s\r\n", bloom_variant_name(copy->variant));
    if (params && params->key)
        buf_appendf(out, "Bloomery-Key: %016" PRIx64 "\r\n", params->key);
    if (params && params->window)
        buf_appendf(out, "Bloomery-Window: %" PRIu64 " %s\r\n", params->window,
                    params->window_flags & BLOOM_WINDOW_ITEMS ? "items" : "microseconds");
}

/* Tags are compared as weak ones; text between them does not matter, as none of our tags is part of another. */
static bool matches(const struct filter_copy *copy, const char *etags)
{
    return strcmp(etags, "*") == 0 || strstr(etags, copy->etag) != NULL;
}

/* ---- pieces ---- */

void filter_copy_skip(struct filter_copy *copy)
{
    copy->at = copy->bytes;
}

uint64_t filter_copy_left(const struct filter_copy *copy)
{
    return copy->bytes - copy->at;
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
    uint64_t left = filter_copy_left(copy), until = copy->at + (left < FILTER_COPY_PIECE ? left : FILTER_COPY_PIECE);
    uint64_t begin = 0;
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

/* ---- its bits ---- */

static void answer_copy(struct web_request *request, struct filter_copy *copy)
{
    const char *none_match = http_field(&request->head, "If-None-Match");
    bool known = none_match && matches(copy, none_match);
    write_fields(copy, &request->more_fields);
    request->copy = copy;
    if (known)
        filter_copy_skip(copy);
    web_reply(request, known ? HTTP_NOT_MODIFIED : HTTP_OK, known ? "" : "application/octet-stream");
}

void filter_page_copy(struct web_request *request)
{
    const char *reason = NULL;
    rcu_reader_online();
    struct server *server = request->web->server;
    struct entry *entry = take_filter(request);
    struct filter_copy *copy = entry ? create_copy(entry, (uint64_t)server->process.started_unix_ms, &reason) : NULL;
    rcu_reader_offline();
    if (copy)
        answer_copy(request, copy);
    else if (reason)
        web_reply_text(request, HTTP_UNAVAILABLE, reason);
}
