/* What the subcommands that look into a data directory have in common. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fsops.h"
#include "tool.h"

/* The lock file is only looked for: making one would change the directory. */
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
    struct manifest_parser parser;
    char path[4096], piece[65536];
    size_t n;
    int rc = manifest_parser_init(&parser, sink);

    snprintf(path, sizeof(path), "%s/MANIFEST", datadir);
    FILE *file = fopen(path, "rb");
    if (rc != 0 || !file) {
        errbuf_set(err, "%s: %s", path, strerror(rc ? -rc : errno));
        if (file)
            fclose(file);
        if (rc == 0)
            manifest_parser_deinit(&parser);
        return TOOL_FAILED;
    }
    while (rc == 0 && (n = fread(piece, 1, sizeof(piece), file)) > 0)
        rc = manifest_parser_feed(&parser, piece, n, err);
    if (rc == 0)
        rc = manifest_parser_finish(&parser, err);
    if (save_out)
        *save_out = parser.save;
    fclose(file);
    manifest_parser_deinit(&parser);
    if (rc == 0)
        return TOOL_OK;
    errbuf_prefix(err, "damaged: %s", path);
    return TOOL_FAILED;
}
