#include "log_note.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "log_payload.h"

#define NOTE_BYTES 96 /* no note is longer */

static int note_path(const char *dir, const char *suffix, struct path *path)
{
    return path_format(path, NULL, "%s/" LOG_NOTE_NAME "%s", dir, suffix);
}

static size_t format(uint64_t segment, char text[NOTE_BYTES])
{
    int len = snprintf(text, NOTE_BYTES, "bloomery-log 1\nlast %" PRIu64 "\n", segment);

    return (size_t)len + (size_t)snprintf(text + len, NOTE_BYTES - (size_t)len, "end %016" PRIx64 "\n",
                                          (uint64_t)XXH3_64bits(text, (size_t)len));
}

int log_note_write(const struct fsops *fs, const char *dir, uint64_t segment, bool *maybe_noted_out)
{
    char text[NOTE_BYTES];
    size_t len = format(segment, text);
    struct path path, draft;
    int rc = note_path(dir, "", &path);

    *maybe_noted_out = false;
    if (rc == 0)
        rc = note_path(dir, ".new", &draft);
    if (rc == 0)
        rc = fs_write_file(fs, draft.text, text, len);
    if (rc != 0)
        return rc;
    *maybe_noted_out = true;
    rc = fs->rename(fs->ctx, draft.text, path.text);
    return rc != 0 ? rc : fs->sync_dir(fs->ctx, dir);
}

/* A note has one spelling only. */
static int parse(const char *found, size_t len, uint64_t *segment_out, struct errbuf *err)
{
    char text[NOTE_BYTES];
    unsigned version;
    uint64_t segment, digest = 0;
    int fields = sscanf(found, "bloomery-log %u\nlast %" SCNu64, &version, &segment);
    const char *end = strstr(found, "\nend ");

    if (fields >= 1 && version != 1 && end && sscanf(end, "\nend %16" SCNx64, &digest) == 1 &&
        digest == XXH3_64bits(found, (size_t)(end + 1 - found))) {
        errbuf_set(err, WRITTEN_BY_NEWER ": its format has version %u, and this program knows version 1", version);
        return LOG_NEWER;
    }
    if (fields != 2 || segment == 0 || segment >= LOG_NUMBER_END || format(segment, text) != len ||
        memcmp(text, found, len) != 0)
        errbuf_set(err, "it is damaged");
    else {
        *segment_out = segment;
        return 0;
    }
    return LOG_DAMAGED;
}

int log_note_read(const struct fsops *fs, const char *dir, uint64_t *segment_out, struct errbuf *err)
{
    char found[NOTE_BYTES + 1];
    struct path path;
    size_t n = 0;
    int fd = -1;
    int rc = note_path(dir, "", &path);

    if (rc == 0)
        rc = fs->open(fs->ctx, path.text, FS_READ, &fd);
    if (rc == 0) {
        rc = fs->pread(fs->ctx, fd, found, NOTE_BYTES, 0, &n);
        fs->close(fs->ctx, fd);
    }
    if (rc != 0) {
        errbuf_set(err, "%s", fs_error_text(rc));
        return rc;
    }
    found[n] = '\0';
    return parse(found, n, segment_out, err);
}
