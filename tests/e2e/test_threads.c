/* The daemon's threads: those of libuv's pool, and their treatment of the memory of large filters. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "zero_page.h"

DAEMON_SUITE_IDLE(the_daemon, threads);

/* The number of the daemon's threads with this prefix of the name. */
static unsigned threads_named(const char *prefix)
{
    char path[300], name[64];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)the_daemon.pid);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)the_daemon.pid, entry->d_name);
        FILE *file = fopen(path, "r");
        n += file && fgets(name, sizeof(name), file) && strncmp(name, prefix, strlen(prefix)) == 0;
        if (file)
            fclose(file);
    }
    closedir(dir);
    return n;
}

DAEMON_TEST(the_daemon, threads, of_the_pool_bear_its_name)
{
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--threads", "2", NULL});
    cr_expect_eq(threads_named("pool"), 16);
    cr_expect_eq(threads_named("worker"), 2);
    expect(client, "+OK", "SAVE"); /* in the pool */
    cr_expect_eq(threads_named("pool"), 16);
    cr_expect_eq(threads_named("worker"), 2);
}

/* kB */
static long resident(void)
{
    char path[64], line[256];
    long kb = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)the_daemon.pid);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file))
        sscanf(line, "VmRSS: %ld", &kb);
    fclose(file);
    cr_assert_gt(kb, 0);
    return kb;
}

/* One item in 1.2 GB, and queries that read all its pages: they take no memory, and cause no huge pages. */
DAEMON_TEST(the_daemon, threads, a_sparse_filter_stays_small_when_it_is_read)
{
    if (DAEMON_SANITIZED) /* without AVX-512 each read is noted in ThreadSanitizer's own memory */
        cr_skip_test("a sanitizer's memory would be measured");
    if (!zero_page_works())
        cr_skip_test("this kernel gives a page to each read of memory that was never written");
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    expect(client, "+OK", "BF.RESERVE sparse 0.01 1000000000");
    expect(client, ":1", "BF.ADD sparse item");
    long before = resident(), after = before;
    cr_expect_eq(client_for_items(client, "BF.MEXISTS", "sparse", "other", 100000), 0);
    for (int i = 0; i < 20; i++) { /* the daemon checks its large filters each 100 ms */
        usleep(100000);
        after = resident() > after ? resident() : after;
    }
    printf("resident: %ld kB before, %ld kB after\n", before, after);
    cr_expect_lt(after, before + 64 * 1024);
}
