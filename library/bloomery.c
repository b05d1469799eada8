/* bloomery.h except for its files: each function is a few calls of bloomcore. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bloom_batch.h"
#include "bloom_merge.h"
#include "bloom_size.h"
#include "bloom_state.h"
#include "internal.h"
#include "redisbloom_size.h"
#include "valkey.h"
#include "bloom_layout.h"

const char *bloomery_version(void)
{
    return BLOOMERY_VERSION;
}

/* ---- errors ---- */

int bloomery_end(int status, const struct errbuf *err, char *text, size_t size)
{
    if (status != BLOOMERY_OK && size > 0)
        snprintf(text, size, "%s", err->text);
    return status;
}

int bloomery_status_of(int rc)
{
    return rc == 0 ? BLOOMERY_OK : rc == -ENOMEM ? BLOOMERY_NO_MEMORY : BLOOMERY_REFUSED;
}

int bloomery_parse_layout(const char *layout, enum bloom_variant *variant_out, struct errbuf *err)
{
    if (layout && bloom_variant_parse(layout, strlen(layout), variant_out) && !bloom_layout_of(*variant_out)->slots)
        return BLOOMERY_OK;
    return errbuf_fail(err, BLOOMERY_REFUSED, "the layout %s is not na, me, ka, redisbloom or redisbloom32",
                       layout ? layout : "NULL");
}

/* ---- begin and end ---- */

bloomery_filter *bloomery_new(enum bloom_variant variant, struct errbuf *err)
{
    bloomery_filter *filter = calloc(1, sizeof(*filter));

    if (filter)
        filter->variant = (uint8_t)variant;
    else
        errbuf_set(err, "%s", strerror(ENOMEM));
    return filter;
}

void bloomery_free(bloomery_filter *filter)
{
    if (filter)
        bloom_alone_deinit(&filter->alone);
    free(filter);
}

/* The sizes are those of a server: Bloomery's honest ones, or those of the layout's own server. */
static int create_layer(bloomery_filter *filter, double error, uint64_t capacity, struct errbuf *err)
{
    struct bloom_params params = {.capacity = capacity, .error_rate = error};
    struct bloom_size size;

    if (bloom_layout_of(filter->variant)->own_numbers) {
        params.redisbloom = filter->variant == BLOOM_REDISBLOOM ? REDISBLOOM_DEFAULT | REDISBLOOM_NO_SCALING
                                                                : bloom_layout_of(filter->variant)->options;
        params.tightening = bloom_params_have_seed(&params) ? VALKEY_DEFAULT_TIGHTENING : 0;
        if (bloom_params_have_seed(&params) && getrandom(&params.seed, BLOOM_SEED_BYTES, 0) != BLOOM_SEED_BYTES)
            return BLOOMERY_SYSTEM;
        return bloomery_status_of(bloom_alone_init(&filter->alone, NULL, &params, err));
    }
    if (bloom_size_plan(capacity, error, &size, err) != BLOOM_SIZE_OK)
        return BLOOMERY_REFUSED;
    const struct bloom_shape shape = {.nwords = size.nwords, .k = (uint8_t)size.k, .variant = filter->variant};
    return bloomery_status_of(bloom_alone_init(&filter->alone, &shape, &params, err));
}

int bloomery_create(double error, uint64_t capacity, const char *layout, bloomery_filter **filter_out, char *text,
                    size_t size)
{
    struct errbuf err = {{0}};
    enum bloom_variant variant;
    int status = bloomery_parse_layout(layout, &variant, &err);

    if (status == BLOOMERY_OK && variant == BLOOM_REDISBLOOM32) {
        errbuf_set(&err, "filters in the layout redisbloom32 are only read; redisbloom has 64-bit hashes");
        status = BLOOMERY_REFUSED;
    }
    if (status != BLOOMERY_OK)
        return bloomery_end(status, &err, text, size);
    bloomery_filter *filter = bloomery_new(variant, &err);
    status = filter ? create_layer(filter, error, capacity, &err) : BLOOMERY_NO_MEMORY;
    if (status == BLOOMERY_OK)
        *filter_out = filter;
    else
        bloomery_free(filter);
    return bloomery_end(status, &err, text, size);
}

