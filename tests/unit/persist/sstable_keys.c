/* Keys of Index.db: of both forms, cut at every byte, larger than the buffer, and random. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "index_file.h"
#include "rng.h"
#include "sstable_keys.h"
#include "tmpdir.h"

TMPDIR_SUITE(dir, sstable_keys);

static const char *const names[] = {"nb-1-big-Index.db", "ks-t-ka-1-Index.db", "la-1-big-Index.db",
                                    "ma-1-big-Index.db"};

static struct sstable_keys *open_keys(const char *name, const void *bytes, size_t len)
{
    static struct tmp_path path; /* borrowed, as the name */
    static struct sstable_name parts;
    struct sstable_keys *keys;
    struct errbuf err;
    path = tmp_path(dir, "%s", name);
    file_write(path.text, bytes, len);
    cr_assert_eq(sstable_name_parse(path.text, &parts, &err), SSTABLE_OK, "%s", err.text);
    cr_assert_eq(sstable_keys_open(&keys, fsops_posix(), path.text, &parts, &err), 0, "%s", err.text);
    cr_assert_eq(sstable_keys_size(keys), len);
    return keys;
}

/* The status at the end, and the number of keys before it. */
static int read_keys(struct sstable_keys *keys, size_t *n_out, struct errbuf *err)
{
    struct sstable_key key;
    int rc;
    for (*n_out = 0; (rc = sstable_keys_next(keys, &key, err)) == SSTABLE_KEYS_ONE; ++*n_out)
        ;
    sstable_keys_close(keys);
    return rc;
}

Test(sstable_keys, all_keys_of_both_forms)
{
    static const size_t behind[] = {0, 1, 127, 128, 16383, 16384, 3000000, 0};
    for (size_t form = 0; form < 4; form++) {
        struct index_file file = {.numbers_vary = names[form][0] == 'n' || names[form][0] == 'm'};
        char longest[SSTABLE_KEY_MAX];
        memset(longest, 'k', sizeof(longest));
        for (size_t i = 0; i < 300; i++) {
            char key[20];
            index_file_add(&file, key, (size_t)sprintf(key, "%zu", i), behind[i % 8] / (i < 16 ? 1 : 100));
            index_file_add(&file, longest, i % 50 ? i : sizeof(longest), 0);
        }
        struct sstable_keys *keys = open_keys(names[form], file.bytes, file.len);
        struct errbuf err;
        struct sstable_key key;
        cr_assert_not(sstable_keys_from_end(keys));
        for (size_t i = 0; i < 300; i++) {
            char expected[20];
            size_t expected_len = (size_t)sprintf(expected, "%zu", i);
            cr_assert_eq(sstable_keys_next(keys, &key, &err), SSTABLE_KEYS_ONE, "%s: %zu: %s", names[form], i,
                         err.text);
            cr_assert(key.len == expected_len && memcmp(key.ptr, expected, key.len) == 0, "%s: key %zu", names[form],
                      i);
            cr_assert_eq(sstable_keys_next(keys, &key, &err), SSTABLE_KEYS_ONE);
            cr_assert(key.len == (i % 50 ? i : sizeof(longest)) && memcmp(key.ptr, longest, key.len) == 0);
        }
        cr_assert_eq(sstable_keys_next(keys, &key, &err), SSTABLE_KEYS_END);
        cr_assert_eq(sstable_keys_done(keys), file.len);
        sstable_keys_close(keys);
        free(file.bytes);
    }
}

/* A file that ends within an entry is damaged; one that ends after an entry looks like a shorter one. */
Test(sstable_keys, cut_at_every_byte)
{
    for (size_t form = 0; form < 4; form++) {
        struct index_file file = {.numbers_vary = names[form][0] == 'n' || names[form][0] == 'm'};
        size_t ends[12];
        for (size_t i = 0; i < 12; i++) {
            index_file_add(&file, "0123456789", i, i % 4 * 5);
            ends[i] = file.len;
        }
        for (size_t cut = 0; cut <= file.len; cut++) {
            struct errbuf err = {""};
            size_t n, whole = 0;
            while (whole < 12 && ends[whole] <= cut)
                whole++;
            bool at_end = cut == 0 || (whole > 0 && ends[whole - 1] == cut);
            int rc = read_keys(open_keys(names[form], file.bytes, cut), &n, &err);
            cr_assert_eq(rc, at_end ? SSTABLE_KEYS_END : SSTABLE_KEYS_DAMAGED, "%s cut at %zu", names[form], cut);
            cr_assert_eq(n, whole);
            cr_assert_eq(err.text[0] == '\0', at_end);
        }
        free(file.bytes);
    }
}

