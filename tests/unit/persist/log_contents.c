/* Contents in control records: decoding restores the encoded contents, and detects any other bytes. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_countdown.h"
#include "log_payload.h"
#include "pool_rig.h"
#include "rng.h"

TestSuite(log_contents, .init = setup, .fini = teardown);

static struct bloom_filter *filled(const struct bloom_params *params, unsigned items)
{
    struct bloom_filter *filter = filter_make(pool, params, NULL);

    for (unsigned i = 0; i < items; i++)
        (void)bloom_filter_add(filter, bloom_filter_hash(filter, &i, sizeof(i)), NULL);
    return filter;
}

static void expect_same(const struct bloom_filter *a, const struct bloom_filter *b)
{
    cr_assert_eq(bloom_filter_nlayers(a), bloom_filter_nlayers(b));
    for (unsigned i = 0; i < bloom_filter_nlayers(a); i++) {
        struct bloom_layer_view x, y;
        bloom_filter_layer(a, i, &x);
        bloom_filter_layer(b, i, &y);
        cr_assert(bloom_shape_equal(&x.shape, &y.shape));
        cr_assert(x.items == y.items && x.capacity == y.capacity);
        cr_assert(memcmp((const void *)x.words, (const void *)y.words, (size_t)x.shape.nwords * 8) == 0);
    }
}

static const struct {
    struct bloom_params params;
    unsigned items;
} cases[] = {
    {{1, 0.5, 0}, 0},         {{1, 0.5, 0}, 1},          {{100, 0.01, 0}, 60},
    {{100, 0.01, 2}, 1000},   {{200, 0.3, 1}, 900},      {{1000, 1e-7, 2}, 900},
    {{5000, 0.001, 0}, 4000}, {{100, 0.01, 2, 5}, 1000}, {{100, 0.01, 0, 13}, 60},
};
#define NCASES (sizeof(cases) / sizeof(cases[0]))

/* One layer and many, empty and full, after any other bytes. */
Test(log_contents, what_is_encoded_is_brought_back)
{
    for (size_t c = 0; c < NCASES; c++) {
        struct bloom_filter *filter = filled(&cases[c].params, cases[c].items);
        struct log_bytes bytes = {0};
        struct log_contents contents;
        struct errbuf err = {""};

        cr_assert_eq(log_bytes_append(&bytes, "before", 6), 0);
        cr_assert_eq(log_contents_encode(&bytes, filter, LOG_CONTENTS_MAX), 0);
        cr_assert(log_contents_decode(bytes.ptr + 6, bytes.len - 6, &contents));
        struct bloom_filter *again = filter_make(pool, &cases[c].params, &contents.layers[0].shape);
        cr_assert_eq(log_contents_fill(&contents, again, &err), 0, "%s", err.text);
        expect_same(filter, again);
        filter_free(filter);
        filter_free(again);
        log_bytes_deinit(&bytes);
    }
}

/* Each variant has its own hash order and layout in files; here the bits are as in memory. */
Test(log_contents, variants_are_kept)
{
    for (uint8_t variant = BLOOM_NA; variant <= BLOOM_KA; variant++) {
        const struct bloom_shape shape = {.nwords = 20, .k = 5, .variant = variant};
        struct bloom_filter *filter = filter_make(pool, &cases[2].params, &shape);
        struct log_bytes bytes = {0};
        struct log_contents contents;
        struct errbuf err = {""};

        for (unsigned i = 0; i < 50; i++)
            (void)bloom_filter_add(filter, murmur3_hash(&i, sizeof(i)), NULL);
        cr_assert_eq(log_contents_encode(&bytes, filter, LOG_CONTENTS_MAX), 0);
        cr_assert(log_contents_decode(bytes.ptr, bytes.len, &contents));
        cr_assert_eq(contents.layers[0].shape.variant, variant);
        struct bloom_filter *again = filter_make(pool, &cases[2].params, &contents.layers[0].shape);
        cr_assert_eq(log_contents_fill(&contents, again, &err), 0, "%s", err.text);
        expect_same(filter, again);
        filter_free(filter);
        filter_free(again);
        log_bytes_deinit(&bytes);
    }
}

Test(log_contents, what_is_larger_than_asked_for_is_not_encoded)
{
    struct bloom_filter *filter = filled(&cases[3].params, cases[3].items);
    struct log_bytes bytes = {0};
    uint64_t words = 0;

    for (unsigned i = 0; i < bloom_filter_nlayers(filter); i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        words += view.shape.nwords;
    }
    cr_assert_eq(log_contents_encode(&bytes, filter, 8 * words - 1), LOG_CONTENTS_LARGE);
    cr_assert_eq(bytes.len, 0u);
    cr_assert_eq(log_contents_encode(&bytes, filter, 8 * words), 0);
    log_bytes_deinit(&bytes);
    filter_free(filter);
}

