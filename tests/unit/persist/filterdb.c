#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"
#include "bloom_layout.h"
#include "golden.h"
#include "valkey.h"

#define GOLDEN BLOOMERY_GOLDEN_DIR

static const char *const built[] = {
    "emptykey_n1_p0.1",   "longkeys_p0.01", "n100000_p0.01",      "n10000_p0.01_int",
    "n1000_p0.05_uuid",   "n1000_p0.9",     "n1000_pmin",         "n100_p0.01_mixed",
    "n10_p0.02",          "n1_p0.01",       "n45_p0.01",          "n50000_p0.5_int",
    "n5000_p0.001_ascii", "n5_p0.1_int",    "nokeys_n1000_p0.01", "overfull_n100_p0.01",
};

/* A file decoded and encoded again has the same bytes; the words of one filter's three variants differ only where the
 * variants do. */
Test(filterdb, every_golden_file_survives_decode_and_encode)
{
    for (size_t i = 0; i < sizeof(built) / sizeof(*built); i++) {
        for (int variant = BLOOM_NA; variant <= BLOOM_KA; variant++) {
            struct bloom_shape shape;
            struct errbuf err = {{0}};
            size_t len;
            unsigned char *file = golden_file(&len, "%s/built/%s/Filter.%s.db", GOLDEN, built[i],
                                              bloom_variant_name((enum bloom_variant)variant));
            cr_assert_eq(filterdb_decode_header(file, len, (enum bloom_variant)variant, &shape, &err), FILTERDB_OK,
                         "%s: %s", built[i], err.text);
            cr_assert_eq(filterdb_bytes(shape.nwords), len);
            cr_assert_eq(shape.variant, variant);

            struct golden_filter golden;
            golden_filter_parse(&golden, file, len, variant != BLOOM_NA);
            _Atomic uint64_t *words = calloc(shape.nwords, 8);
            unsigned char *again = malloc(len);
            filterdb_decode_words((enum bloom_variant)variant, file + 8, shape.nwords, words);
            cr_assert_eq(memcmp((const void *)words, golden.words, 8 * shape.nwords), 0, "%s: words", built[i]);
            filterdb_encode_header(&shape, again);
            filterdb_encode_words((enum bloom_variant)variant, words, shape.nwords, again + 8);
            cr_assert_eq(memcmp(file, again, len), 0, "%s, variant %d", built[i], variant);
            free(golden.words);
            free((void *)words);
            free(again);
            free(file);
        }
    }
}

Test(filterdb, every_malformed_file_is_refused_and_the_reason_given)
{
    static const struct {
        const char *name;
        const char *reason; /* NULL: it is well-formed */
    } table[] = {
        {"empty_file", "empty file"},
        {"header_4_bytes", "4 bytes, shorter than the header of 8"},
        {"header_7_bytes", "7 bytes, shorter than the header of 8"},
        {"words_0", "word count 0 is not in 1..2147483647"},
        {"words_neg1", "word count -1 is not in 1..2147483647"},
        {"body_missing", "truncated: 40 bytes expected, 8 found"},
        {"body_half", "truncated: 40 bytes expected, 24 found"},
        {"trailing_5_bytes", "5 bytes behind the 4 words it announces"},
        {"k_0", "hash count 0 is not in 1..21"},
        {"k_21", NULL},
        {"k_22", "hash count 22 is not in 1..21"},
        {"k_14_zero_bits", NULL},
        {"words_int_max", "truncated: 17179869184 bytes expected, 40 found"},
        {"words_5_for_4", "truncated: 48 bytes expected, 40 found"},
        {"ok_4_words", NULL},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct bloom_shape shape = {.nwords = 4711};
        struct errbuf err = {{0}};
        size_t len;
        unsigned char *file = golden_file(&len, "%s/malformed/%s.db", GOLDEN, table[i].name);
        int rc = filterdb_decode_header(file, len, BLOOM_ME, &shape, &err);

        free(file);
        cr_assert_eq(rc, table[i].reason ? FILTERDB_MALFORMED : FILTERDB_OK, "%s", table[i].name);
        cr_assert_str_eq(err.text, table[i].reason ? table[i].reason : "", "%s", table[i].name);
        cr_assert_eq(shape.nwords, table[i].reason ? 4711 : 4, "%s", table[i].name);
    }
}

