/* Whole data directories. The input is a recipe: it makes a directory by the store and the log's own code, then
 * changes it, with corrected checksums. The daemon's start and `bloomery check` check it: both end and agree,
 * unchanged data are all there; later starts find the same content as the first, and a save keeps it. Each prints
 * its result on stdout (-close_fd_mask=3). */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "datadir_damage.h"
#include "datadir_make.h"
#include "datadir_start.h"
#include "tool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char base[128];

static int on_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    (void)nftw(path, on_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_base(void)
{
    remove_tree(base);
}

/* "bloomery-fuzz-<process>-XXXXXX" of an ended process. A process that a signal or a sanitizer ends, and so each of
 * libFuzzer's finds, removes nothing: the directory can be examined until the next start. */
static bool is_left_over(const char *name)
{
    static const char prefix[] = "bloomery-fuzz-";
    char *end;

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
        return false;
    long process = strtol(name + sizeof(prefix) - 1, &end, 10);
    return *end == '-' && process > 0 && process <= INT_MAX && kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

static void remove_left_overs(const char *parent)
{
    DIR *dir = opendir(parent);
    char path[400];

    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));)
        if (is_left_over(e->d_name) && (size_t)snprintf(path, sizeof(path), "%s/%s", parent, e->d_name) < sizeof(path))
            remove_tree(path);
    closedir(dir);
}

static bool make_base_in(const char *parent)
{
    remove_left_overs(parent);
    snprintf(base, sizeof(base), "%s/bloomery-fuzz-%ld-XXXXXX", parent, (long)getpid());
    return mkdtemp(base) != NULL;
}

/* In memory if possible. */
static void make_base(void)
{
    const char *tmp = getenv("TMPDIR");

    if (base[0])
        return;
    CHECK(make_base_in("/dev/shm") || make_base_in(tmp && strlen(tmp) < 90 ? tmp : "/tmp"));
    atexit(remove_base);
}

static bool is_whole(const char *dir)
{
    char *argv[] = {(char *)dir, NULL};
    struct tool_args args;
    int status = tool_read_arguments(&tool_check_command, 1, argv, &args);

    CHECK(status == TOOL_OK);
    status = tool_check_command.run(&args);
    CHECK(status == TOOL_OK || status == TOOL_FAILED);
    return status == TOOL_OK;
}

/* A start creates a missing MANIFEST if there are no files that belong to one; check reports that it is missing. And
 * a log can state more filters than fit in memory, which the start creates all at once. */
static void expect_agreement(bool whole, bool has_manifest, const struct started *started)
{
    bool starts = !started->refused && started->quarantined == 0;

    CHECK(whole == starts || (!whole && !has_manifest) || (whole && started->out_of_memory));
}

static bool has_manifest(const char *dir)
{
    char path[200];
    struct stat st;

    snprintf(path, sizeof(path), "%s/MANIFEST", dir);
    return stat(path, &st) == 0;
}

/* The result of a start does not depend on the number of starts, and a save keeps it. */
static void start_again(const char *dir, const struct started *first, bool accept)
{
    struct started next;

    datadir_start(dir, accept, true, &next);
    CHECK(!next.refused && next.digest == first->digest && next.quarantined == first->quarantined);
    if (!next.saved)
        return;
    /* A loss need be accepted only once. */
    bool whole = is_whole(dir);
    datadir_start(dir, false, false, &next);
    CHECK(!next.refused && next.digest == first->digest && next.quarantined == first->quarantined);
    expect_agreement(whole, true, &next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct recipe recipe = {data, data + size};
    struct made made;
    struct started first;
    char dir[160];

    setvbuf(stdout, NULL, _IOLBF, 0); /* keeps the output before a crash */
    make_base();
    snprintf(dir, sizeof(dir), "%s/data", base);
    datadir_make(dir, &recipe, &made);
    bool changed = datadir_damage(dir, &recipe) > 0;
    uint64_t before = datadir_tree_digest(dir);
    bool manifest = has_manifest(dir);
    bool whole = is_whole(dir);
    CHECK(datadir_tree_digest(dir) == before);
    datadir_start(dir, false, false, &first);
    if (!changed && !made.wild)
        CHECK(whole && !first.refused && first.quarantined == 0 && first.filters == made.filters &&
              first.digest == made.digest);
    expect_agreement(whole, manifest, &first);
    if (first.refused_by_store)
        CHECK(datadir_tree_digest(dir) == before);
    if (!first.refused) {
        start_again(dir, &first, false);
    } else {
        datadir_start(dir, true, false, &first);
        if (!first.refused)
            start_again(dir, &first, true);
    }
    remove_tree(dir);
    return 0;
}
