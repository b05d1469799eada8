/* The layout valkey against what valkey-bloom recorded: hashes, positions, sizes, and whole filters that are made again
 * from their items. */
#include <criterion/criterion.h>

#include <string.h>

#include "bloom_batch.h"
#include "bloom_find.h"
#include "bloom_layer.h"
#include "bloom_merge.h"
#include "bloom_plan.h"
#include "bloom_state.h"
#include "bloom_vector.h"
#include "pool_rig.h"
#include "rng.h"
#include "valkey.h"
#include "valkey_recordings.h"

TestSuite(valkey, .init = setup, .fini = teardown);

static struct bloom_seed seed_of(const char *hex)
{
    struct bloom_seed seed;

    for (unsigned i = 0; i < BLOOM_SEED_BYTES; i++) {
        unsigned byte;
        cr_assert_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        seed.bytes[i] = (unsigned char)byte;
    }
    return seed;
}

/* ---- vectors ---- */

static void check_positions(const char *text, struct bloom_hash hash)
{
    unsigned long long bits;
    unsigned k;
    int used;

    cr_assert_eq(sscanf(text, " | m=%llu k=%u:%n", &bits, &k, &used), 2, "%s", text);
    struct bloom_shape shape;
    struct errbuf err = {""};
    struct bloom_geometry geometry;
    uint64_t plain[BLOOM_PROBE_BITS];
    cr_assert_eq(valkey_shape(1000, 0.01, bits / 8, k, &shape, &err), BLOOM_OK, "%s", err.text);
    bloom_geometry_init(&geometry, &shape, 0, 0, 0);
    bool vectors = bloom_vector_enabled;
    for (int pass = 0; pass < 2; pass++) {
        bloom_vector_enable(pass);
        bloom_geometry_bits(&geometry, hash, plain);
        const char *at = text + used;
        for (unsigned i = 0; i < k; i++)
            cr_expect_eq(plain[i], strtoull(at, (char **)&at, 10), "position %u of m=%llu", i, bits);
    }
    bloom_vector_enable(vectors);
}

Test(valkey, hashes_positions_and_sizes_are_the_recorded_ones)
{
    size_t len;
    char *text = (char *)golden_file(&len, "%s/vectors.txt", VALKEY_GOLDEN);
    unsigned hashes = 0, sizes = 0;

    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long long h1, h2, capacity, bytes;
        double rate;
        unsigned k;
        if (line[0] == '#')
            continue;
        if (sscanf(line, "%llu %lf -> %llu %u", &capacity, &rate, &bytes, &k) == 4) {
            struct bloom_shape shape;
            int rc = valkey_size(0, capacity, rate, &shape, NULL);
            cr_expect_eq(rc, k > BLOOM_MAX_HASHES ? BLOOM_REFUSED : BLOOM_OK, "%s", line);
            if (rc == BLOOM_OK)
                cr_expect(bloom_shape_bytes(&shape) == bytes && shape.k == k, "%s", line);
            sizes++;
            continue;
        }
        struct bloom_seed seed = seed_of(line);
        char *item = line + 2 * BLOOM_SEED_BYTES + 1, *end = strchr(item, ' '), *positions = strchr(end, '|') - 1;
        cr_assert_eq(sscanf(end, "%llx %llx", &h1, &h2), 2, "%s", line);
        *end = '\0';
        size_t n = strcmp(item, "-") == 0 ? 0 : golden_unhex(item);
        struct bloom_hash hash = valkey_hash(&seed, item, n);
        cr_expect(hash.h1 == h1 && hash.h2 == h2, "an item of %zu bytes", n);
        for (; positions; positions = strchr(positions + 2, '|') ? strchr(positions + 2, '|') - 1 : NULL)
            check_positions(positions, hash);
        hashes++;
    }
    cr_assert(hashes >= 24 && sizes >= 12, "%u hashes, %u sizes", hashes, sizes);
    free(text);
}

