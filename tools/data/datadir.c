/* Shared by the subcommands that read a data directory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest.h"
#include "fsops.h"
#include "manifest_file.h"
#include "name_code.h"
#include "tool.h"

#define LOCK_TRIES    100
#define LOCK_RETRY_US 20000

bool tool_lock_waits(unsigned *tries)
{
    return ++*tries <= LOCK_TRIES && usleep(LOCK_RETRY_US) == 0;
}

/* Whether there is anything of a data directory. A daemon that has never saved has a log. */
static bool is_data_directory(const char *path)
{
    static const char *const names[] = {MANIFEST_NAME, FILTERS_DIR, "log"};
    const struct fsops *fs = fsops_posix();
    char name[4096];
    struct fs_stat st;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(name, sizeof(name), "%s/%s", path, names[i]);
        if (fs->stat(fs->ctx, name, &st) == 0)
            return true;
    }
    return false;
}

/* Does not create the lock file, because that would change the directory. */
int tool_lock(const char *datadir, int *fd_out, struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();
    struct fs_stat st;
    char path[4096];
    pid_t owner = 0;

    *fd_out = -1;
    int rc = fs->stat(fs->ctx, datadir, &st);
    if (rc == 0 && st.kind != FS_DIRECTORY)
        rc = -ENOTDIR;
    if (rc != 0) {
        errbuf_set(err, "%s: %s", datadir, strerror(-rc));
        return TOOL_FAILED;
    }
    if (!is_data_directory(datadir)) {
        errbuf_set(err, "%s is no data directory: it has neither " MANIFEST_NAME " nor " FILTERS_DIR " nor log",
                   datadir);
        return TOOL_FAILED;
    }
    snprintf(path, sizeof(path), "%s/LOCK", datadir);
    if (fs->stat(fs->ctx, path, &st) != 0)
        return TOOL_OK;
    for (unsigned tries = 0; (rc = fs->lock(fs->ctx, path, fd_out, &owner)) == -EWOULDBLOCK && tool_lock_waits(&tries);)
        ;
    if (rc == 0)
        return TOOL_OK;
    if (rc == -EWOULDBLOCK)
        errbuf_set(err, "%s is in use by process %ld; stop the daemon first", datadir, (long)owner);
    else
        errbuf_set(err, "%s: %s", path, strerror(-rc));
    return TOOL_FAILED;
}

int tool_read_manifest(const char *datadir, const struct manifest_sink *sink, struct manifest_save *save_out,
                       struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();
    char path[4096];
    int fd;

    snprintf(path, sizeof(path), "%s/" MANIFEST_NAME, datadir);
    int rc = fs->open(fs->ctx, path, FS_READ, &fd);
    if (rc != 0) {
        errbuf_set(err, "%s: %s", path, strerror(-rc));
        return TOOL_FAILED;
    }
    rc = manifest_file_visit(fs, fd, sink, save_out, err);
    fs->close(fs->ctx, fd);
    if (rc == 0)
        return TOOL_OK;
    errbuf_prefix(err, "%s%s", rc == MANIFEST_NEWER ? "" : "damaged: ", path);
    return TOOL_FAILED;
}

static int pass_over(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    (void)ctx, (void)filter, (void)err;
    return 0;
}

struct databases tool_read_databases(const char *datadir)
{
    const struct manifest_sink nothing = {.on_filter = pass_over};
    struct manifest_save save = {0};
    (void)tool_read_manifest(datadir, &nothing, &save, NULL);
    return save.databases;
}

bool tool_key_of(const struct databases *databases, unsigned db, const char *prefix, const char *name, size_t name_len,
                 struct tool_key *key_out)
{
    size_t prefix_len = strlen(prefix), len = prefix_len + name_len;
    unsigned database = databases_get(databases, db);
    char *at = key_out->bytes + DATABASE_PREFIX;

    if (len > MANIFEST_MAX_NAME)
        return false;
    memcpy(at, prefix, prefix_len);
    memcpy(at + prefix_len, name, name_len);
    size_t mark = database_prefix_for(database, at, len);
    if (mark)
        database_prefix_put(key_out->bytes, database);
    else
        memmove(key_out->bytes, at, len);
    key_out->len = mark + len;
    return key_out->len <= MANIFEST_MAX_NAME;
}

int tool_read_database(const struct tool_args *args, unsigned *db_out)
{
    uint64_t db = 0;
    int status = tool_number(args, "--db", 0, DATABASES_MAX - 1, &db);

    *db_out = (unsigned)db;
    return status;
}

void tool_print_name(FILE *stream, const char *name, size_t len)
{
    char *text = malloc(name_encoded_len(name, len) + 1);

    if (text) {
        name_encode(name, len, text);
        fwrite(text, 1, name_encoded_len(name, len), stream);
    }
    free(text);
}
