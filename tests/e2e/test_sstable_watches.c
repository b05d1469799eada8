/* sstable-dir: directories that are replaced while the daemon watches them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sstables_rig.h"
#include "wait.h"

TestSuite(sstable_watches, .fini = discard, .timeout = 3000);

DAEMON_TEST(the_daemon, sstable_watches, a_directory_takes_anothers_place)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("../new/nb-2-big-Filter.db", na_file, sizeof(na_file));
    start();
    expect(client, "[\"ks.t/1\"]", "KEYS *");
    cr_assert_eq(rename(below_root("data/ks/t-" ID), below_root("../old")), 0);
    cr_assert_eq(rename(below_root("../new"), below_root("data/ks/t-" ID)), 0);
    wait_for("[\"ks.t/2\"]", "KEYS *");
    write_sstable("data/ks/t-" ID "/nb-3-big-Filter.db", na_file, sizeof(na_file));
    wait_for("[\"ks.t/2\",\"ks.t/3\"]", "KEYS *");
}

/* The same for directories in it, which are not renamed themselves. */
DAEMON_TEST(the_daemon, sstable_watches, directories_in_it_take_the_place_of_others)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("../new/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    start();
    expect(client, "[\"ks.t/1\"]", "KEYS *");
    cr_assert_eq(rename(below_root("data/ks"), below_root("../old")), 0);
    cr_assert_eq(rename(below_root("../new"), below_root("data/ks")), 0);
    wait_for("[\"ks.t/2\"]", "KEYS *");
}

