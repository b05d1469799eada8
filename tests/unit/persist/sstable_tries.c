/* Keys of SSTables with a trie as index: random tries of all node forms and data of all compressors; damaged ones;
 * real ones. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bti_files.h"
#include "murmur.h"
#include "rng.h"
#include "sstable_keys.h"
#include "tmpdir.h"

#define KEYS_MAX 3000

static char dir[TMPDIR_SIZE];
static struct rng rng;
static struct bti_key keys[KEYS_MAX];
static const char *const compressors[] = {NULL,
                                          "LZ4Compressor",
                                          "org.apache.cassandra.io.compress.SnappyCompressor",
                                          "DeflateCompressor",
                                          "ZstdCompressor",
                                          "NoopCompressor"};

static void set_up(void)
{
    tmpdir_create(dir);
    rng_init(&rng, 2025);
}

static void tear_down(void)
{
    tmpdir_remove(dir);
}

TestSuite(sstable_tries, .init = set_up, .fini = tear_down, .timeout = 3000);

static void make_keys(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = rng_below(&rng, 300) == 0 ? rng_below(&rng, SSTABLE_KEY_MAX + 1) : rng_below(&rng, 40);
        unsigned char *bytes = malloc(len + 1);
        cr_assert_not_null(bytes);
        rng_fill(&rng, bytes, len);
        keys[i] = (struct bti_key){bytes, len, (uint8_t)murmur3_hash(bytes, len).h2};
    }
}

static void free_keys(size_t n)
{
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)keys[i].bytes);
}

static void write_part(const char *component, const struct bti_bytes *bytes)
{
    file_write(tmp_path(dir, "da-1-bti-%s", component).text, bytes->len ? (const void *)bytes->bytes : "", bytes->len);
}

static void write_files(const struct bti_files *files)
{
    write_part("Partitions.db", &files->partitions);
    write_part("Rows.db", &files->rows);
    write_part("Data.db", &files->data);
    unlink(tmp_path(dir, "da-1-bti-CompressionInfo.db").text);
    if (files->info.len)
        write_part("CompressionInfo.db", &files->info);
}

/* Reads all keys of the SSTable at this path. Those before the end must be keys[] while `expected`. */
static int read_all(const char *path, bool backwards, size_t expected, size_t *n_out, struct errbuf *err)
{
    struct sstable_keys *open;
    struct sstable_name name;
    struct sstable_key key;
    *n_out = 0;
    cr_assert_eq(sstable_name_parse(path, &name, err), SSTABLE_OK, "%s", err->text);
    int rc = sstable_keys_open(&open, fsops_posix(), path, &name, err);
    if (rc != 0)
        return rc;
    cr_assert(!backwards || sstable_keys_from_end(open));
    for (; (rc = sstable_keys_next(open, &key, err)) == SSTABLE_KEYS_ONE; ++*n_out) {
        cr_assert(expected == 0 || *n_out < expected);
        const struct bti_key *is = expected == 0 ? NULL : &keys[backwards ? expected - 1 - *n_out : *n_out];
        cr_assert(!is || (key.len == is->len && memcmp(key.ptr, is->bytes, key.len) == 0), "key %zu", *n_out);
        cr_assert(sstable_keys_done(open) <= sstable_keys_size(open));
    }
    sstable_keys_close(open);
    return rc;
}

static int read_here(bool backwards, size_t expected, size_t *n_out, struct errbuf *err)
{
    return read_all(tmp_path(dir, "da-1-bti-Filter.db").text, backwards, expected, n_out, err);
}

Test(sstable_tries, all_keys_in_both_directions)
{
    for (size_t round = 0; round < 120; round++) {
        const char *compressor = compressors[round % 6];
        size_t found, n = round < 6 ? round : 1 + rng_below(&rng, round % 10 ? 400 : KEYS_MAX);
        size_t chunk = 64 + rng_below(&rng, round % 2 ? 200 : 70000);
        struct bti_files files;
        struct errbuf err = {""};
        make_keys(n);
        bti_files_make(&files, &rng, keys, n, compressor, chunk);
        write_files(&files);
        for (int backwards = 0; backwards < 2; backwards++) {
            int rc = read_here(backwards, n, &found, &err);
            cr_assert_eq(rc, SSTABLE_KEYS_END, "%s, %zu keys: %d: %s", compressor, n, rc, err.text);
            cr_assert_eq(found, n);
        }
        bti_files_free(&files);
        free_keys(n);
    }
}

/* After a change or a cut, reading ends, names the damage, or gives the same keys; with checksums it gives no other
 * key. */
