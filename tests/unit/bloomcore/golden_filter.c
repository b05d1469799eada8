/* Whole filters: built by Cassandra's code from known keys, and from real SSTables. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_batch.h"
#include "bloom_state.h"
#include "filters.h"
#include "golden.h"

static struct bloom_pool *pool;

/* A fixed filter of this shape for any number of items. */
static struct bloom_filter *filter_of(const struct bloom_shape *shape)
{
    return filter_make(pool, &(struct bloom_params){.capacity = UINT64_MAX, .error_rate = 0.5}, shape);
}

static void expect_words(const struct bloom_filter *filter, const struct golden_filter *golden, const char *name)
{
    struct bloom_layer_view view;

    bloom_filter_layer(filter, 0, &view);
    cr_assert_eq(view.shape.nwords, golden->nwords);
    for (uint64_t i = 0; i < golden->nwords; i++)
        cr_assert_eq(atomic_load(&view.words[i]), golden->words[i], "%s: word %llu", name, (unsigned long long)i);
}

/* The next keys of a file, with the value of one of its columns for each. */
struct keys {
    struct bloom_item items[BLOOM_BATCH];
    bool expected[BLOOM_BATCH];
    size_t n;
};

static bool keys_next(struct keys *keys, struct golden_lines *lines, size_t column)
{
    for (keys->n = 0; keys->n < BLOOM_BATCH && golden_lines_next(lines); keys->n++) {
        size_t len = golden_unhex(lines->fields[0]);
        char *copy = malloc(len + 1);

        memcpy(copy, lines->fields[0], len);
        keys->items[keys->n] = (struct bloom_item){copy, len};
        keys->expected[keys->n] = column != 0 && golden_u64(lines->fields[column]) != 0;
    }
    return keys->n > 0;
}

static void keys_free(struct keys *keys)
{
    for (size_t i = 0; i < keys->n; i++)
        free((void *)(uintptr_t)keys->items[i].ptr);
}

/* Adds the keys in one of three ways: all of them must set the same bits. */
static void add_by(unsigned way, struct bloom_filter *filter, const struct keys *keys)
{
    enum bloom_add refused;
    struct bloom_batch batch;
    uint32_t added;

    bloom_batch_start(&batch, filter, keys->items, keys->n);
    if (way == 2)
        cr_assert_eq(bloom_batch_add_all(&batch, 0, filter, NULL, NULL, &added, &refused), keys->n);
    for (size_t i = 0; i < keys->n; i++) {
        struct bloom_hash hash = murmur3_hash(keys->items[i].ptr, keys->items[i].len);

        if (way == 0)
            cr_assert_leq(bloom_filter_add(filter, hash, NULL), BLOOM_ADDED);
        else if (way == 1)
            cr_assert_leq(bloom_batch_add(&batch, i, filter, NULL, NULL), BLOOM_ADDED);
        cr_assert(bloom_filter_query(filter, hash));
    }
}

static size_t add_keys(struct bloom_filter *filter, const char *dir, const char *name)
{
    struct golden_lines lines;
    struct keys keys;
    size_t nkeys = 0;

    golden_lines_open(&lines, "%s/%s/keys.hex", dir, name);
    for (unsigned way = 0; keys_next(&keys, &lines, 0); way = (way + 1) % 3) {
        add_by(way, filter, &keys);
        nkeys += keys.n;
        keys_free(&keys);
    }
    golden_lines_close(&lines);
    return nkeys;
}

static void expect_probes(const struct bloom_filter *filter, const char *dir, const char *name, size_t column)
{
    struct golden_lines lines;
    struct keys keys;
    size_t rows = 0;

    golden_lines_open(&lines, "%s/%s/probes.tsv", dir, name);
    for (; keys_next(&keys, &lines, column); rows += keys.n) {
        struct bloom_batch batch;
        uint32_t present;

        bloom_batch_start(&batch, filter, keys.items, keys.n);
        present = bloom_batch_query(&batch, filter);
        for (size_t i = 0; i < keys.n; i++) {
            struct bloom_hash hash = murmur3_hash(keys.items[i].ptr, keys.items[i].len);

            cr_assert_eq(bloom_filter_query(filter, hash), keys.expected[i], "%s: row %zu", name, rows + i);
            cr_assert_eq((bool)(present >> i & 1), keys.expected[i], "%s: row %zu", name, rows + i);
        }
        keys_free(&keys);
    }
    cr_assert_gt(rows, 0);
    golden_lines_close(&lines);
}

static const struct {
    const char *name;
    enum bloom_variant variant;
} variants[] = {{"na", BLOOM_NA}, {"me", BLOOM_ME}, {"ka", BLOOM_KA}};