/* A symbolic link that is changed to another directory, as in the deployment of a new version. */
DAEMON_TEST(the_daemon, sstable_watches, a_link_that_leads_elsewhere_is_followed)
{
    prepare();
    write_sstable("../one/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("../two/ks/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    cr_assert_eq(symlink("../one", below_root("now")), 0);
    start();
    expect(client, "[\"ks.t/1\"]", "KEYS *");
    cr_assert_eq(symlink("../two", below_root("next")), 0);
    cr_assert_eq(rename(below_root("next"), below_root("now")), 0);
    wait_for("[\"ks.t/2\"]", "KEYS *");
}

/* ---- a lost directory of sstable-dir ---- */

#define LATER_S 22 /* two scans of all directories */

static char lost[400];

/* A filter without keys. */
static const unsigned char empty_file[16] = {0, 0, 0, 5, 0, 0, 0, 1};

/* It is counted at the end of the scan that has found files, or told of the directory. */
static void expect_unreachable(long long n)
{
    wait_until(client_info(client, "bf", "sstable_dirs_unreachable") == n);
}

/* Two roots, a and b; all filters below b have been looked up except ks.t/3. */
static void start_with_two_roots(void)
{
    char dirs[800];
    prepare();
    write_sstable("a/ks/t-" ID "/nb-1-big-Filter.db", empty_file, sizeof(empty_file));
    write_sstable("b/ks/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("b/ks/u-" ID "/nb-3-big-Filter.db", na_file, sizeof(na_file));
    snprintf(lost, sizeof(lost), "%s/b", root);
    snprintf(dirs, sizeof(dirs), "%s/a:%s", root, lost);
    const char *const args[] = {"--sstable-dir", dirs, NULL};
    client = client_start(&the_daemon, args);
    wait_scanned();
    expect_find("[\"asked\",:2,\"found\",[[\"ks.t/2\"]],\"unknown\",[]]", "BF.FIND ks.t/* ITEMS k");
    expect_unreachable(0);
}

/* No filter is forgotten in any number of scans: loaded filters answer, the others are named. */
static void expect_kept(const char *why)
{
    char warning[800];
    snprintf(warning, sizeof(warning), "sstable-dir: %s: %s; kept filters below it: 2;", lost, why);
    daemon_wait_output(&the_daemon, warning);
    expect_unreachable(1);
    for (int i = 0; i < LATER_S; i++) {
        const char *reply = ask("BF.FIND ks.t/* ITEMS k");
        static const char kept[] =
            "[\"asked\",:2,\"found\",[[\"ks.t/2\"]],\"unknown\",[\"ks.t/*\",\"sstable-dir cannot";
        cr_assert(strncmp(reply, kept, strlen(kept)) == 0 && strstr(reply, why), "%s", reply);
        expect(client, ":1", "BF.EXISTS ks.t/2 k");
        sleep(1);
    }
    const char *unknown = ask("BF.FIND ks.u/* ITEMS k");
    cr_assert(strstr(unknown, "\"ks.u/3\",\"") && strstr(unknown, "No such file or directory"), "%s", unknown);
    const char *first = strstr(daemon_output(&the_daemon), warning);
    cr_assert_null(strstr(first + 1, warning), "the log says it once");
    expect_unreachable(1);
}

static void expect_normal_again(void)
{
    char notice[500];
    snprintf(notice, sizeof(notice), "sstable-dir: %s is back", lost);
    daemon_wait_output(&the_daemon, notice);
    expect_unreachable(0);
    wait_for("[\"asked\",:1,\"found\",[[\"ks.u/3\"]],\"unknown\",[]]", "BF.FIND ks.u/* ITEMS k");
    write_sstable("b/ks/t-" ID "/nb-4-big-Filter.db", na_file, sizeof(na_file));
    wait_for("[\"asked\",:3,\"found\",[[\"ks.t/2\",\"ks.t/4\"]],\"unknown\",[]]", "BF.FIND ks.t/* ITEMS k");
    for (int i = 2; i <= 4; i += 2) {
        char path[100];
        snprintf(path, sizeof(path), "b/ks/t-" ID "/nb-%d-big-Filter.db", i);
        cr_assert_eq(unlink(below_root(path)), 0);
    }
    wait_for("[\"ks.t/1\",\"ks.u/3\"]", "KEYS *");
}

DAEMON_TEST(the_daemon, sstable_watches, a_root_that_vanishes_keeps_its_filters_until_it_returns)
{
    start_with_two_roots();
    cr_assert_eq(rename(below_root("b"), below_root("../bx")), 0);
    expect_kept("No such file or directory");
    cr_assert_eq(rename(below_root("../bx"), below_root("b")), 0);
    expect_normal_again();
}

/* As if a file system were unmounted, and mounted again. */
DAEMON_TEST(the_daemon, sstable_watches, an_empty_directory_in_the_place_of_a_root_keeps_its_filters)
{
    start_with_two_roots();
    cr_assert_eq(rename(below_root("b"), below_root("../bx")), 0);
    cr_assert_eq(mkdir(below_root("b"), 0777), 0);
    expect_kept("another directory without SSTables has replaced it");
    cr_assert_eq(rmdir(below_root("b")), 0);
    cr_assert_eq(rename(below_root("../bx"), below_root("b")), 0);
    expect_normal_again();
}

/* Files removed at the root's new place are no change of the root; nor are they when the root comes back. */
DAEMON_TEST(the_daemon, sstable_watches, events_of_a_root_that_was_moved_away_forget_nothing)
{
    start_with_two_roots();
    make_directories(below_root("../away/"));
    cr_assert_eq(rename(below_root("b"), below_root("../away/b")), 0);
    cr_assert_eq(unlink(below_root("../away/b/ks/t-" ID "/nb-2-big-Filter.db")), 0);
    cr_assert_eq(unlink(below_root("../away/b/ks/u-" ID "/nb-3-big-Filter.db")), 0);
    expect_kept("No such file or directory");
    cr_assert_eq(rename(below_root("../away/b"), below_root("b")), 0);
    expect_kept("another directory without SSTables has replaced it");
}

/* A directory with other SSTables is there on purpose: the previous ones are gone. */
DAEMON_TEST(the_daemon, sstable_watches, a_root_with_other_sstables_takes_the_place_of_one)
{
    start_with_two_roots();
    write_sstable("../new/ks/t-" ID "/nb-5-big-Filter.db", na_file, sizeof(na_file));
    cr_assert_eq(rename(below_root("b"), below_root("../bx")), 0);
    cr_assert_eq(rename(below_root("../new"), below_root("b")), 0);
    wait_for("[\"ks.t/1\",\"ks.t/5\"]", "KEYS *");
    expect_unreachable(0);
}

/* The same directory, with its files removed. */
DAEMON_TEST(the_daemon, sstable_watches, a_root_that_is_emptied_is_empty)
{
    start_with_two_roots();
    cr_assert_eq(rename(below_root("b/ks"), below_root("../ksx")), 0);
    wait_for("[\"ks.t/1\"]", "KEYS *");
    expect_unreachable(0);
}
