/* Shared by the subcommands that read a data directory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fsops.h"
#include "manifest_file.h"
#include "tool.h"

/* Does not create the lock file, because that would change the directory. */
int tool_lock(const char *command, const char *datadir, int *fd_out)
{
    const struct fsops *fs = fsops_posix();
    struct fs_stat st;
    char path[4096];
    pid_t owner = 0;

    *fd_out = -1;
    int rc = fs->stat(fs->ctx, datadir, &st);
    if (rc == 0 && st.kind != FS_DIRECTORY)
        rc = -ENOTDIR;
    if (rc != 0)
        return tool_failed(command, "%s: %s", datadir, strerror(-rc));
    snprintf(path, sizeof(path), "%s/LOCK", datadir);
    if (fs->stat(fs->ctx, path, &st) != 0)
        return TOOL_OK;
    rc = fs->lock(fs->ctx, path, fd_out, &owner);
    if (rc == -EWOULDBLOCK)
        return tool_failed(command, "%s is in use by process %ld; stop the daemon first", datadir, (long)owner);
    if (rc != 0)
        return tool_failed(command, "%s: %s", path, strerror(-rc));
    return TOOL_OK;
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
    errbuf_prefix(err, "damaged: %s", path);
    return TOOL_FAILED;
}
