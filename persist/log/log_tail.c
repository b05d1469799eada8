#include "log_tail.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "alloc.h"
#include "log_payload.h"
#include "manifest.h"

#define TAIL_MAGIC "BLOOMEND"

struct record {
    char magic[8];
    uint64_t version;
    uint64_t process; /* 0: this is an end */
    uint64_t frame;
    uint64_t here;  /* of a process: here() */
    uint64_t check; /* XXH3-64 of the bytes before it */
};

static int tail_path(const char *dir, const char *suffix, struct path *path)
{
    return path_format(path, NULL, "%s/TAIL%s", dir, suffix);
}

/* Follows from this boot of the machine and from this file, not its name or contents; 0: not known. */
static uint64_t here(const struct fsops *fs, const char *path)
{
    struct {
        char boot[FS_BOOT_SIZE];
        uint64_t device, made_ns;
    } place;
    struct fs_stat st;

    fs_boot(fs, place.boot);
    if (!place.boot[0] || fs->stat(fs->ctx, path, &st) != 0 || !st.made_ns)
        return 0;
    place.device = st.device;
    place.made_ns = st.made_ns;
    return XXH3_64bits(&place, sizeof(place));
}

static struct record make_record(uint64_t process, uint64_t frame, uint64_t here)
{
    struct record record = {.version = LOG_VERSION, .process = process, .frame = frame, .here = here};

    memcpy(record.magic, TAIL_MAGIC, sizeof(record.magic));
    record.check = XXH3_64bits(&record, offsetof(struct record, check));
    return record;
}

/* 0 or an enum log_status or -errno. FS_ENDS: there is no record. */
static int read_record(const struct fsops *fs, int fd, uint64_t at, uint64_t place, struct log_tail *tail,
                       struct errbuf *err)
{
    struct record record;

    TRY(fs_read_all(fs, fd, &record, sizeof(record), at));
    if (memcmp(record.magic, TAIL_MAGIC, sizeof(record.magic)) != 0 ||
        record.check != XXH3_64bits(&record, offsetof(struct record, check)))
        return 0;
    if (record.version != LOG_VERSION) {
        errbuf_set(err, WRITTEN_BY_NEWER ": its format has version %" PRIu64 ", and this program knows version %d",
                   record.version, LOG_VERSION);
        return LOG_NEWER;
    }
    tail->valid = true;
    if (record.frame > tail->frame)
        tail->frame = record.frame;
    if (!record.here || record.here != place)
        return 0;
    if (GROW(tail->processes, tail->n, tail->size) != 0)
        return -ENOMEM;
    tail->processes[tail->n++] = record.process;
    return 0;
}

int log_tail_read(const struct fsops *fs, const char *dir, struct log_tail *tail, struct errbuf *err)
{
    struct path path;
    int fd, rc = tail_path(dir, "", &path);

    STEP(rc, fs->open(fs->ctx, path.text, FS_READ, &fd));
    if (rc == -ENOENT)
        return LOG_OK;
    if (rc == 0) {
        uint64_t place = here(fs, path.text);
        for (uint64_t at = 0; rc == 0; at += sizeof(struct record))
            rc = read_record(fs, fd, at, place, tail, err);
        fs->close(fs->ctx, fd);
    }
    if (rc == FS_ENDS)
        return LOG_OK;
    if (rc < 0)
        errbuf_set(err, "%s", fs_error_text(rc));
    errbuf_prefix(err, "%s", path.text);
    return rc;
}

int log_tail_begin(const struct fsops *fs, const char *dir, uint64_t process)
{
    struct path path;
    uint64_t size;
    int fd;

    TRY(tail_path(dir, "", &path));
    TRY(fs->open(fs->ctx, path.text, FS_WRITE | FS_CREATE, &fd));
    const struct record record = make_record(process, 0, here(fs, path.text));
    int rc = fs->size(fs->ctx, fd, &size);
    STEP(rc, fs_write_all(fs, fd, &record, sizeof(record), size / sizeof(record) * sizeof(record)));
    fs->close(fs->ctx, fd);
    return rc;
}

int log_tail_end(const struct fsops *fs, const char *dir, uint64_t frame)
{
    const struct record record = make_record(0, frame, 0);
    struct path path, draft;

    TRY(tail_path(dir, "", &path));
    TRY(tail_path(dir, ".new", &draft));
    TRY(fs_write_file(fs, draft.text, &record, sizeof(record)));
    TRY(fs->rename(fs->ctx, draft.text, path.text));
    return fs->sync_dir(fs->ctx, dir);
}
