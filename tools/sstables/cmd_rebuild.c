/* bloomery rebuild: new filters for SSTables, from the keys of their Index.db. A filter is written beside the old one,
 * synced and checked before it takes its place by a rename, so that a crash leaves the old or the new one. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bloom_size.h"
#include "bloom_state.h"
#include "filter_load.h"
#include "filterdb.h"
#include "fsops.h"
#include "log_text.h"
#include "new_file.h"
#include "sstable_files.h"
#include "table.h"

#define PATH_SIZE 4096

struct search {
    char directory[PATH_SIZE]; /* real, with a slash at its end */
    size_t len;
};

static bool is_below(const struct search *search, const char *path)
{
    return strncmp(path, search->directory, search->len) == 0;
}

/* 1: it has one open; 0: no; -errno: it cannot be checked. */
static int has_open(const struct search *search, const char *pid)
{
    char path[300], target[PATH_SIZE];
    int found = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    DIR *descriptors = fs_open_dir(path);
    if (!descriptors)
        return -errno;
    for (const struct dirent *item; !found && (item = readdir(descriptors));) {
        snprintf(path, sizeof(path), "/proc/%.20s/fd/%.20s", pid, item->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        found = is_below(search, target);
    }
    closedir(descriptors);
    return found;
}

/* Whether the process has mapped such a file: a database may close the files that it has mapped. */
static int has_mapped(const struct search *search, const char *pid)
{
    char path[64], line[PATH_SIZE + 128];
    int found = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return -errno;
    while (!found && fgets(line, sizeof(line), maps)) {
        const char *file = strchr(line, '/');
        found = file && is_below(search, file);
    }
    fclose(maps);
    return found;
}

static void name_of(const char *pid, char out[64])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    if (file && fgets(out, 64, file))
        out[strcspn(out, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* Whether the process uses the directory, or may be a database that cannot be checked. */
static bool uses(const struct search *search, const char *pid, struct errbuf *err)
{
    char name[64];
    int open = has_open(search, pid), mapped = open > 0 ? 0 : has_mapped(search, pid);
    if (open == 0 && mapped == 0)
        return false;
    name_of(pid, name);
    if (open > 0 || mapped > 0) {
        errbuf_set(err, "the process %s (%s) uses files of %s", pid, name, search->directory);
        return true;
    }
    bool may_be = strcmp(name, "java") == 0 || strncmp(name, "scylla", 6) == 0;
    if (may_be)
        errbuf_set(err, "the process %s (%s) may use %s, and its open files cannot be read: %s", pid, name,
                   search->directory, strerror(open < 0 ? -open : -mapped));
    return may_be;
}

/* Looks through the open and mapped files of all processes that this user may check (/proc). True with the reason in
 * `err`: one of them has a file of the directory open, the files of a process named java or scylla cannot be read, or
 * the check is impossible. */
static bool node_may_use(const char *directory, struct errbuf *err)
{
    struct search search;
    char real[PATH_SIZE];
    bool used = false;
    DIR *processes = realpath(directory, real) && strlen(real) + 2 <= PATH_SIZE ? fs_open_dir("/proc") : NULL;
    if (!processes) {
        errbuf_set(err, "cannot determine whether a database uses %s: %s", directory, strerror(errno));
        return true;
    }
    search.len = (size_t)snprintf(search.directory, sizeof(search.directory), "%s%s", real, real[1] ? "/" : "");
    for (const struct dirent *item; !used && (item = readdir(processes));)
        if (isdigit((unsigned char)item->d_name[0]) && strtol(item->d_name, NULL, 10) != getpid())
            used = uses(&search, item->d_name, err);
    closedir(processes);
    return used;
}

#define COMMAND    "rebuild"
#define BACKUP_END ".before-rebuild"

struct rebuild {
    const char *output; /* NULL: in place */
    double error;       /* 0: the size and k of the one there */
    bool backup, knows, force;
    struct table table;
    struct bloom_shape shape;
    struct bloom_alone loaded;
    uint64_t keys, missing;
    struct stat old; /* st_nlink 0: none */
    bool placed;     /* the new filter is there */
};

/* The SSTable's. */
static void directory_of(const struct rebuild *rebuild, char out[TABLE_PATH])
{
    const char *slash = strrchr(rebuild->table.path, '/');
    int len = slash ? (int)(slash - rebuild->table.path) : 1;
    snprintf(out, TABLE_PATH, "%.*s", len ? len : 1, slash ? rebuild->table.path : ".");
}

static int failed(const struct rebuild *rebuild, const char *why)
{
    return tool_failed(COMMAND, "%s: %s%s", rebuild->table.path, why, rebuild->placed ? "" : "; nothing was changed");
}

/* ---- keys ---- */

static void count_key(void *ctx, const struct sstable_key *key)
{
    (void)key;
    ((struct rebuild *)ctx)->keys++;
}

static void add_key(void *ctx, const struct sstable_key *key)
{
    struct errbuf err;
    (void)bloom_filter_add(((struct rebuild *)ctx)->loaded.filter, key->hash, &err);
}

static void ask_key(void *ctx, const struct sstable_key *key)
{
    struct rebuild *rebuild = ctx;
    rebuild->missing += !bloom_filter_query(rebuild->loaded.filter, key->hash);
}

/* ---- size ---- */

static int shape_of_old(struct rebuild *rebuild, struct errbuf *err)
{
    struct filter_file file;
    int rc = filter_file_open(&file, fsops_posix(), rebuild->table.filter, NULL, err);
    if (rc == -ENOENT)
        errbuf_set(err, "%s is missing, so --same has no size; use --error P", rebuild->table.filter);
    if (rc != 0)
        return rc < 0 ? rc : -EINVAL;
    rebuild->shape = file.shape;
    filter_file_close(&file);
    return 0;
}

/* As Cassandra sizes the filter of a table with this many keys. */
static int shape_for_error(struct rebuild *rebuild, struct errbuf *err)
{
    enum bloom_variant variant;
    struct bloom_size size;
    if (sstable_name_variant(&rebuild->table.name, &variant, err) != SSTABLE_OK)
        return -EINVAL;
    if (filter_size_cassandra(rebuild->keys, rebuild->error, &size, err) != BLOOM_SIZE_OK)
        return -EINVAL;
    rebuild->shape = (struct bloom_shape){.nwords = size.nwords, .k = (uint8_t)size.k, .variant = (uint8_t)variant};
    return 0;
}

/* ---- the file ---- */

/* Opens the written file again. */
static int read_back(struct rebuild *rebuild, int fd, struct errbuf *err)
{
    struct filter_file file;
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again < 0)
        return errbuf_fail(err, -errno, "the new filter: %s", strerror(errno));
    bloom_alone_deinit(&rebuild->loaded);
    int rc = filter_file_adopt(&file, fsops_posix(), again, (enum bloom_variant)rebuild->shape.variant, err);
    if (rc == 0) {
        rc = loaded_filter_read(&rebuild->loaded, &file, NULL, err);
        filter_file_close(&file);
    }
    STEP(rc, table_each_key(&rebuild->table, 0, ask_key, rebuild, "checking", err));
    if (rc == 0 && rebuild->missing) {
        errbuf_set(err,
                   "%" PRIu64 " keys are not in the new filter: the SSTable has changed meanwhile, or the disk is "
                   "faulty",
                   rebuild->missing);
        rc = -EIO;
    }
    return rc;
}

/* Writes the filter, reads it back into the filter in memory, and asks it for all keys. */
static int write_filter(struct rebuild *rebuild, struct new_file *file, struct errbuf *err)
{
    int rc = filter_write_words(file->fd, &rebuild->shape, 0, filter_next_words, rebuild->loaded.filter);
    STEP(rc, fsops_posix()->sync(fsops_posix()->ctx, file->fd));
    if (rc != 0)
        errbuf_set(err, "the new filter: %s", strerror(-rc));
    STEP(rc, read_back(rebuild, file->fd, err));
    if (rc == 0 && rebuild->old.st_nlink && !rebuild->output &&
        (fchown(file->fd, rebuild->old.st_uid, rebuild->old.st_gid) != 0 ||
         fchmod(file->fd, rebuild->old.st_mode & 07777) != 0)) {
        rc = -errno;
        errbuf_set(err, "owner and mode of the new filter: %s", strerror(-rc));
    }
    return rc;
}

struct backup {
    char path[TABLE_PATH + sizeof(BACKUP_END)]; /* empty: none has been made */
};

static int keep_old(const struct rebuild *rebuild, struct backup *made, struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();
    char backup[TABLE_PATH + sizeof(BACKUP_END)], directory[TABLE_PATH];
    snprintf(backup, sizeof(backup), "%s" BACKUP_END, rebuild->table.filter);
    int rc = fs->link(fs->ctx, rebuild->table.filter, backup);
    if (rc == 0) {
        strcpy(made->path, backup);
        directory_of(rebuild, directory);
        rc = fs->sync_dir(fs->ctx, directory); /* before the new filter takes the old one's name */
    }
    if (rc == 0)
        return 0;
    return errbuf_fail(err, rc, "%s: %s", backup, strerror(-rc));
}

/* ---- TOC.txt ---- */

static int write_toc(const char *path, const struct table_toc *toc)
{
    struct errbuf err = {{0}};
    struct new_file file;
    struct stat old;
    if (stat(path, &old) != 0)
        return -errno;
    TRY(new_file_open(&file, path, true, &err));
    int rc = fs_write_all(fsops_posix(), file.fd, toc->text, toc->len, 0);
    if (rc == 0 && (fchown(file.fd, old.st_uid, old.st_gid) != 0 || fchmod(file.fd, old.st_mode & 07777) != 0))
        rc = -errno;
    return new_file_end(&file, rc, &err);
}

/* An SSTable that had no filter names none. */
static int correct_toc(const struct rebuild *rebuild, struct errbuf *err)
{
    static const char line[] = "\nFilter.db\n";
    struct table_toc toc;
    int rc = table_read_toc(&rebuild->table, &toc);
    if (rc == -ENOENT || (rc == 0 && table_toc_names(&toc, "Filter.db")))
        return 0;
    if (rc == 0 && toc.len + sizeof(line) > sizeof(toc.text))
        rc = -EFBIG;
    if (rc == 0) {
        bool ends = toc.len == 0 || toc.text[toc.len - 1] == '\n';
        strcpy(toc.text + toc.len, line + ends);
        toc.len += strlen(line + ends);
        rc = write_toc(rebuild->table.toc, &toc);
    }
    return rc == 0 ? 0
                   : errbuf_fail(err, rc, "the filter has been replaced, but TOC.txt does not name it: %s",
                                 fs_error_text(rc));
}

/* ---- one SSTable ---- */

static int refuse_table(const struct rebuild *rebuild)
{
    char directory[TABLE_PATH], scylla[TABLE_PATH], backup[TABLE_PATH + sizeof(BACKUP_END)];
    struct errbuf err = {{0}};
    struct stat st;
    if (rebuild->output)
        return TOOL_OK;
    if (!table_component(&rebuild->table, "Scylla.db", scylla))
        return failed(rebuild, strerror(ENAMETOOLONG));
    int rc = scylla_db_leaves_filter(fsops_posix(), scylla, &err);
    if (rc != 0 && rc != -ENOENT) {
        errbuf_prefix(&err, "Scylla.db");
        return failed(rebuild, err.text);
    }
    snprintf(backup, sizeof(backup), "%s" BACKUP_END, rebuild->table.filter);
    if (rebuild->backup && stat(rebuild->table.filter, &st) == 0 &&
        lstat(backup, &st) == 0) { /* before the keys are read */
        errbuf_set(&err, "%s: it is an earlier backup: move it, or use --no-backup", backup);
        return failed(rebuild, err.text);
    }
    directory_of(rebuild, directory);
    if (!rebuild->knows && node_may_use(directory, &err)) {
        errbuf_prefix(&err, "a running database would ignore or overwrite the new filter");
        return tool_failed(COMMAND, "%s: %s; stop it, or work on a copy; --i-know overrides this check",
                           rebuild->table.path, err.text);
    }
    return TOOL_OK;
}

/* The filter in memory. */
static int make_filter(struct rebuild *rebuild, struct errbuf *err)
{
    int rc = table_each_key(&rebuild->table, 0, count_key, rebuild, "counting keys", err);
    if (rc == 0 && rebuild->keys == 0)
        return errbuf_fail(err, -EINVAL, "%s has no key, but an SSTable has at least one",
                           sstable_keys_component(&rebuild->table.name));
    STEP(rc, rebuild->error > 0 ? shape_for_error(rebuild, err) : shape_of_old(rebuild, err));
    STEP(rc, bloom_alone_init(&rebuild->loaded, &rebuild->shape, NULL, err));
    STEP(rc, table_each_key(&rebuild->table, 0, add_key, rebuild, "adding keys", err));
    return rc;
}

static int put_in_place(struct rebuild *rebuild, struct errbuf *err)
{
    const char *path = rebuild->output ? rebuild->output : rebuild->table.filter;
    struct backup backup = {""};
    struct new_file file;
    TRY(new_file_open(&file, path, !rebuild->output || rebuild->force, err));
    int rc = write_filter(rebuild, &file, err);
    if (rc == 0 && !rebuild->output && rebuild->backup && rebuild->old.st_nlink)
        rc = keep_old(rebuild, &backup, err);
    struct errbuf of_end = {{0}};
    int end = new_file_end(&file, rc, rc == 0 ? err : &of_end);
    rebuild->placed = file.placed;
    if (!file.placed && backup.path[0])
        unlink(backup.path);
    return rc != 0 ? rc : end;
}

static void report(const struct rebuild *rebuild)
{
    struct bloom_state state;
    bloom_filter_state(rebuild->loaded.filter, &state);
    const char *path = rebuild->output ? rebuild->output : rebuild->table.filter;
    tool_print_result(path, strlen(path));
    printf(": %s, %s", log_count(rebuild->keys, "key").text, log_bytes(filterdb_bytes(rebuild->shape.nwords)).text);
    if (rebuild->old.st_nlink && !rebuild->output)
        printf(" instead of %s", log_bytes((uint64_t)rebuild->old.st_size).text);
    printf(", k %u, rate %.2g\n", (unsigned)rebuild->shape.k, state.rate);
}

static int rebuild_table(struct rebuild *rebuild)
{
    struct errbuf err = {{0}};
    int status = refuse_table(rebuild);
    if (status != TOOL_OK)
        return status;
    if (stat(rebuild->table.filter, &rebuild->old) != 0)
        rebuild->old.st_nlink = 0;
    int rc = make_filter(rebuild, &err);
    STEP(rc, put_in_place(rebuild, &err));
    if (rc != 0) {
        status = failed(rebuild, err.text);
    } else {
        report(rebuild);
        if (!rebuild->output && correct_toc(rebuild, &err) != 0)
            status = tool_failed(COMMAND, "%s: %s", rebuild->table.path, err.text);
    }
    bloom_alone_deinit(&rebuild->loaded);
    return status;
}

/* ---- the command ---- */

static int run_rebuild(const struct tool_args *args)
{
    struct rebuild options = {.output = tool_option(args, "--output"),
                              .backup = !tool_option(args, "--no-backup"),
                              .knows = tool_option(args, "--i-know") != NULL,
                              .force = tool_option(args, "--force") != NULL};
    bool same = tool_option(args, "--same") != NULL;
    int status = tool_rate(args, "--error", &options.error);
    if (status != TOOL_OK)
        return status;
    if (same == (options.error > 0))
        return tool_misused(COMMAND, "give --error P or --same");
    if (options.force && !options.output)
        return tool_misused(COMMAND, "--force is for --output");
    if (options.output && args->npositional > 1)
        return tool_misused(COMMAND, "--output is for one SSTable");
    if (filter_rate_warning(options.error))
        fprintf(stderr, "bloomery " COMMAND ": warning: %s\n", filter_rate_warning(options.error));
    for (unsigned i = 0; i < args->npositional; i++) {
        struct rebuild *rebuild = malloc(sizeof(*rebuild));
        struct errbuf err = {{0}};
        if (!rebuild)
            return tool_failed(COMMAND, "%s", strerror(ENOMEM));
        *rebuild = options;
        int rc = table_of(&rebuild->table, args->positional[i], &err) == 0
                     ? rebuild_table(rebuild)
                     : tool_failed(COMMAND, "%s: %s", args->positional[i], err.text);
        status = rc != TOOL_OK ? rc : status;
        free(rebuild);
    }
    if (status == TOOL_OK && !options.output)
        printf("A node loads the new filters at its start; a running node can load a copy by 'nodetool import'.\n");
    return status;
}

static const struct tool_option options[] = {
    {.name = "--error", .value = "P", .doc = "The rate of the new filter, as bloom_filter_fp_chance."},
    {.name = "--same", .doc = "Keeps the size and the number of hashes of the existing filter."},
    {.name = "--output", .value = "FILE", .doc = "Writes the filter to FILE, and changes nothing else."},
    {.name = "--force", .doc = "Replaces the FILE of --output if it exists."},
    {.name = "--no-backup",
     .doc = "Keeps no old filter. By default it stays in the directory as ...-Filter.db" BACKUP_END "."},
    {.name = "--i-know", .doc = "Continues although a process uses, or may use, files of the directory."},
    {.name = NULL},
};

const struct tool_command tool_rebuild_command = {
    .name = COMMAND,
    .arguments = "SSTABLE...",
    .summary = "Makes new filters for SSTables from their keys.",
    .text =
        "SSTABLE is any file of an SSTable. The command reads the partition keys and makes the database's filter for "
        "them, with any rate: after a change of bloom_filter_fp_chance, which otherwise rewrites all data ('nodetool "
        "upgradesstables -a'), or after a filter has been damaged. With --same a whole filter comes out byte for byte "
        "as it was.\n\nThe new filter is written beside the old one, synced, read back and asked for every key. Then "
        "it takes the place, owner and mode of the old one, and TOC.txt names it. A crash leaves the old or the new "
        "filter.\n\nThe node must not run: it would not see the new filter, or write another one. SSTables of "
        "ScyllaDB whose Scylla.db may have a checksum of the filter, as since 2026, are refused unless --output is "
        "given; 'nodetool upgradesstables' writes them anew.",
    .options = options,
    .examples = "bloomery rebuild --error 0.01 /var/lib/cassandra/data/ks/users-*/*-Data.db\n"
                "bloomery rebuild --same --output new-Filter.db nb-1-big-Data.db",
    .run = run_rebuild,
};
