/* sstable-dir: filters that lack keys of their SSTables. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bti_files.h"
#include "index_file.h"
#include "sstables_rig.h"
#include "tmpdir.h"

TestSuite(sstable_keys, .fini = discard, .timeout = 3000);

/* Index.db of an SSTable with n keys: "x" at this place, elsewhere "k" and "2", which is in the filter by chance: no
 * key is there twice in a row. */
static void write_index(const char *path, size_t n, size_t place)
{
    struct index_file index = {.numbers_vary = true};
    for (size_t i = 0; i < n; i++)
        index_file_add(&index, i == place ? "x" : i % 2 ? "2" : "k", 1, i % 3);
    file_write(below_root(path), index.bytes, index.len);
    free(index.bytes);
}

/* The same as a trie: Partitions.db, Rows.db and compressed Data.db of the SSTable `prefix`. */
static void write_trie(const char *prefix, size_t n, size_t place)
{
    static const char *const ends[] = {"Partitions.db", "Rows.db", "Data.db", "CompressionInfo.db"};
    struct bti_key *keys = calloc(n, sizeof(*keys));
    struct bti_files files;
    struct rng rng;
    rng_init(&rng, n + place);
    for (size_t i = 0; i < n; i++)
        keys[i] = (struct bti_key){(const unsigned char *)(i == place ? "x" : "k"), 1, -1};
    bti_files_make(&files, &rng, keys, n, "LZ4Compressor", 4096);
    struct bti_bytes *all[] = {&files.partitions, &files.rows, &files.data, &files.info};
    for (int i = 0; i < 4; i++) {
        char path[200];
        snprintf(path, sizeof(path), "%s%s", prefix, ends[i]);
        file_write(below_root(path), all[i]->bytes, all[i]->len);
    }
    bti_files_free(&files);
    free(keys);
}

#define LACKS "keys of its SSTable: it is damaged, or its bits have the layout of another version"

/* A filter that lacks keys of its own SSTable answers no query: x is in none of these filters. */
DAEMON_TEST(the_daemon, sstable_keys, those_that_lack_their_keys_are_named)
{
    prepare();
    static const struct {
        size_t keys, place;
    } rows[] = {{1, 1}, {1, 0}, {300, 300}, {300, 99}, {300, 299}, {300, 200}, {300, 150}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[100];
        snprintf(path, sizeof(path), "data/ks/t-" ID "/nb-%zu-big-Index.db", i + 1);
        make_directories(below_root(path));
        write_index(path, rows[i].keys, rows[i].place);
        snprintf(path, sizeof(path), "data/ks/t-" ID "/nb-%zu-big-Filter.db", i + 1);
        write_sstable(path, na_file, sizeof(na_file));
    }
    start();
    const char *found = ask("BF.FIND COUNT ks.t/* ITEMS k");
    cr_assert(strstr(found, "[\"asked\",:3,\"found\",[:3],\"unknown\",[") == found, "%s", found);
    static const char *const lacking[][2] = {{"2", "first"}, {"4", "first"}, {"5", "last"}, {"6", "last"}};
    for (size_t i = 0; i < 4; i++) {
        char reason[700];
        snprintf(reason, sizeof(reason),
                 "\"ks.t/%s\",\"%s/data/ks/t-" ID "/nb-%s-big-Filter.db: it lacks the %s " LACKS, lacking[i][0], root,
                 lacking[i][0], lacking[i][1]);
        cr_expect(strstr(found, reason), "'%s' is not in %s", reason, found);
    }
    expect(client, ":1", "BF.EXISTS ks.t/7 k");
    expect_has(client, "-ERR the filter could not be loaded and is quarantined: ", "BF.EXISTS ks.t/2 k");
    write_index("data/ks/t-" ID "/nb-2-big-Index.db", 1, 1); /* the table differs now, and so does its filter */
    write_filter("data/ks/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    wait_for(":1", "BF.EXISTS ks.t/2 k");
}

/* The keys of a trie are read from both ends. */
DAEMON_TEST(the_daemon, sstable_keys, those_of_tries_that_lack_their_keys_are_named)
{
    prepare();
    static const size_t places[] = {300, 0, 99, 100, 199, 200, 299};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[100];
        snprintf(path, sizeof(path), "data/ks/t-" ID "/da-%zu-bti-", i + 1);
        make_directories(below_root(path));
        write_trie(path, 300, places[i]);
        snprintf(path, sizeof(path), "data/ks/t-" ID "/da-%zu-bti-Filter.db", i + 1);
        write_filter(path, na_file, sizeof(na_file));
        snprintf(path, sizeof(path), "data/ks/t-" ID "/da-%zu-bti-TOC.txt", i + 1);
        file_write(below_root(path), "Data.db\n", 8);
    }
    start();
    const char *found = ask("BF.FIND COUNT ks.t/* ITEMS k");
    cr_assert(strstr(found, "[\"asked\",:3,\"found\",[:3],\"unknown\",[") == found, "%s", found);
    static const char *const lacking[][2] = {{"2", "first"}, {"3", "first"}, {"6", "last"}, {"7", "last"}};
    for (size_t i = 0; i < 4; i++) {
        char reason[700];
        snprintf(reason, sizeof(reason),
                 "\"ks.t/%s\",\"%s/data/ks/t-" ID "/da-%s-bti-Filter.db: it lacks the %s " LACKS, lacking[i][0], root,
                 lacking[i][0], lacking[i][1]);
        cr_expect(strstr(found, reason), "'%s' is not in %s", reason, found);
    }
}