/* A cut anywhere or an extra byte: no contents. A change anywhere: none, or other well-formed ones. */
Test(log_contents, anything_else_is_refused)
{
    struct bloom_filter *filter = filled(&cases[4].params, cases[4].items);
    struct log_bytes bytes = {0};
    struct log_contents contents;
    struct rng rng = {.state = {4, 3, 2, 1}};

    cr_assert_eq(log_contents_encode(&bytes, filter, LOG_CONTENTS_MAX), 0);
    for (size_t len = 0; len < bytes.len; len++) {
        unsigned char *copy = malloc(len ? len : 1);
        memcpy(copy, bytes.ptr, len);
        cr_assert_not(log_contents_decode(copy, len, &contents), "%zu of %zu bytes", len, bytes.len);
        free(copy);
    }
    for (int round = 0; round < 20000; round++) {
        size_t at = rng_below(&rng, bytes.len);
        unsigned char before = bytes.ptr[at];
        bytes.ptr[at] = (unsigned char)rng_next(&rng);
        if (log_contents_decode(bytes.ptr, bytes.len, &contents)) {
            uint64_t words = 0;
            cr_assert(contents.nlayers >= 1 && contents.nlayers <= BLOOM_MAX_LAYERS);
            for (unsigned i = 0; i < contents.nlayers; i++) {
                const struct log_layer *layer = &contents.layers[i];
                cr_assert(layer->words >= bytes.ptr && layer->words + 8 * layer->shape.nwords <= bytes.ptr + bytes.len);
                cr_assert(bloom_shape_valid(&layer->shape, NULL));
                words += layer->shape.nwords;
            }
            cr_assert_leq(words, LOG_CONTENTS_MAX / 8);
        }
        bytes.ptr[at] = before;
    }
    cr_assert_eq(log_bytes_append(&bytes, "", 1), 0);
    cr_assert_not(log_contents_decode(bytes.ptr, bytes.len, &contents), "a byte more");
    log_bytes_deinit(&bytes);
    filter_free(filter);
}

/* Layers that are small each and too large together; no daemon writes them. */
Test(log_contents, more_than_a_record_may_have_is_refused)
{
    enum { WORDS = LOG_CONTENTS_MAX / 16 + 1, LAYER = 2 + 2 + 8 * WORDS + 1 };
    unsigned char *bytes = calloc(1, 1 + 2 * LAYER);
    struct log_contents contents;

    for (unsigned nlayers = 1; nlayers <= 2; nlayers++) {
        size_t at = 1 + (nlayers - 1) * (size_t)LAYER; /* of its last layer */
        bytes[0] = (unsigned char)nlayers;
        bytes[at] = 3;
        bytes[at + 2] = (unsigned char)(WORDS | 0x80); /* after the layout na */
        bytes[at + 3] = WORDS >> 7;
        cr_assert_eq(log_contents_decode(bytes, 1 + nlayers * LAYER, &contents), nlayers == 1);
    }
    free(bytes);
}

Test(log_contents, without_memory_nothing_is_appended_or_made_up)
{
    struct bloom_filter *filter = filled(&cases[3].params, cases[3].items);
    struct log_bytes bytes = {0};
    struct log_contents contents;
    struct errbuf err = {""};

    alloc_countdown_start(0);
    cr_assert_eq(log_contents_encode(&bytes, filter, LOG_CONTENTS_MAX), -ENOMEM);
    cr_assert(alloc_countdown_stop());
    cr_assert_eq(bytes.len, 0u);
    cr_assert_eq(log_contents_encode(&bytes, filter, LOG_CONTENTS_MAX), 0);
    cr_assert(log_contents_decode(bytes.ptr, bytes.len, &contents));
    bool failed = true;
    for (size_t n = 0; failed; n++) {
        struct bloom_filter *again = filter_make(pool, &cases[3].params, &contents.layers[0].shape);
        alloc_countdown_start(n);
        int rc = log_contents_fill(&contents, again, &err);
        failed = alloc_countdown_stop();
        cr_assert_eq(rc, failed ? -ENOMEM : 0);
        filter_free(again);
    }
    log_bytes_deinit(&bytes);
    filter_free(filter);
}
