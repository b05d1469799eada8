/* The store's file for the keys of a golden filter equals Cassandra's, byte for byte. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_layout.h"
#include "filterdb.h"
#include "golden.h"
#include "rig.h"
#include "tmpdir.h"

static const char *const built[] = {
    "emptykey_n1_p0.1",   "longkeys_p0.01", "n100000_p0.01",      "n10000_p0.01_int",
    "n1000_p0.05_uuid",   "n1000_p0.9",     "n1000_pmin",         "n100_p0.01_mixed",
    "n10_p0.02",          "n1_p0.01",       "n45_p0.01",          "n50000_p0.5_int",
    "n5000_p0.001_ascii", "n5_p0.1_int",    "nokeys_n1000_p0.01", "overfull_n100_p0.01",
};

static void add_keys(struct rig_filter *filter, const char *name)
{
    size_t len;
    char *text = (char *)golden_file(&len, BLOOMERY_GOLDEN_DIR "/built/%s/keys.hex", name);

    for (char *line = text; line < text + len;) {
        char *end = strchr(line, '\n');
        *end = '\0';
        size_t bytes = golden_unhex(line);
        bloom_filter_add(filter->filter, murmur3_hash(line, bytes), NULL);
        line = end + 1;
    }
    free(text);
}

Test(golden_store, saved_filters_are_cassandras_files)
{
    for (size_t i = 0; i < sizeof(built) / sizeof(*built); i++) {
        char dir[TMPDIR_SIZE];
        struct store *store;
        struct errbuf err = {{0}};
        struct rig rig;

        tmpdir_create(dir);
        rig_init(&rig);
        cr_assert_eq(rig_load(&rig, dir, NULL, 1, &store, &err), 0, "%s", err.text);
        for (int variant = BLOOM_NA; variant <= BLOOM_KA; variant++) {
            const char *name = bloom_variant_name((enum bloom_variant)variant);
            struct bloom_params params = {.capacity = 1000000, .error_rate = 0.01, .expansion = 0};
            struct bloom_shape shape;
            size_t len;
            unsigned char *file = golden_file(&len, BLOOMERY_GOLDEN_DIR "/built/%s/Filter.%s.db", built[i], name);
            cr_assert_eq(filterdb_decode_header(file, len, (enum bloom_variant)variant, &shape, &err), 0, "%s",
                         err.text);
            add_keys(rig_add(&rig, name, &params, &shape), built[i]);
            free(file);
        }
        cr_assert_eq(rig_save(&rig, store, NULL, &err), 0, "%s", err.text);
        for (int variant = BLOOM_NA; variant <= BLOOM_KA; variant++) {
            const char *name = bloom_variant_name((enum bloom_variant)variant);
            size_t expected_len, len;
            unsigned char *expected =
                golden_file(&expected_len, BLOOMERY_GOLDEN_DIR "/built/%s/Filter.%s.db", built[i], name);
            unsigned char *file = file_read(rig_place(NULL, dir, name, 0).path, &len);
            cr_assert(len == expected_len && memcmp(file, expected, len) == 0, "%s, %s", built[i], name);
            free(expected);
            free(file);
        }
        store_close(store);
        rig_deinit(&rig);
        tmpdir_remove(dir);
    }
}
