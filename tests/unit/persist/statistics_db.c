/* The rate of Statistics.db: of both forms, cut at every byte, of bytes made of chance, and of real files. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rng.h"
#include "statistics_db.h"
#include "tmpdir.h"

static char dir[TMPDIR_SIZE];

static void set_up(void)
{
    tmpdir_create(dir);
}

static void tear_down(void)
{
    tmpdir_remove(dir);
}

TestSuite(statistics_db, .init = set_up, .fini = tear_down, .timeout = 60);

static size_t put_number(unsigned char *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> (8 * (bytes - 1 - i)));
    return bytes;
}

/* Three components, the one for validation last; with checksums as since na. */
static size_t make_file(unsigned char *out, bool checksums, double rate)
{
    static const char name[] = "org.apache.cassandra.dht.Murmur3Partitioner";
    uint64_t bits;
    size_t at = put_number(out, 3, 4), head = checksums ? 8 : 4;
    memcpy(&bits, &rate, sizeof(bits));
    at += checksums ? put_number(out + at, 0x12345678, 4) : 0;
    for (unsigned i = 0; i < 3; i++) {
        at += put_number(out + at, 2 - i, 4);
        at += put_number(out + at, head + 24 + 10 * i, 4);
    }
    memset(out + at, 7, 20);
    at += 20;
    at += put_number(out + at, sizeof(name) - 1, 2);
    memcpy(out + at, name, sizeof(name) - 1);
    at += sizeof(name) - 1;
    return at + put_number(out + at, bits, 8);
}

static int read_rate(const unsigned char *bytes, size_t len, double *rate)
{
    struct tmp_path path = tmp_path(dir, "nb-1-big-Statistics.db");
    file_write(path.text, bytes, len);
    return statistics_db_rate(fsops_posix(), path.text, rate);
}

Test(statistics_db, both_forms_and_every_cut)
{
    unsigned char bytes[200];
    for (int form = 0; form < 2; form++) {
        double rate = 0;
        size_t len = make_file(bytes, form, 0.001 + form);
        cr_expect_eq(read_rate(bytes, len, &rate), form ? -EINVAL : 0);
        cr_expect(form || rate == 0.001);
        len = make_file(bytes, form, 1.0);
        cr_expect_eq(read_rate(bytes, len, &rate), 0);
        cr_expect_eq(rate, 1.0);
        for (size_t cut = 0; cut < len; cut++)
            cr_expect_neq(read_rate(bytes, cut, &rate), 0, "%zu", cut);
        memset(bytes + len - 8, 0, 8);
        cr_expect_eq(read_rate(bytes, len, &rate), -EINVAL);
    }
    double rate;
    cr_expect_eq(statistics_db_rate(fsops_posix(), tmp_path(dir, "none").text, &rate), -ENOENT);
}

Test(statistics_db, bytes_of_chance)
{
    unsigned char bytes[200];
    struct rng rng;
    rng_init(&rng, 5);
    for (int round = 0; round < 20000; round++) {
        double rate;
        size_t len = make_file(bytes, round % 2, 0.01);
        for (int i = 0; i < 3; i++)
            bytes[rng_below(&rng, 40)] = (unsigned char)(rng_below(&rng, 2) ? rng_below(&rng, 100) : rng_next(&rng));
        if (read_rate(bytes, len, &rate) == 0)
            cr_expect_eq(rate, 0.01);
    }
}

Test(statistics_db, real_ones)
{
    char command[2000];
    double rate;
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/sstables", R_OK) != 0)
        cr_skip_test("there are no real SSTables here");
    snprintf(command, sizeof(command), "ls '%s'/sstables/*/*-Statistics.db", BLOOMERY_SHARED_GOLDEN_DIR);
    FILE *list = popen(command, "re");
    char path[1000];
    size_t n = 0;
    cr_assert_not_null(list);
    while (fgets(path, sizeof(path), list)) {
        path[strcspn(path, "\n")] = '\0';
        bool has = !strstr(path, "-ic-");
        cr_expect_eq(statistics_db_rate(fsops_posix(), path, &rate), has ? 0 : -EINVAL, "%s", path);
        cr_expect(!has || rate == 0.01, "%s", path);
        n++;
    }
    cr_expect_gt(n, 40);
    cr_expect_eq(pclose(list), 0);
}
