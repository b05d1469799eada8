#include "redisbloom_dump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "crc64.h"
#include "alloc.h"
#include "errbuf.h"
#include "bloom_layout.h"
#include "rdb_reader.h"

bool redisbloom_is_layout(const struct bloom_filter *filter)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    const struct bloom_layout *layout = bloom_layout_of(bloom_params_variant(params));

    return (layout->walk == BLOOM_WALK_UNSIGNED || layout->slots) && !params->key;
}

static uint64_t sum_bytes(const struct redisbloom_filter *value)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < value->nlayers; i++)
        bytes += redisbloom_bytes(&value->layers[i]);
    return bytes;
}

/* ---- DUMP ---- */

static unsigned char *write_dump(const struct redisbloom_filter *value, const unsigned char *bits, unsigned char *dump)
{
    unsigned char *at = redisbloom_put_head(dump, value);

    for (uint64_t i = 0; i < value->nlayers; i++) {
        const struct redisbloom_layer *layer = &value->layers[i];
        uint64_t bytes = redisbloom_bytes(layer);

        at = redisbloom_put_fields(at, layer);
        at = rdb_put_string_head(at, bytes);
        memcpy(at, bits, (size_t)bytes);
        at = rdb_put_unsigned(at + bytes, layer->count);
        bits += bytes;
    }
    return rdb_put_dump_end(at, dump);
}

/* The bits are copied first, so that the counts, which stand before them in the dump, are read after them. */
int redisbloom_dump(const struct bloom_filter *filter, uint64_t max, unsigned char **dump_out, uint64_t *len_out)
{
    unsigned nlayers = bloom_filter_nlayers(filter);
    struct redisbloom_filter value;
    uint64_t done = 0;

    redisbloom_describe(filter, nlayers, &value);
    *len_out = redisbloom_dump_max(&value);
    if (*len_out > max)
        return REDISBLOOM_LARGE;
    unsigned char *bits = malloc((size_t)sum_bytes(&value)), *dump = malloc((size_t)*len_out);
    if (!bits || !dump) {
        free(bits);
        free(dump);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < nlayers; i++) {
        uint64_t bytes = redisbloom_bytes(&value.layers[i]);

        bloom_filter_get_bytes(filter, i, 0, bits + done, (size_t)bytes);
        done += bytes;
    }
    redisbloom_describe(filter, nlayers, &value);
    *len_out = (uint64_t)(write_dump(&value, bits, dump) - dump);
    *dump_out = dump;
    free(bits);
    return DUMP_OK;
}

/* ---- RESTORE ---- */

/* Turns the numbers of a filter into a plan. */
static int make_plan(const struct redisbloom_filter *value, struct dump_plan *plan_out, struct errbuf *err)
{
    plan_out->nlayers = (unsigned)value->nlayers;
    return redisbloom_check(value, &plan_out->params, plan_out->shapes, &plan_out->bytes, err) == BLOOM_OK ? DUMP_OK
                                                                                                           : DUMP_BAD;
}

static int read_dump(const void *data, size_t len, struct redisbloom_filter *value, rdb_bits_fn *bits, void *ctx,
                     struct errbuf *err)
{
    struct rdb_reader reader;
    unsigned encver;
    int rc = redisbloom_open_dump(&reader, data, len, &encver, err);

    STEP(rc, redisbloom_read(&reader, encver, value, bits, ctx));
    STEP(rc, rdb_close_dump(&reader));
    return rc == RDB_OK ? DUMP_OK : DUMP_BAD;
}

int redisbloom_restore_plan(const void *data, size_t len, struct dump_plan *plan_out, struct errbuf *err)
{
    struct redisbloom_filter value;
    TRY(read_dump(data, len, &value, NULL, NULL, err));
    return make_plan(&value, plan_out, err);
}

int dump_put_bits(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len)
{
    bloom_filter_put_bytes(ctx, layer, offset, bytes, len);
    return 0;
}

void redisbloom_restore(const void *data, size_t len, struct bloom_filter *filter)
{
    struct redisbloom_filter value;
    int rc = read_dump(data, len, &value, dump_put_bits, filter, NULL);

    CHECK(rc == DUMP_OK); /* read before */
    for (unsigned i = 0; i < value.nlayers; i++)
        bloom_filter_set_items(filter, i, value.layers[i].count);
}

/* ---- BF.LOADCHUNK ---- */