/* The sums that are not below the prime are 59 in 2^64: none of the recorded ones is. */
Test(valkey, sums_are_reduced_by_the_prime)
{
    struct bloom_shape shape;
    struct bloom_geometry geometry;
    bool vectors = bloom_vector_enabled;

    cr_assert_eq(valkey_shape(1000, 0.01, 100003, 20, &shape, NULL), BLOOM_OK);
    bloom_geometry_init(&geometry, &shape, 0, 0, 0);
    for (int pass = 0; pass < 2; pass++) {
        bloom_vector_enable(pass);
        for (uint64_t i = 0; i < 20; i++) {
            for (uint64_t wanted = BLOOM_WALK_MODULUS - 2; wanted >= BLOOM_WALK_MODULUS - 2; wanted++) {
                const struct bloom_hash hash = {wanted - i * 0x123456789abcdef7, 0x123456789abcdef7};
                uint64_t bit[BLOOM_PROBE_BITS];
                uint64_t sum = i < 2 ? (i ? hash.h2 : hash.h1) : wanted % BLOOM_WALK_MODULUS;

                bloom_geometry_bits(&geometry, hash, bit);
                cr_assert_eq(bit[i], sum % (8 * 100003), "step %d of a sum of %llx", (int)i,
                             (unsigned long long)wanted);
            }
        }
    }
    bloom_vector_enable(vectors);
}

Test(valkey, many_items_have_the_hashes_of_one)
{
    struct rng rng;
    char bytes[BLOOM_BATCH][80];

    rng_init(&rng, 37);

    for (int round = 0; round < 2000; round++) {
        struct bloom_item items[BLOOM_BATCH];
        uint64_t h1[BLOOM_BATCH], h2[BLOOM_BATCH];
        size_t n = rng_below(&rng, BLOOM_BATCH + 1), most = rng_below(&rng, 3) ? 20 : 80;

        for (size_t i = 0; i < n; i++) {
            items[i] = (struct bloom_item){bytes[i], rng_below(&rng, most)};
            rng_fill(&rng, bytes[i], items[i].len);
        }
        valkey_hashes(&valkey_fixed_seed, items, n, h1, h2);
        for (size_t i = 0; i < n; i++) {
            struct bloom_hash hash = valkey_hash(&valkey_fixed_seed, items[i].ptr, items[i].len);
            cr_assert(hash.h1 == h1[i] && hash.h2 == h2[i], "item %zu of %zu", i, n);
        }
    }
}

/* ---- recorded filters ---- */

static uint64_t number(const unsigned char **at, size_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, *at, bytes);
    *at += bytes;
    return value;
}

static double real(const unsigned char **at)
{
    double value;

    memcpy(&value, *at, 8);
    *at += 8;
    return value;
}

/* The filter's parameters, and its layers, as its payload of BF.LOAD has them. */
struct recorded {
    struct bloom_params params;
    unsigned nlayers;
    struct {
        const unsigned char *bits;
        uint64_t bytes, k, items, capacity;
    } layers[BLOOM_MAX_LAYERS];
    unsigned char *file;
};

static void recorded_read(struct recorded *r, const char *name)
{
    size_t len;
    const unsigned char *at = r->file = golden_file(&len, "%s/%s/load.bin", VALKEY_GOLDEN, name);

    cr_assert_eq(number(&at, 1), 1);
    r->params = (struct bloom_params){.expansion = (uint32_t)number(&at, 4), .redisbloom = BLOOM_OPTION_VALKEY};
    r->params.error_rate = real(&at);
    r->params.tightening = real(&at);
    number(&at, 1);
    r->nlayers = (unsigned)number(&at, 8);
    for (unsigned i = 0; i < r->nlayers; i++) {
        at += 9;
        r->layers[i].bytes = number(&at, 8);
        r->layers[i].k = number(&at, 4);
        memcpy(&r->params.seed, at, BLOOM_SEED_BYTES);
        r->layers[i].bits = at + BLOOM_SEED_BYTES;
        at += BLOOM_SEED_BYTES + r->layers[i].bytes;
        r->layers[i].items = number(&at, 8);
        r->layers[i].capacity = number(&at, 8);
    }
    r->params.capacity = r->layers[0].capacity;
    cr_assert_eq(at, r->file + len);
}