Test(filterdb, the_limits_of_the_header_are_exact)
{
    static const struct {
        unsigned char header[8];
        uint64_t size;
        int rc;
    } table[] = {
        {{0, 0, 0, 1, 0, 0, 0, 1}, 16, FILTERDB_OK},
        {{0, 0, 0, 21, 0x7f, 0xff, 0xff, 0xff}, 8 + 8 * UINT64_C(0x7fffffff), FILTERDB_OK},
        {{0, 0, 0, 21, 0x7f, 0xff, 0xff, 0xff}, 7 + 8 * UINT64_C(0x7fffffff), FILTERDB_MALFORMED},
        {{0, 0, 0, 21, 0x7f, 0xff, 0xff, 0xff}, 9 + 8 * UINT64_C(0x7fffffff), FILTERDB_MALFORMED},
        {{0, 0, 0, 1, 0x80, 0, 0, 0}, 8 + 8 * UINT64_C(0x80000000), FILTERDB_MALFORMED},
        {{0, 0, 1, 1, 0, 0, 0, 1}, 16, FILTERDB_MALFORMED},
        {{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, 16, FILTERDB_MALFORMED},
        {{1, 0, 0, 5, 0, 0, 0, 1}, 16, FILTERDB_MALFORMED},
        {{0, 0, 0, 5, 0, 0, 0, 2}, 23, FILTERDB_MALFORMED},
        {{0, 0, 0, 5, 0, 0, 0, 2}, 25, FILTERDB_MALFORMED},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct bloom_shape shape;
        cr_assert_eq(filterdb_decode_header(table[i].header, table[i].size, BLOOM_NA, &shape, NULL), table[i].rc,
                     "row %zu", i);
    }
}

Test(filterdb, variants_are_named_by_two_letters)
{
    enum bloom_variant variant;

    cr_assert(filterdb_variant_parse("me", 2, &variant) == FILTERDB_OK && variant == BLOOM_ME);
    cr_assert(filterdb_variant_parse("na", 2, &variant) == FILTERDB_OK && variant == BLOOM_NA);
    cr_assert(filterdb_variant_parse("ka", 2, &variant) == FILTERDB_OK && variant == BLOOM_KA);
    cr_assert_eq(filterdb_variant_parse("mc", 2, &variant), FILTERDB_MALFORMED);
    cr_assert_eq(filterdb_variant_parse("na2", 3, &variant), FILTERDB_MALFORMED);
    cr_assert_eq(filterdb_variant_parse("n", 1, &variant), FILTERDB_MALFORMED);
    cr_assert_eq(filterdb_variant_parse("", 0, &variant), FILTERDB_MALFORMED);
}

Test(filterdb, the_name_of_an_sstable_tells_the_variant)
{
    static const struct {
        const char *path;
        int variant;
    } table[] = {
        {"nb-1-big-Filter.db", BLOOM_NA},
        {"/var/lib/cassandra/data/ks/t-1234/nb-17-big-Filter.db", BLOOM_NA},
        {"na-1-big-Filter.db", BLOOM_NA},
        {"nc-1-big-Filter.db", BLOOM_NA},
        {"oa-3gf9_0tvq_1xyz-big-Filter.db", BLOOM_NA},
        {"da-2-bti-Filter.db", BLOOM_NA}, /* not older than ma: another family */
        {"aa-1-bti-Filter.db", BLOOM_ME},
        {"ac-1-bti-Filter.db", BLOOM_ME},
        {"ad-1-bti-Filter.db", BLOOM_ME},
        {"ab-1-bti-Filter.db", BLOOM_NA},
        {"b-1-bti-Filter.db", BLOOM_NA},
        {"ba-1-bti-Filter.db", BLOOM_NA},
        {"bb-1-bti-Filter.db", BLOOM_NA},
        {"ca-1-bti-Filter.db", BLOOM_NA},
        {"cb-1-bti-Filter.db", BLOOM_NA},
        {"cc-2-bti-Filter.db", BLOOM_NA},
        {"ma-3-big-Filter.db", BLOOM_ME},
        {"mb-3-big-Filter.db", BLOOM_ME},
        {"mc-122-big-Filter.db", BLOOM_ME},
        {"md-1-big-Filter.db", BLOOM_ME},
        {"me-1-big-Filter.db", BLOOM_ME},
        {"ms-1-big-Filter.db", BLOOM_ME},
        {"mt-3-big-Filter.db", BLOOM_ME},
        {"la-1-big-Filter.db", BLOOM_KA},
        {"lb-1-big-Filter.db", BLOOM_KA},
        {"ks-cf-ka-1-Filter.db", BLOOM_KA},
        {"Keyspace1-Standard1-jb-0-Filter.db", BLOOM_KA},
        {"Keyspace1-Standard1-ja-0-Filter.db", BLOOM_KA},
        {"Keyspace1-Standard1-ic-0-Filter.db", BLOOM_KA},
        {"Keyspace1-Standard1-ib-0-Filter.db", BLOOM_KA},
        {"Keyspace1-Standard1-ia-0-Filter.db", BLOOM_KA},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        enum bloom_variant variant;
        struct errbuf err = {{0}};
        cr_assert_eq(filterdb_variant_from_path(table[i].path, &variant, &err), FILTERDB_OK, "%s: %s", table[i].path,
                     err.text);
        cr_assert_eq((int)variant, table[i].variant, "%s", table[i].path);
    }
}

Test(filterdb, other_names_are_refused_and_the_reason_given)
{
    static const struct {
        const char *path;
        const char *reason;
    } table[] = {
        {"Filter.db", "is not the name"},
        {"", "is not the name"},
        {"nb-1-big-Data.db", "is not the name"},
        {"nb-1-big-Filter.db/", "is not the name"},
        {"-Filter.db", "is not the name"},
        {"nb-1-big-Filter.db.bak", "is not the name"},
        {"big-Filter.db", "is not the name"},
        {"1-big-Filter.db", "is not the name"},
        {"nb--big-Filter.db", "is not the name"},
        {"NB-1-big-Filter.db", "is not the name"},
        {"nb-1-Filter.db", "is not the name"},
        {"ks-cf-nb-1-big-Filter.db", "is not the name"},
        {"Keyspace1-Standard1-hf-0-Filter.db", "'hf' is older than Cassandra 1.2"},
        {"Keyspace1-Super5-f-2-Filter.db", "'f' is older than Cassandra 1.2"},
        {"zz-1-big-Filter.db", "version 'zz' of format big is unknown"},
        {"mx-1-big-Filter.db", "version 'mx' of format big is unknown"},
        {"da-1-big-Filter.db", "'da' is older"},
        {"nb-1-bti-Filter.db", "version 'nb' of format bti is unknown"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        enum bloom_variant variant;
        struct errbuf err = {{0}};
        cr_assert_eq(filterdb_variant_from_path(table[i].path, &variant, &err), FILTERDB_MALFORMED, "%s",
                     table[i].path);
        cr_assert(strstr(err.text, table[i].reason), "%s: %s", table[i].path, err.text);
    }
}

/* A file of a layer in valkey-bloom's layout has all that a reader needs: also the seed. */
Test(filterdb, a_file_of_bits_has_the_seed_and_impossible_ones_are_refused)
{
    const struct bloom_params params = {100, 0.01, 3, BLOOM_OPTION_VALKEY, .tightening = 0.25, .seed = {"secret"}};
    unsigned char file[BITS_FILE_HEADER_BYTES + 120] = {0};
    struct bloom_params found;
    struct bloom_shape shape, again;
    struct errbuf err = {""};
    uint64_t items;

    cr_assert_eq(valkey_size(0, 100, 0.01, &shape, NULL), BLOOM_OK);
    cr_assert_eq(export_file_bytes(&shape), sizeof(file));
    cr_assert_eq(export_file_header(&params, &shape, 17, file), BITS_FILE_HEADER_BYTES);
    cr_assert_eq(bits_file_decode_header(file, sizeof(file), &found, &again, &items, &err), BLOOM_OK, "%s", err.text);
    cr_assert(items == 17 && bloom_shape_equal(&shape, &again) && found.expansion == 3 && found.tightening == 0.25 &&
              bloom_seed_equal(&found.seed, &params.seed));
    cr_assert_eq(bits_file_decode_header(file, sizeof(file) - 1, &found, &again, &items, &err), BLOOM_REFUSED);
    cr_assert_eq(bits_file_decode_header(file, BITS_FILE_HEADER_BYTES - 1, &found, &again, &items, &err),
                 BLOOM_REFUSED);
    static const struct {
        unsigned at;
        unsigned char value;
    } damage[] = {{12, 36},   {20, 1},   {24, 16}, {39, 0x40}, {47, 0},
                  {48, 0xc1}, {56, 101}, {64, 0},  {68, 1},    {79, 0x40}};
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        unsigned char before = file[damage[i].at];
        file[damage[i].at] = damage[i].value;
        cr_expect_eq(bits_file_decode_header(file, sizeof(file), &found, &again, &items, &err), BLOOM_REFUSED,
                     "byte %u", damage[i].at);
        file[damage[i].at] = before;
    }
}