Test(sstable_tries, damaged_files)
{
    static const char *const names[] = {"Partitions.db", "Rows.db", "Data.db", "CompressionInfo.db"};
    size_t found, n = 60, named[4] = {0};
    make_keys(n);
    for (size_t round = 0; round < 3000; round++) {
        struct bti_files files;
        struct errbuf err = {""};
        bti_files_make(&files, &rng, keys, n, compressors[round / 4 % 6], 500);
        struct bti_bytes *all[] = {&files.partitions, &files.rows, &files.data, &files.info}, *one = all[round % 4];
        if (one->len && rng_below(&rng, 4) == 0)
            one->len = rng_below(&rng, one->len);
        else if (one->len)
            for (uint64_t times = 1 + rng_below(&rng, 3); times > 0; times--)
                one->bytes[rng_below(&rng, one->len)] = (unsigned char)(rng_below(&rng, 2) ? 0 : rng_next(&rng));
        write_files(&files);
        bool sure = round % 4 == 2 && files.info.len; /* checksums */
        int rc = read_here(rng_below(&rng, 2), sure ? n : 0, &found, &err);
        cr_assert(rc == SSTABLE_KEYS_END || rc == SSTABLE_KEYS_DAMAGED || rc == -ENOTSUP, "%d: %s", rc, err.text);
        cr_assert_eq(err.text[0] != '\0', rc != SSTABLE_KEYS_END);
        cr_assert(rc != SSTABLE_KEYS_END || found == n || round % 4 == 0, "%zu", found);
        named[round % 4] += strncmp(err.text, names[round % 4], strlen(names[round % 4])) == 0;
        bti_files_free(&files);
    }
    for (int i = 0; i < 4; i++)
        cr_expect_gt(named[i], 50, "%s is named %zu times", names[i], named[i]);
    free_keys(n);
}

Test(sstable_tries, what_is_missing_is_named)
{
    static const char *const names[] = {"Partitions.db", "Rows.db", "Data.db"};
    size_t found, n = 60;
    make_keys(n);
    for (int i = 0; i < 3; i++) {
        struct bti_files files;
        struct errbuf err = {""};
        char expected[100];
        bti_files_make(&files, &rng, keys, n, i % 2 ? "LZ4Compressor" : NULL, 500);
        write_files(&files);
        unlink(tmp_path(dir, "da-1-bti-%s", names[i]).text);
        cr_expect_eq(read_here(false, n, &found, &err), -ENOENT);
        snprintf(expected, sizeof(expected), "%s: No such file or directory", names[i]);
        cr_expect_str_eq(err.text, expected);
        bti_files_free(&files);
    }
    struct bti_files files;
    struct errbuf err = {""};
    bti_files_make(&files, &rng, keys, n, "com.example.OwnCompressor", 500);
    write_files(&files);
    cr_expect_eq(read_here(false, n, &found, &err), -ENOTSUP);
    cr_expect_str_eq(err.text, "Data.db is compressed by OwnCompressor, which is unknown");
    bti_files_free(&files);
    free_keys(n);
}

/* As when another process replaces it by a shorter one in place. */
Test(sstable_tries, a_trie_that_shrinks_while_it_is_read_is_too_short)
{
    const struct tmp_path filter = tmp_path(dir, "da-1-bti-Filter.db");
    size_t n = KEYS_MAX;
    struct bti_files files;
    struct errbuf err = {""};
    struct sstable_keys *open;
    struct sstable_name name;
    struct sstable_key key;
    int rc;

    make_keys(n);
    bti_files_make(&files, &rng, keys, n, NULL, 500);
    write_files(&files);
    cr_assert_eq(sstable_name_parse(filter.text, &name, &err), SSTABLE_OK, "%s", err.text);
    cr_assert_eq(sstable_keys_open(&open, fsops_posix(), filter.text, &name, &err), 0, "%s", err.text);
    cr_assert_eq(truncate(tmp_path(dir, "da-1-bti-Partitions.db").text, 0), 0);
    while ((rc = sstable_keys_next(open, &key, &err)) == SSTABLE_KEYS_ONE)
        ;
    cr_expect_eq(rc, FS_ENDS);
    cr_expect_str_eq(err.text, "Partitions.db: the file is too short");
    sstable_keys_close(open);
    bti_files_free(&files);
    free_keys(n);
}

/* ---- real ones, with random changes ---- */

static size_t damage_copy(const char *from)
{
    struct dirent *entry;
    DIR *listed = opendir(from);
    char name[256] = "";
    size_t n = 0, found;
    cr_assert_not_null(listed);
    while ((entry = readdir(listed))) {
        size_t len;
        unsigned char *bytes;
        if (!strstr(entry->d_name, ".db"))
            continue;
        bytes = file_read(tmp_path(from, "%s", entry->d_name).text, &len);
        for (uint64_t times = rng_below(&rng, 4); times > 0 && len && !strstr(entry->d_name, "Statistics"); times--)
            bytes[rng_below(&rng, len)] = (unsigned char)rng_next(&rng);
        file_write(tmp_path(dir, "%s", entry->d_name).text, bytes, len);
        if (strstr(entry->d_name, "-Data.db"))
            snprintf(name, sizeof(name), "%s", entry->d_name);
        free(bytes);
    }
    closedir(listed);
    for (int backwards = 0; backwards < 2; backwards++) {
        struct errbuf err = {""};
        int rc = read_all(tmp_path(dir, "%s", name).text, backwards, 0, &found, &err);
        cr_assert(rc == SSTABLE_KEYS_END || rc == SSTABLE_KEYS_DAMAGED || rc == -ENOTSUP, "%d: %s", rc, err.text);
        n += rc != SSTABLE_KEYS_END;
    }
    return n;
}

Test(sstable_tries, real_ones_damaged)
{
    static const char *const real[] = {"cassandra-da-0", "cassandra-da-2", "scylladb-ms-0", "scylladb-ms-2",
                                       "scylladb-ms-4"};
    size_t damaged = 0;
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    for (size_t round = 0; round < 500; round++) {
        char from[1000];
        snprintf(from, sizeof(from), BLOOMERY_SHARED_GOLDEN_DIR "/sstables/%s", real[round % 5]);
        damaged += damage_copy(from);
    }
    cr_expect_gt(damaged, 100, "%zu", damaged);
}