/* The items of a file of hexadecimal lines, an empty one being an empty item. */
static size_t items_read(const char *name, const char *file, char **text_out, struct bloom_item **items_out)
{
    size_t len, n = 0;
    char *text = (char *)golden_file(&len, "%s/%s/%s", VALKEY_GOLDEN, name, file);

    *items_out = malloc((len + 1) * sizeof(**items_out));
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        (*items_out)[n].len = *at ? golden_unhex(at) : 0;
        (*items_out)[n++].ptr = at;
    }
    *text_out = text;
    return n;
}

static void add_all(struct bloom_filter *filter, const char *name)
{
    struct bloom_item *items;
    char *text;
    size_t n = items_read(name, "items.hex", &text, &items), len;
    char *replies = (char *)golden_file(&len, "%s/%s/add_replies.txt", VALKEY_GOLDEN, name), *at = replies;

    for (size_t i = 0; i < n && *at; i++, at += 2) {
        enum bloom_add answer = bloom_filter_add(filter, bloom_filter_hash(filter, items[i].ptr, items[i].len), NULL);
        cr_assert_eq(answer, *at == 'E' ? BLOOM_FULL : *at - '0', "%s: item %zu", name, i);
        if (*at == 'E')
            break;
    }
    free(replies);
    free(items);
    free(text);
}

static void check_layers(struct bloom_filter *filter, const struct recorded *r, const char *name)
{
    cr_assert_eq(bloom_filter_nlayers(filter), r->nlayers, "%s", name);
    for (unsigned i = 0; i < r->nlayers; i++) {
        struct bloom_layer_view view;
        unsigned char *bits = malloc(r->layers[i].bytes);

        bloom_filter_layer(filter, i, &view);
        cr_assert_eq(bloom_shape_bytes(&view.shape), r->layers[i].bytes, "%s: layer %u", name, i);
        bloom_filter_get_bytes(filter, i, 0, bits, r->layers[i].bytes);
        cr_expect_arr_eq(bits, r->layers[i].bits, r->layers[i].bytes, "%s: layer %u", name, i);
        cr_expect_eq(view.shape.k, r->layers[i].k, "%s: layer %u", name, i);
        cr_expect_eq(view.items, r->layers[i].items, "%s: layer %u", name, i);
        cr_expect_eq(view.capacity, r->layers[i].capacity, "%s: layer %u", name, i);
        free(bits);
    }
}

static void check_answers(struct bloom_filter *filter, const char *name)
{
    struct bloom_item *items;
    char *text;
    size_t n = items_read(name, "probes.hex", &text, &items), len;
    char *answers = (char *)golden_file(&len, "%s/%s/answers.txt", VALKEY_GOLDEN, name);

    cr_assert(n > 0 && len == 2 * n, "%s", name);
    for (size_t from = 0; from < n; from += BLOOM_BATCH) {
        struct bloom_batch batch;
        size_t some = n - from < BLOOM_BATCH ? n - from : BLOOM_BATCH;

        bloom_batch_start(&batch, filter, items + from, some);
        uint32_t present = bloom_batch_query(&batch, filter);
        for (size_t i = 0; i < some; i++) {
            bool expected = answers[2 * (from + i)] == '1';
            struct bloom_hash hash = bloom_filter_hash(filter, items[from + i].ptr, items[from + i].len);
            cr_assert_eq(present >> i & 1, expected, "%s: probe %zu in a batch", name, from + i);
            cr_assert_eq(bloom_filter_query(filter, hash), expected, "%s: probe %zu", name, from + i);
        }
    }
    free(answers);
    free(items);
    free(text);
}

Test(valkey, recorded_filters_are_made_again_from_their_items)
{
    bool vectors = bloom_vector_enabled;

    for (size_t i = 0; i < 2 * VALKEY_NFILTERS; i++) {
        const char *name = VALKEY_FILTERS[i / 2];
        static struct recorded r;
        struct errbuf err = {""};

        bloom_vector_enable(i % 2);
        bloom_vector_enable(i % 2);
        recorded_read(&r, name);
        cr_assert(bloom_params_valid(&r.params, &err), "%s: %s", name, err.text);
        struct bloom_filter *filter = filter_make(pool, &r.params, NULL);
        add_all(filter, name);
        check_layers(filter, &r, name);
        check_answers(filter, name);
        filter_free(filter);
        free(r.file);
    }
    bloom_vector_enable(vectors);
}