Test(sstable_keys, bytes_of_chance_end_or_are_damaged)
{
    unsigned char bytes[3000];
    struct rng rng;
    rng_init(&rng, 31);
    for (int round = 0; round < 4000; round++) {
        struct errbuf err = {""};
        size_t n, len = rng_below(&rng, sizeof(bytes));
        rng_fill(&rng, bytes, len);
        for (size_t i = 0; round % 2 && i + 1 < len; i += 1 + rng_below(&rng, 40))
            bytes[i] = 0; /* short keys */
        int rc = read_keys(open_keys(names[round % 4], bytes, len), &n, &err);
        cr_assert(rc == SSTABLE_KEYS_END || rc == SSTABLE_KEYS_DAMAGED, "%d", rc);
    }
}

Test(sstable_keys, what_has_a_trie)
{
    static const struct {
        const char *path;
        bool index;
    } rows[] = {{"nb-1-big-Data.db", true},   {"da-1-bti-Data.db", false}, {"ms-1-big-Data.db", false},
                {"mt-1-big-Data.db", false},  {"me-1-big-Data.db", true},  {"ks-t-ic-1-Data.db", true},
                {"oa-1-big-Filter.db", true}, {"la-1-big-TOC.txt", true}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sstable_name name;
        cr_assert_eq(sstable_name_parse(rows[i].path, &name, NULL), SSTABLE_OK);
        cr_expect_neq(sstable_has_trie(&name), rows[i].index, "%s", rows[i].path);
    }
    struct tmp_path path = tmp_path(dir, "nb-1-big-Data.db");
    struct sstable_keys *keys;
    struct sstable_name name;
    struct errbuf err;
    cr_assert_eq(sstable_name_parse(path.text, &name, NULL), SSTABLE_OK);
    cr_assert_eq(sstable_keys_open(&keys, fsops_posix(), path.text, &name, &err), -ENOENT);
    cr_assert_str_eq(err.text, "Index.db: No such file or directory");
    sstable_keys_close(keys);
}

/* Statistics.db with the partitioner of Murmur3 alone. */
static void write_statistics(void)
{
    static const char bytes[] = "\0\0\0\1\0\0\0\0\0\0\0\x0c\0\x12Murmur3Partitioner\x3f\xb9\x99\x99\x99\x99\x99\x9a";
    unsigned char file[8 + 64] = {0};
    memcpy(file, bytes, sizeof(bytes) - 1);
    file_write(tmp_path(dir, "nb-1-big-Statistics.db").text, file, sizeof(file));
}

/* A changed byte of a key: the key is the one before it again, or its token is not in its place. */
Test(sstable_keys, keys_out_of_their_order_are_damage)
{
    static const char *const keys[] = {"a", "b"}; /* their tokens differ, so one order is right */
    int found[2];
    struct errbuf err;
    size_t n;
    for (int with = 0; with < 2; with++) {
        if (with)
            write_statistics();
        for (int first = 0; first < 2; first++) {
            struct index_file file = {.numbers_vary = true};
            index_file_add(&file, keys[first], 1, 0);
            index_file_add(&file, keys[!first], 1, 3);
            found[first] = read_keys(open_keys("nb-1-big-Index.db", file.bytes, file.len), &n, &err);
            cr_expect_eq(n, found[first] == SSTABLE_KEYS_END ? 2 : 1);
            free(file.bytes);
        }
        cr_expect_eq(found[0] == SSTABLE_KEYS_END && found[1] == SSTABLE_KEYS_END, !with);
        cr_expect_eq((found[0] == SSTABLE_KEYS_DAMAGED) + (found[1] == SSTABLE_KEYS_DAMAGED), with);
        cr_expect(!with || strstr(err.text, "has a token below that of the key before it") ||
                      found[1] == SSTABLE_KEYS_END,
                  "%s", err.text);
        struct index_file twice = {.numbers_vary = true};
        index_file_add(&twice, "a", 1, 0);
        index_file_add(&twice, "a", 1, 0);
        cr_expect_eq(read_keys(open_keys("nb-1-big-Index.db", twice.bytes, twice.len), &n, &err), SSTABLE_KEYS_DAMAGED);
        cr_expect(strstr(err.text, "the key at byte 5 is there twice"), "%s", err.text);
        free(twice.bytes);
    }
}
