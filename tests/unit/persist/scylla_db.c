/* Scylla.db: entries that leave the filter alone; cut at every byte, with random bytes, and real files. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bytes.h"
#include "rng.h"
#include "sstable_files.h"
#include "tmpdir.h"

TMPDIR_SUITE(dir, scylla_db);
static struct errbuf err;

/* An entry of each type, with a length equal to its number. */
static size_t make_file(unsigned char *out, const char *types)
{
    size_t at = 4;
    be32_put(out, (uint32_t)strlen(types));
    for (; *types; types++) {
        uint32_t type = (uint32_t)(*types - 'a') + 1;
        be32_put(out + at, type);
        be32_put(out + at + 4, type);
        memset(out + at + 8, 7, type);
        at += 8 + type;
    }
    return at;
}

static int look_at(const unsigned char *bytes, size_t len)
{
    struct tmp_path path = tmp_path(dir, "me-1-big-Scylla.db");
    file_write(path.text, bytes, len);
    errbuf_set(&err, "%s", "");
    int rc = scylla_db_leaves_filter(fsops_posix(), path.text, &err);
    cr_expect_eq(rc == 0, err.text[0] == '\0', "%d: %s", rc, err.text);
    return rc;
}

Test(scylla_db, entries_about_others_leave_the_filter_alone)
{
    unsigned char bytes[400];
    cr_expect_eq(look_at(bytes, make_file(bytes, "")), 0);
    cr_expect_eq(look_at(bytes, make_file(bytes, "a")), 0);
    cr_expect_eq(look_at(bytes, make_file(bytes, "jighfedba")), 0, "%s", err.text);
    cr_expect_eq(look_at(bytes, make_file(bytes, "abk")), -EINVAL);
    cr_expect(strstr(err.text, "its entry of type 11 may have a checksum of the filter"), "%s", err.text);
    cr_expect_eq(look_at(bytes, make_file(bytes, "c")), -EINVAL);
    cr_expect(strstr(err.text, "type 3 "), "%s", err.text);
    size_t len = make_file(bytes, "ab");
    memset(bytes + len, 1, 4);
    cr_expect_eq(look_at(bytes, len + 4), -EINVAL);
    cr_expect(strstr(err.text, "4 bytes follow its entries"), "%s", err.text);
    cr_expect_eq(scylla_db_leaves_filter(fsops_posix(), tmp_path(dir, "none").text, &err), -ENOENT);
}

Test(scylla_db, every_cut)
{
    unsigned char bytes[400];
    size_t len = make_file(bytes, "abdefghij");
    for (size_t cut = 0; cut < len; cut++) {
        cr_expect_eq(look_at(bytes, cut), -EINVAL, "%zu", cut);
        cr_expect_str_eq(err.text, "it is damaged");
    }
}

Test(scylla_db, bytes_of_chance)
{
    unsigned char bytes[400];
    struct rng rng;
    rng_init(&rng, 5);
    for (int round = 0; round < 2000; round++) {
        size_t len = make_file(bytes, round % 2 ? "abdefghij" : "abklm");
        for (int i = 0; i < 3; i++)
            bytes[rng_below(&rng, len)] = (unsigned char)(rng_below(&rng, 2) ? rng_below(&rng, 20) : rng_next(&rng));
        int rc = look_at(bytes, len);
        cr_expect(rc == 0 || rc == -EINVAL, "%d", rc);
    }
}

/* None of these has checksums of components yet. */
Test(scylla_db, real_ones)
{
    char path[1000];
    size_t n = 0;
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    FILE *list = popen("ls '" BLOOMERY_SHARED_GOLDEN_DIR "'/sstables/*/*-Scylla.db", "re");
    cr_assert_not_null(list);
    for (; fgets(path, sizeof(path), list); n++) {
        path[strcspn(path, "\n")] = '\0';
        cr_expect_eq(scylla_db_leaves_filter(fsops_posix(), path, &err), 0, "%s: %s", path, err.text);
    }
    cr_expect_geq(n, 6);
    cr_expect_eq(pclose(list), 0);
}