int redisbloom_load_begin(struct redisbloom_load *load, const void *data, size_t len, struct errbuf *err)
{
    struct redisbloom_filter value;
    TRY(redisbloom_read_header(data, len, &value, err) == RDB_OK ? DUMP_OK : DUMP_BAD);
    TRY(make_plan(&value, &load->plan, err));
    load->header = crc64(0, data, len);
    load->bytes = sum_bytes(&value);
    load->missing = load->bytes;
    load->spans = NULL;
    load->nspans = 0;
    load->room = 0;
    for (unsigned i = 0; i < value.nlayers; i++)
        load->counts[i] = value.layers[i].count;
    return DUMP_OK;
}

bool redisbloom_load_began_with(const struct redisbloom_load *load, const void *data, size_t len)
{
    return len == redisbloom_header_bytes(load->plan.nlayers) && load->header == crc64(0, data, len);
}

int redisbloom_load_copy(struct redisbloom_load *copy_out, const struct redisbloom_load *load)
{
    struct redisbloom_span *spans = calloc(load->nspans + 1, sizeof(*spans));
    if (!spans)
        return -ENOMEM;
    if (load->nspans)
        memcpy(spans, load->spans, load->nspans * sizeof(*spans));
    *copy_out = *load;
    copy_out->spans = spans;
    copy_out->room = load->nspans;
    return 0;
}

void redisbloom_load_deinit(struct redisbloom_load *load)
{
    free(load->spans);
    load->spans = NULL;
}

static int make_room(struct redisbloom_load *load, struct errbuf *err)
{
    if (load->nspans < REDISBLOOM_MAX_SPANS)
        return GROW(load->spans, load->nspans, load->room);
    return errbuf_fail(err, DUMP_BAD, "the chunks so far have more than %d gaps", REDISBLOOM_MAX_SPANS);
}

/* Notes that the bytes from..to have come. */
static int note_span(struct redisbloom_load *load, uint64_t from, uint64_t to, struct errbuf *err)
{
    size_t first = 0, behind;
    TRY(make_room(load, err));
    while (first < load->nspans && load->spans[first].to < from)
        first++;
    for (behind = first; behind < load->nspans && load->spans[behind].from <= to; behind++) {
        load->missing += load->spans[behind].to - load->spans[behind].from;
        from = load->spans[behind].from < from ? load->spans[behind].from : from;
        to = load->spans[behind].to > to ? load->spans[behind].to : to;
    }
    memmove(load->spans + first + 1, load->spans + behind, (load->nspans - behind) * sizeof(*load->spans));
    load->nspans = load->nspans - (behind - first) + 1;
    load->spans[first] = (struct redisbloom_span){from, to};
    load->missing -= to - from;
    return DUMP_OK;
}

bool redisbloom_place(const struct bloom_filter *filter, uint64_t iterator, size_t len, unsigned *layer_out,
                      uint64_t *offset_out)
{
    uint64_t left;

    if (len == 0 || iterator <= len)
        return false;
    *offset_out = iterator - REDISBLOOM_HEADER_ITERATOR - len;
    return bloom_filter_find_byte(filter, offset_out, layer_out, &left) && len <= left;
}

int redisbloom_load_chunk(struct redisbloom_load *load, struct bloom_filter *filter, uint64_t iterator,
                          const void *data, size_t len, bool *complete_out, struct errbuf *err)
{
    unsigned layer;
    uint64_t offset;

    if (!redisbloom_place(filter, iterator, len, &layer, &offset))
        return errbuf_fail(err, DUMP_BAD, "%zu bytes that end at iterator %llu are not within a layer", len,
                           (unsigned long long)iterator);
    uint64_t end = iterator - REDISBLOOM_HEADER_ITERATOR;
    TRY(note_span(load, end - len, end, err));
    bloom_filter_put_bytes(filter, layer, offset, data, len);
    *complete_out = load->missing == 0;
    if (*complete_out) {
        for (unsigned i = 0; i < load->plan.nlayers; i++)
            bloom_filter_set_items(filter, i, load->counts[i]);
    }
    return DUMP_OK;
}

bool redisbloom_has_chunk(const struct bloom_filter *filter, uint64_t iterator, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    unsigned char have[4096];
    uint64_t at;
    unsigned layer;

    if (!redisbloom_is_layout(filter) || !redisbloom_place(filter, iterator, len, &layer, &at))
        return false;
    while (len > 0) {
        size_t n = len < sizeof(have) ? len : sizeof(have);

        bloom_filter_get_bytes(filter, layer, at, have, n);
        for (size_t i = 0; i < n; i++)
            if (bytes[i] & ~have[i])
                return false;
        bytes += n;
        at += n;
        len -= n;
    }
    return true;
}
