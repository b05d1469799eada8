#include "done_note.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_BYTES 32 /* no note is longer */

struct note_path {
    char text[4096];
};

static bool note_path(const char *dir, struct note_path *path)
{
    int len = snprintf(path->text, sizeof(path->text), "%s/MANIFEST.done", dir);

    return len > 0 && (size_t)len < sizeof(path->text);
}

uint64_t done_note_read(const struct fsops *fs, const char *dir)
{
    char found[NOTE_BYTES + 1], again[NOTE_BYTES + 1];
    struct note_path path;
    size_t n = 0;
    int fd;

    if (!note_path(dir, &path) || fs->open(fs->ctx, path.text, FS_READ, &fd) != 0)
        return 0;
    int rc = fs->pread(fs->ctx, fd, found, NOTE_BYTES, 0, &n);
    fs->close(fs->ctx, fd);
    if (rc != 0)
        return 0;
    found[n] = '\0';
    uint64_t generation = strtoull(found, NULL, 10);
    snprintf(again, sizeof(again), "%" PRIu64 "\n", generation);
    return strcmp(found, again) == 0 ? generation : 0;
}

void done_note_write(const struct fsops *fs, const char *dir, uint64_t generation)
{
    struct note_path path;
    char text[NOTE_BYTES];
    size_t n;
    int fd;
    int len = snprintf(text, sizeof(text), "%" PRIu64 "\n", generation);

    /* A new file: a backup may have hard links to the old one. */
    if (!note_path(dir, &path) || fs_open_new(fs, path.text, FS_WRITE, &fd) != 0)
        return;
    (void)fs->pwrite(fs->ctx, fd, text, (size_t)len, 0, &n); /* half a note is none */
    fs->close(fs->ctx, fd);
}
