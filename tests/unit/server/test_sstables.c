/* SSTables that could not be noted: what the daemon does not know is never absent. */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "alloc_countdown.h"
#include "rcu.h"
#include "sstables.h"
#include "tmpdir.h"
#include "wait.h"

#define TABLE "ks/t-1c6ace40fad111e7b9cf000000000002"

TMPDIR_SUITE(dir, sstables);

static const unsigned char file[16] = {0, 0, 0, 5, 0, 0, 0, 1};

static void write_sstable(void)
{
    cr_assert_eq(mkdir(tmp_path(dir, "ks").text, 0755), 0);
    cr_assert_eq(mkdir(tmp_path(dir, TABLE).text, 0755), 0);
    file_write(tmp_path(dir, TABLE "/nb-1-big-Filter.db").text, file, sizeof(file));
    file_write(tmp_path(dir, TABLE "/nb-1-big-TOC.txt").text, "Filter.db\n", 10);
}

/* The first scan, of whose allocations the n-th fails. Whether one was made to fail. */
static bool scan(size_t n, const struct registry *own, struct reclaimer *reclaimer, struct log *log)
{
    struct sstables *sstables;
    struct errbuf err;
    cr_assert_eq(sstables_create(&sstables, dir, own, reclaimer, log, &err), 0, "%s", err.text);
    alloc_countdown_start(n);
    cr_assert_eq(sstables_start(sstables), 0);
    wait_until(!sstables_is_scanning(sstables));
    bool failed = alloc_countdown_stop();
    struct errbuf why = {""};
    bool missed = sstables_may_miss(sstables, &why);
    bool found = sstables_find(sstables, (struct slice){"ks.t/1", 6});
    cr_expect(found || missed, "allocation %zu has failed, and nobody knows of the SSTable", n);
    cr_expect(failed || (found && !missed), "%s", why.text);
    rcu_reader_offline();
    sstables_destroy(sstables);
    rcu_reader_online();
    return failed;
}

Test(sstables, without_memory_for_it_may_be_missed)
{
    struct bloom_pool *pool;
    struct reclaimer *reclaimer;
    struct registry *own;
    struct log log;
    struct errbuf err;
    cr_assert_eq(log_init(&log, tmp_path(dir, "log").text, LOG_LEVEL_NOTICE, &err), 0);
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(reclaimer_create(&reclaimer), 0);
    cr_assert_eq(registry_create(&own, pool, reclaimer), 0);
    write_sstable();
    rcu_reader_begin();
    size_t n = 0;
    while (scan(n, own, reclaimer, &log))
        n++;
    cr_expect_gt(n, 5);
    rcu_reader_end();
    registry_destroy(own);
    reclaimer_destroy(reclaimer);
    bloom_pool_destroy(pool);
    log_deinit(&log);
}
