/* Filter.db files of others: a read in the file, one byte per bit, gives the bits of its words; a file that changes
 * while it is open is an error. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"
#include "rng.h"
#include "tmpdir.h"

#define BUILT BLOOMERY_GOLDEN_DIR "/built/n10000_p0.01_int"

TMPDIR_SUITE(dir, filter_file);

static struct filter_file open_built(const char *variant)
{
    struct filter_file file;
    struct errbuf err = {{0}};
    struct tmp_path copy = tmp_path(dir, "%s.db", variant);

    file_copy(tmp_path(BUILT, "Filter.%s.db", variant).text, copy.text);
    cr_assert_eq(filter_file_open(&file, fsops_posix(), copy.text, variant, &err), 0, "%s", err.text);
    return file;
}

/* Whether a filter in memory, made of the file's words, has the item. */
static bool in_memory(const struct filter_file *file, const _Atomic uint64_t *words, struct bloom_hash hash)
{
    uint64_t base = file->shape.variant == BLOOM_KA ? hash.h1 : hash.h2;
    uint64_t step = file->shape.variant == BLOOM_KA ? hash.h2 : hash.h1;

    for (unsigned i = 0; i < file->shape.k; i++, base += step) {
        int64_t rest = (int64_t)base % (int64_t)(64 * file->shape.nwords);
        uint64_t bit = (uint64_t)(rest < 0 ? -rest : rest);
        if (!(words[bit / 64] >> (bit % 64) & 1))
            return false;
    }
    return true;
}

Test(filter_file, an_item_is_in_the_file_as_in_its_words)
{
    static const char *const variants[] = {"na", "me", "ka"};
    struct rng rng;

    rng_init(&rng, 7);
    for (int v = 0; v < 3; v++) {
        struct filter_file file = open_built(variants[v]);
        _Atomic uint64_t *words = calloc(file.shape.nwords, 8);
        int found = 0;
        cr_assert_eq(filter_file_read(&file, 0, file.shape.nwords, words), 0);
        for (int i = 0; i < 20000; i++) {
            unsigned char item[4];
            rng_fill(&rng, item, sizeof(item));
            struct bloom_hash hash = murmur3_hash(item, i % 5 == 0 ? 0 : sizeof(item));
            int answer = filter_file_query(&file, hash);
            cr_assert_eq(answer, in_memory(&file, words, hash), "%s", variants[v]);
            found += answer;
        }
        cr_assert_gt(found, 20);
        free((void *)words);
        filter_file_close(&file);
        filter_file_close(&file); /* again is allowed */
    }
}

Test(filter_file, state_and_parameters_follow_from_the_bits)
{
    struct filter_file file = open_built("me");
    struct bloom_params params;
    struct bloom_state state;

    cr_assert_eq(filter_file_state(&file, NULL, NULL, &state), 0);
    cr_assert_eq(state.bits, 100032);
    cr_assert_eq(state.bits_set, 39298);
    filter_file_params(&file.shape, &state, &params);
    cr_assert_eq(params.capacity, 13867);
    cr_assert_eq(params.expansion, 0);
    cr_assert(params.error_rate > 0.03 && params.error_rate < 0.033);
    cr_assert(filter_file_rate(&file.shape, 1) > 0 && filter_file_rate(&file.shape, UINT64_MAX) < 1);
    filter_file_close(&file);
}

/* The file is cut while it is open: reads behind its new end are errors, not zeros. */
Test(filter_file, a_file_that_becomes_shorter_is_an_error)
{
    struct filter_file file = open_built("na");
    _Atomic uint64_t *words = calloc(file.shape.nwords, 8);
    struct bloom_state state;
    int errors = 0;

    file_truncate(tmp_path(dir, "na.db").text, 5000);
    cr_assert_eq(filter_file_read(&file, 0, file.shape.nwords, words), FS_ENDS);
    cr_assert_eq(filter_file_state(&file, NULL, NULL, &state), FS_ENDS);
    for (unsigned i = 0; i < 100; i++) {
        int answer = filter_file_query(&file, murmur3_hash(&i, sizeof(i)));
        cr_assert(answer == 0 || answer == 1 || answer == FS_ENDS, "%d", answer);
        errors += answer == FS_ENDS;
    }
    cr_assert_gt(errors, 50);
    free((void *)words);
    filter_file_close(&file);
}

Test(filter_file, other_files_are_refused)
{
    struct filter_file file;
    struct errbuf err = {{0}};

    file_write(tmp_path(dir, "short").text, "abc", 3);
    cr_assert_eq(filter_file_open(&file, fsops_posix(), tmp_path(dir, "short").text, "na", &err), FILTERDB_MALFORMED);
    cr_assert(strstr(err.text, "shorter than the header"), "%s", err.text);
    cr_assert_eq(filter_file_open(&file, fsops_posix(), tmp_path(dir, "short").text, NULL, &err), FILTERDB_MALFORMED);
    cr_assert_eq(filter_file_open(&file, fsops_posix(), tmp_path(dir, "short").text, "xx", &err), FILTERDB_MALFORMED);
    cr_assert_eq(filter_file_open(&file, fsops_posix(), tmp_path(dir, "none").text, "na", &err), -ENOENT);
    cr_assert_eq(filter_file_open(&file, fsops_posix(), dir, "na", &err), -EISDIR, "%s", err.text);
    cr_assert_eq(file.fd, -1);
    filter_file_close(&file);
}