/* ---- the properties of all layouts ---- */

static struct bloom_params params_with(unsigned char first_of_seed)
{
    return (struct bloom_params){.capacity = 1000,
                                 .error_rate = 0.01,
                                 .expansion = 2,
                                 .redisbloom = BLOOM_OPTION_VALKEY,
                                 .tightening = 0.5,
                                 .seed.bytes[0] = first_of_seed};
}

Test(valkey, impossible_parameters_are_refused)
{
    const struct {
        struct bloom_params change;
        const char *reason;
    } bad[] = {
        {{.tightening = 0}, "tightening ratio"},
        {{.tightening = 1}, "tightening ratio"},
        {{.tightening = 0.5, .key = 7}, "cannot be KEYED: it has a secret of its own, its seed"},
        {{.tightening = 0.5, .window = 1000000, .window_parts = 2}, "not LAYOUT redisbloom or valkey"},
        {{.tightening = 0.5, .redisbloom = REDISBLOOM_FORCE64}, "unknown options 36"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct bloom_params params = params_with(1);
        struct errbuf err = {""};

        params.tightening = bad[i].change.tightening;
        params.key = bad[i].change.key;
        params.window = bad[i].change.window;
        params.window_parts = bad[i].change.window_parts;
        params.redisbloom |= bad[i].change.redisbloom;
        cr_expect(!bloom_params_valid(&params, &err) && strstr(err.text, bad[i].reason), "%s: %s", bad[i].reason,
                  err.text);
    }
    struct bloom_params large = params_with(1);
    large.expansion = UINT32_MAX;
    cr_expect(bloom_params_valid(&large, NULL), "valkey-bloom takes any expansion of 32 bits");
}

Test(valkey, the_rate_of_a_layer_ends_before_zero)
{
    struct bloom_params params = params_with(1);
    struct errbuf err = {""};

    params.capacity = 1;
    params.error_rate = 0.5;
    params.tightening = 1e-200;
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    cr_assert_eq(bloom_filter_add(filter, bloom_filter_hash(filter, "a", 1), &err), BLOOM_ADDED);
    cr_expect_eq(bloom_filter_add(filter, bloom_filter_hash(filter, "b", 1), &err), BLOOM_NO_ROOM);
    cr_expect(strstr(err.text, "hashes"), "%s", err.text);
    filter_free(filter);
    struct bloom_shape shape;
    cr_expect_eq(valkey_size(0, 1, 1e-308, &shape, &err), BLOOM_REFUSED);
    cr_expect_str_eq(err.text, "false positive degrades to 0 on scale out");
}

Test(valkey, only_equal_seeds_have_a_union)
{
    struct bloom_params params[2] = {params_with(1), params_with(2)};
    struct bloom_filter *a = filter_make(pool, &params[0], NULL), *b = filter_make(pool, &params[1], NULL),
                        *c = filter_make(pool, &params[0], NULL);
    struct errbuf err = {""};

    cr_expect_eq(bloom_filter_same_layout(a, c, &err), BLOOM_OK, "%s", err.text);
    cr_expect_eq(bloom_filter_class_of(a), bloom_filter_class_of(c));
    cr_expect_eq(bloom_filter_same_layout(a, b, &err), BLOOM_REFUSED);
    cr_expect(strstr(err.text, "seeds differ"), "%s", err.text);
    filter_free(a);
    filter_free(b);
    filter_free(c);
}

/* Each filter has a hash of its own, and some have several layers. */
Test(valkey, a_search_hashes_under_the_seed_of_each_filter)
{
    struct bloom_filter *filters[40];
    uint64_t found[BLOOM_FIND_WORDS(40)];
    char name[16];

    for (unsigned i = 0; i < 40; i++) {
        struct bloom_params params = params_with((unsigned char)i);
        params.redisbloom = i % 5 == 4 ? 0 : params.redisbloom;
        if (!params.redisbloom) {
            params.tightening = 0;
            params.seed = (struct bloom_seed){{0}};
        }
        params.capacity = 10;
        params.error_rate = 1e-9;
        filters[i] = filter_make(pool, &params, NULL);
        for (unsigned j = 0; j < 5 * (i % 7); j++) {
            int len = snprintf(name, sizeof(name), "%u", i + j);
            cr_assert_leq(bloom_filter_add(filters[i], bloom_filter_hash(filters[i], name, (size_t)len), NULL),
                          BLOOM_ADDED);
        }
    }
    for (unsigned item = 0; item < 80; item++) {
        int len = snprintf(name, sizeof(name), "%u", item);
        const struct bloom_item asked = {name, (size_t)len};
        size_t n = bloom_find(&asked, (const struct bloom_filter *const *)filters, 40, found), expected = 0;

        for (unsigned i = 0; i < 40; i++) {
            bool has = item >= i && item < i + 5 * (i % 7);
            expected += has;
            cr_assert_eq(found[0] >> i & 1, has, "item %u, filter %u", item, i);
        }
        cr_expect_eq(n, expected);
    }
    for (unsigned i = 0; i < 40; i++)
        filter_free(filters[i]);
}

Test(valkey, a_plan_has_the_layers_that_grow)
{
    struct bloom_params params = params_with(3);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    static struct bloom_plan plan;
    struct errbuf err = {""};

    for (uint64_t i = 0; i < 20000; i++)
        cr_assert_leq(bloom_filter_add(filter, bloom_filter_hash(filter, &i, sizeof(i)), &err), BLOOM_ADDED);
    cr_assert_eq(bloom_plan(&params, bloom_filter_items(filter), &plan, &err), BLOOM_OK, "%s", err.text);
    cr_assert_eq(plan.nlayers, bloom_filter_nlayers(filter));
    for (unsigned i = 0; i < plan.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        cr_expect(plan.layers[i].capacity == view.capacity && plan.layers[i].nwords == view.shape.nwords &&
                      plan.layers[i].k == view.shape.k && plan.layers[i].error_rate == view.error_rate,
                  "layer %u", i);
    }
    filter_free(filter);
}

/* What BF.INFO and BF.PLAN say of a rate: a bound in small filters, close in others. */
Test(valkey, predicted_rates_hold)
{
    static const struct {
        uint64_t capacity;
        double rate;
        unsigned filters;
    } cases[] = {{3, 0.1, 400}, {10, 0.01, 400}, {100, 0.01, 100}, {1000, 0.001, 40}, {10000, 0.01, 4}};

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        double present = 0, asked = 0, predicted = 0;
        for (unsigned f = 0; f < cases[c].filters; f++) {
            struct bloom_params params = params_with((unsigned char)f);
            params.capacity = cases[c].capacity;
            params.error_rate = cases[c].rate;
            params.expansion = 0;
            params.seed.bytes[31] = (unsigned char)(1 + (f >> 8)); /* equal halves: equal hashes */
            struct bloom_filter *filter = filter_make(pool, &params, NULL);
            struct bloom_layer_view view;
            for (uint64_t i = 0; i < cases[c].capacity; i++)
                cr_assert_leq(bloom_filter_add(filter, bloom_filter_hash(filter, &i, 8), NULL), BLOOM_ADDED);
            for (uint64_t i = 0; i < 20000; i++, asked++) {
                uint64_t item = i + (UINT64_C(1) << 40);
                present += bloom_filter_query(filter, bloom_filter_hash(filter, &item, 8));
            }
            bloom_filter_layer(filter, 0, &view);
            predicted += bloom_shape_rate(&view.shape, view.items);
            filter_free(filter);
        }
        predicted /= cases[c].filters;
        cr_expect(present / asked < 1.15 * predicted && present / asked > predicted / 3, "%g for %zu: measured %g",
                  predicted, (size_t)cases[c].capacity, present / asked);
    }
}
