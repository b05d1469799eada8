/* The rate of Statistics.db: of both forms, cut at every byte, with random bytes, and of real files. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rng.h"
#include "sstable_files.h"
#include "tmpdir.h"

TMPDIR_SUITE(dir, statistics_db);

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
    struct statistics_validation validation = {.rate = 0};
    int rc = statistics_db_validation(fsops_posix(), path.text, &validation);
    *rate = validation.rate;
    cr_expect(rc != 0 || validation.murmur3);
    return rc;
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
    struct statistics_validation validation;
    cr_expect_eq(statistics_db_validation(fsops_posix(), tmp_path(dir, "none").text, &validation), -ENOENT);
}

/* A file with the histogram of partition sizes alone: `n` buckets, one partition in each. */
static size_t make_histogram(unsigned char *out, bool checksums, unsigned n)
{
    size_t at = put_number(out, 1, 4);
    at += checksums ? put_number(out + at, 0x12345678, 4) : 0;
    at += put_number(out + at, 2, 4);
    at += put_number(out + at, at + 4, 4);
    at += put_number(out + at, n, 4);
    for (unsigned i = 0; i < n; i++) {
        at += put_number(out + at, i < 2 ? 1 : i, 8);
        at += put_number(out + at, 1, 8);
    }
    return at;
}

static int count_partitions(const unsigned char *bytes, size_t len, uint64_t *partitions)
{
    struct tmp_path path = tmp_path(dir, "nb-1-big-Statistics.db");
    file_write(path.text, bytes, len);
    return statistics_db_partitions(fsops_posix(), path.text, partitions);
}

Test(statistics_db, partitions_of_both_forms_and_every_cut)
{
    unsigned char bytes[5000];
    uint64_t partitions;
    struct rng rng;
    rng_init(&rng, 6);
    for (int form = 0; form < 2; form++) {
        size_t len = make_histogram(bytes, form, 156);
        cr_expect_eq(count_partitions(bytes, len, &partitions), 0);
        cr_expect_eq(partitions, 156);
        for (size_t cut = 0; cut < len; cut += cut < 60 ? 1 : 97)
            cr_expect_eq(count_partitions(bytes, cut, &partitions), -EINVAL, "%zu", cut);
        for (int round = 0; round < 1000; round++) {
            len = make_histogram(bytes, form, 20);
            bytes[rng_below(&rng, len)] = (unsigned char)rng_next(&rng);
            int rc = count_partitions(bytes, len, &partitions);
            cr_expect(rc == -EINVAL || (rc == 0 && partitions > 0), "%d", rc);
        }
    }
    cr_expect_eq(count_partitions(bytes, make_histogram(bytes, false, 257), &partitions), -EINVAL);
    size_t len = make_histogram(bytes, false, 20);
    memset(bytes + len - 8, 0xff, 8);
    cr_expect_eq(count_partitions(bytes, len, &partitions), -EINVAL);
}

Test(statistics_db, bytes_of_chance)
{
    unsigned char bytes[200];
    struct rng rng;
    rng_init(&rng, 5);
    for (int round = 0; round < 5000; round++) {
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
    struct statistics_validation validation;
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
        cr_expect_eq(statistics_db_validation(fsops_posix(), path, &validation), has ? 0 : -EINVAL, "%s", path);
        cr_expect(!has || validation.rate == 0.01, "%s", path);
        uint64_t partitions = 0;
        cr_expect_eq(statistics_db_partitions(fsops_posix(), path, &partitions), has ? 0 : -EINVAL, "%s", path);
        cr_expect(!has || (partitions >= 1 && partitions <= 130), "%s", path);
        n++;
    }
    cr_expect_gt(n, 40);
    cr_expect_eq(pclose(list), 0);
}