static void expect_built(const char *name)
{
    size_t len;
    unsigned char *meta = golden_file(&len, "%s/built/%s/meta.json", BLOOMERY_GOLDEN_DIR, name);

    for (size_t v = 0; v < 3; v++) {
        unsigned char *file =
            golden_file(&len, "%s/built/%s/Filter.%s.db", BLOOMERY_GOLDEN_DIR, name, variants[v].name);
        struct golden_filter golden;
        struct bloom_filter *filter;
        struct bloom_state state;

        golden_filter_parse(&golden, file, len, variants[v].variant != BLOOM_NA);
        filter = filter_of(&(struct bloom_shape){golden.nwords, (uint8_t)golden.k, (uint8_t)variants[v].variant});
        cr_assert_eq(add_keys(filter, BLOOMERY_GOLDEN_DIR "/built", name),
                     (size_t)golden_json_number((char *)meta, "keys"));
        expect_words(filter, &golden, name);
        expect_probes(filter, BLOOMERY_GOLDEN_DIR "/built", name, 1 + v);
        bloom_filter_state(filter, &state);
        cr_assert_eq(state.bits_set,
                     (uint64_t)golden_json_number((char *)meta, v == 2 ? "bits_set_ka" : "bits_set_na"));
        filter_free(filter);
        free(golden.words);
        free(file);
    }
    free(meta);
}

/* Calls `expect` for each directory in `path`; returns the number of directories. */
static unsigned for_each_case(const char *path, void (*expect)(const char *name))
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    unsigned n = 0;

    if (!dir)
        return 0;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] != '.') {
            expect(entry->d_name);
            n++;
        }
    }
    closedir(dir);
    return n;
}

Test(golden_filter, filters_rebuilt_from_their_keys_equal_cassandras_files)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(for_each_case(BLOOMERY_GOLDEN_DIR "/built", expect_built), 16);
    bloom_pool_destroy(pool);
}

static unsigned before_murmur3;

static void expect_real(const char *name)
{
    size_t len, meta_len;
    unsigned char *file = golden_file(&len, "%s/real/%s/Filter.db", BLOOMERY_SHARED_GOLDEN_DIR, name);
    char *meta = (char *)golden_file(&meta_len, "%s/real/%s/meta.json", BLOOMERY_SHARED_GOLDEN_DIR, name);
    struct golden_filter golden;
    struct bloom_filter *loaded, *rebuilt;
    struct bloom_layer_view view;
    char hash_name[64], layout[64], order[64];
    enum bloom_variant variant;

    golden_json_string(meta, "hash", hash_name, sizeof(hash_name));
    if (strcmp(hash_name, "murmur3_x64_128 cassandra variant") != 0) { /* before Cassandra 1.2: another hash */
        before_murmur3++;
        free(file);
        free(meta);
        return;
    }
    golden_json_string(meta, "word_layout", layout, sizeof(layout));
    golden_json_string(meta, "hash_order", order, sizeof(order));
    bool old_words = strncmp(layout, "big-endian", 10) == 0;
    variant = strcmp(order, "base=h1,increment=h2") == 0 ? BLOOM_KA : old_words ? BLOOM_ME : BLOOM_NA;
    golden_filter_parse(&golden, file, len, old_words);

    struct bloom_shape shape = {golden.nwords, (uint8_t)golden.k, (uint8_t)variant};
    loaded = filter_of(&shape);
    bloom_filter_layer(loaded, 0, &view);
    for (uint64_t i = 0; i < golden.nwords; i++)
        atomic_store(&view.words[i], golden.words[i]);
    expect_probes(loaded, BLOOMERY_SHARED_GOLDEN_DIR "/real", name, 1);

    rebuilt = filter_of(&shape);
    cr_assert_eq(add_keys(rebuilt, BLOOMERY_SHARED_GOLDEN_DIR "/real", name),
                 (size_t)golden_json_number(meta, "n_keys"));
    expect_words(rebuilt, &golden, name);

    /* The loaded filter has all keys: adding them changes nothing. */
    add_keys(loaded, BLOOMERY_SHARED_GOLDEN_DIR "/real", name);
    cr_assert_eq(bloom_filter_items(loaded), 0, "%s: a key was absent", name);

    /* The original's rate was measured with 100,000 foreign keys. Our rate, from the bits, must be close to it, or
     * above it because it includes an upper bound. 5 standard deviations. */
    struct bloom_state state;
    double observed = golden_json_number(meta, "observed_fpr_100k");
    bloom_filter_state(loaded, &state);
    cr_assert_geq(state.rate + 5 * sqrt((state.rate + 1e-5) / 1e5), observed, "%s: %g", name, state.rate);

    filter_free(loaded);
    filter_free(rebuilt);
    free(golden.words);
    free(file);
    free(meta);
}

Test(golden_filter, filters_of_real_sstables_hold_their_keys_and_are_rebuilt_bit_for_bit)
{
    unsigned cases;

    cr_assert_eq(bloom_pool_create(&pool), 0);
    cases = for_each_case(BLOOMERY_SHARED_GOLDEN_DIR "/real", expect_real);
    bloom_pool_destroy(pool);
    if (cases == 0)
        cr_skip("no filters of real SSTables in %s", BLOOMERY_SHARED_GOLDEN_DIR);
    cr_assert_geq(cases, before_murmur3 + 60);
}