/* ---- questions ---- */

int bloomery_has(const bloomery_filter *filter, const void *item, size_t size)
{
    const struct bloom_filter *bits = filter->alone.filter;

    return bits && bloom_filter_query(bits, bloom_filter_hash(bits, item, size));
}

static struct bloom_item asked_item(const void *items, size_t i)
{
    const struct bloomery_item *item = (const struct bloomery_item *)items + i;

    return (struct bloom_item){item->data, item->size};
}

static bool keep_answers(void *ctx, size_t next, uint32_t present, size_t n)
{
    unsigned char *answers = (unsigned char *)ctx + next - n;

    for (size_t i = 0; i < n; i++)
        answers[i] = present >> i & 1;
    return true;
}

void bloomery_has_many(const bloomery_filter *filter, const struct bloomery_item *items, size_t n,
                       unsigned char *answers)
{
    struct bloom_questions questions = {0, n, asked_item, items, keep_answers, answers, false};

    if (filter->alone.filter)
        bloom_query_all(filter->alone.filter, &questions);
    else if (n > 0)
        memset(answers, 0, n);
}

/* ---- adds ---- */

static size_t start_batch(struct bloom_batch *batch, const struct bloom_filter *bits, const struct bloomery_item *items,
                          size_t n)
{
    struct bloom_item some[BLOOM_BATCH];
    size_t taken = n < BLOOM_BATCH ? n : BLOOM_BATCH;

    for (size_t i = 0; i < taken; i++)
        some[i] = (struct bloom_item){items[i].data, items[i].size};
    bloom_batch_start(batch, bits, some, taken);
    return taken;
}

static int refused(const bloomery_filter *filter, enum bloom_add answer, struct errbuf *err)
{
    if (answer == BLOOM_NO_ROOM)
        return BLOOMERY_NO_MEMORY;
    return errbuf_fail(err, BLOOMERY_FULL, "the filter is full: it was made for %llu items",
                       (unsigned long long)bloom_filter_capacity(filter->alone.filter));
}

int bloomery_add_many(bloomery_filter *filter, const struct bloomery_item *items, size_t n, size_t *done_out,
                      uint64_t *added_out, char *text, size_t size)
{
    struct bloom_filter *bits = filter->alone.filter;
    struct errbuf err = {{0}};
    size_t done = 0;
    uint64_t added = 0;
    int status = BLOOMERY_OK;

    if (!bits && n > 0) {
        errbuf_set(&err, "the filter has no layers, and so no place for items");
        status = BLOOMERY_REFUSED;
    }
    while (status == BLOOMERY_OK && done < n) {
        enum bloom_add answer = BLOOM_ADDED;
        struct bloom_batch batch;
        uint32_t new_ones;
        size_t taken = start_batch(&batch, bits, items + done, n - done);
        size_t end = bloom_batch_add_all(&batch, 0, bits, NULL, &err, &new_ones, &answer);
        done += end;
        added += (unsigned)__builtin_popcount(new_ones);
        if (end < taken)
            status = refused(filter, answer, &err);
    }
    if (done_out)
        *done_out = done;
    if (added_out)
        *added_out = added;
    return bloomery_end(status, &err, text, size);
}

int bloomery_add(bloomery_filter *filter, const void *item, size_t item_size, int *added_out, char *text, size_t size)
{
    const struct bloomery_item one = {item, item_size};
    uint64_t added;
    int status = bloomery_add_many(filter, &one, 1, NULL, &added, text, size);

    if (status == BLOOMERY_OK && added_out)
        *added_out = (int)added;
    return status;
}

/* ---- union ---- */

