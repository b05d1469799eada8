/* sstable-dir: directories that others take the places of, while the daemon watches them. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sstables_rig.h"

TestSuite(sstable_watches, .fini = discard, .timeout = 300);

/* Whether a descriptor of the daemon, as the kernel describes it, is an inotify instance that watches this inode. */
static bool describes_watch(const char *fdinfo, unsigned long inode)
{
    char line[300], wanted[40];
    bool found = false;
    FILE *file = fopen(fdinfo, "r");
    snprintf(wanted, sizeof(wanted), " ino:%lx ", inode);
    while (file && !found && fgets(line, sizeof(line), file))
        found = strncmp(line, "inotify wd:", 11) == 0 && strstr(line, wanted);
    if (file)
        fclose(file);
    return found;
}

static bool is_watched(const char *path)
{
    char fds[64], fdinfo[400];
    struct stat st;
    bool found = false;
    cr_assert_eq(stat(below_root(path), &st), 0, "%s", path);
    snprintf(fds, sizeof(fds), "/proc/%d/fdinfo", (int)the_daemon.pid);
    DIR *dir = opendir(fds);
    cr_assert_not_null(dir);
    for (const struct dirent *item; !found && (item = readdir(dir));) {
        snprintf(fdinfo, sizeof(fdinfo), "%s/%s", fds, item->d_name);
        found = describes_watch(fdinfo, (unsigned long)st.st_ino);
    }
    closedir(dir);
    return found;
}

static void expect_watched(const char *path)
{
    for (int tries = 0; tries < 600 && !is_watched(path); tries++)
        usleep(50000);
    cr_assert(is_watched(path), "%s", path);
}

/* Without a watch of its own what comes into the new directory would be seen by the regular scans only. */
Test(sstable_watches, a_directory_that_takes_anothers_place_is_watched)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("../new/nb-2-big-Filter.db", na_file, sizeof(na_file));
    start();
    expect(client, "[\"ks.t/1\"]", "KEYS *");
    expect_watched("data/ks/t-" ID);
    cr_assert_eq(rename(below_root("data/ks/t-" ID), below_root("../old")), 0);
    cr_assert_eq(rename(below_root("../new"), below_root("data/ks/t-" ID)), 0);
    wait_for("[\"ks.t/2\"]", "KEYS *");
    expect_watched("data/ks/t-" ID);
    write_sstable("data/ks/t-" ID "/nb-3-big-Filter.db", na_file, sizeof(na_file));
    wait_for("[\"ks.t/2\",\"ks.t/3\"]", "KEYS *");
    daemon_deinit(&the_daemon);
}

/* The same of directories in it, which nobody has renamed. */
Test(sstable_watches, directories_in_it_are_watched_too)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("../new/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    start();
    expect(client, "[\"ks.t/1\"]", "KEYS *");
    cr_assert_eq(rename(below_root("data/ks"), below_root("../old")), 0);
    cr_assert_eq(rename(below_root("../new"), below_root("data/ks")), 0);
    wait_for("[\"ks.t/2\"]", "KEYS *");
    expect_watched("data/ks/t-" ID);
    expect_watched("data/ks");
    daemon_deinit(&the_daemon);
}

/* A symbolic link that is set to another directory, as one deploys a new version. */
Test(sstable_watches, a_link_that_leads_elsewhere_is_followed)
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
    expect_watched("now/ks/t-" ID);
    daemon_deinit(&the_daemon);
}