/* Whether bits mean the same: the only difference of layouts na and me is the order of bytes in files. */
static bool same_bits(struct bloom_shape a, const struct bloom_shape *b)
{
    if (bloom_layouts_agree(a.variant, b->variant))
        a.variant = b->variant;
    return bloom_shape_equal(&a, b);
}

static int compare_layers(const bloomery_filter *filter, const bloomery_filter *from, struct errbuf *err)
{
    unsigned n = bloomery_layers(from);

    if (n > bloomery_layers(filter))
        return errbuf_fail(err, BLOOMERY_REFUSED, "the other filter has %u layers, this one %u", n,
                           bloomery_layers(filter));
    for (unsigned i = 0; i < n; i++) {
        struct bloom_layer_view a, b;
        bloomery_view(filter, i, &a);
        bloomery_view(from, i, &b);
        if (same_bits(a.shape, &b.shape))
            continue;
        return errbuf_fail(
            err, BLOOMERY_REFUSED,
            "layer %u has %u hashes, %llu bits, layout %s, and that of the other filter %u hashes, %llu bits, "
            "layout %s: only equal ones have a union",
            i, a.shape.k, (unsigned long long)bloom_shape_bits(&a.shape), bloomery_layout(filter), b.shape.k,
            (unsigned long long)bloom_shape_bits(&b.shape), bloomery_layout(from));
    }
    if (n == 0 || bloom_seed_equal(&bloom_filter_params(filter->alone.filter)->seed,
                                   &bloom_filter_params(from->alone.filter)->seed))
        return BLOOMERY_OK;
    return errbuf_fail(err, BLOOMERY_REFUSED, "their seeds differ: only filters with equal ones have a union");
}

int bloomery_merge(bloomery_filter *filter, const bloomery_filter *from, char *text, size_t size)
{
    struct bloom_union counts = {{0}, {0}};
    struct errbuf err = {{0}};
    int status = compare_layers(filter, from, &err);

    if (status == BLOOMERY_OK && bloomery_layers(from) > 0) {
        bloom_filter_or(filter->alone.filter, from->alone.filter, bloomery_layers(from), &counts);
        bloom_filter_count_union(filter->alone.filter, &counts, NULL, true, NULL); /* never refuses: any rate */
    }
    return bloomery_end(status, &err, text, size);
}

/* ---- numbers ---- */

void bloomery_view(const bloomery_filter *filter, unsigned layer, struct bloom_layer_view *view_out)
{
    bloom_filter_layer(filter->alone.filter, layer, view_out);
}

const char *bloomery_layout(const bloomery_filter *filter)
{
    return bloom_variant_name(filter->variant);
}

unsigned bloomery_layers(const bloomery_filter *filter)
{
    return filter->alone.filter ? bloom_filter_nlayers(filter->alone.filter) : 0;
}

uint64_t bloomery_layer_bits(const bloomery_filter *filter, unsigned layer)
{
    struct bloom_layer_view view;

    if (layer >= bloomery_layers(filter))
        return 0;
    bloomery_view(filter, layer, &view);
    return bloom_shape_bits(&view.shape);
}

unsigned bloomery_layer_hashes(const bloomery_filter *filter, unsigned layer)
{
    struct bloom_layer_view view;

    if (layer >= bloomery_layers(filter))
        return 0;
    bloomery_view(filter, layer, &view);
    return view.shape.k;
}

static struct bloom_state state_of(const bloomery_filter *filter)
{
    struct bloom_state state = {0};

    if (filter->alone.filter)
        bloom_filter_state(filter->alone.filter, &state);
    return state;
}

uint64_t bloomery_bits_set(const bloomery_filter *filter)
{
    return state_of(filter).bits_set;
}

double bloomery_rate(const bloomery_filter *filter)
{
    return state_of(filter).rate;
}

double bloomery_estimate(const bloomery_filter *filter)
{
    return state_of(filter).estimated_items;
}
