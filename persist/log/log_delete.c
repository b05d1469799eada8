/* Segments that a save has made superfluous. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_frame.h"
#include "log_writer.h"

struct numbers {
    uint64_t below;
    uint64_t *items;
    size_t count;
    size_t size;
};

static int note_number(void *ctx, const char *name)
{
    struct numbers *numbers = ctx;
    uint64_t number = log_segment_number(name) + log_draft_number(name);

    if (number == 0 || number >= numbers->below)
        return 0;
    if (numbers->count == numbers->size) {
        size_t size = numbers->size ? numbers->size * 2 : 64;
        uint64_t *items = realloc(numbers->items, size * sizeof(*items));
        if (!items)
            return -ENOMEM;
        numbers->items = items;
        numbers->size = size;
    }
    numbers->items[numbers->count++] = number;
    return 0;
}

static int delete_file(const struct fsops *fs, const char *log_dir, const char *name, struct errbuf *err)
{
    char path[4096];
    int len = snprintf(path, sizeof(path), "%s/%s", log_dir, name);
    int rc = len > 0 && (size_t)len < sizeof(path) ? fs->unlink(fs->ctx, path) : -ENAMETOOLONG;

    if (rc == -ENOENT)
        return 0;
    if (rc != 0)
        errbuf_set(err, "%s/%s: %s", log_dir, name, strerror(-rc));
    return rc;
}

/* Not synced: a segment that comes back after a crash is below the MANIFEST's and deleted again. */
int log_delete_before(const struct fsops *fs, const char *dir, uint64_t segment, struct errbuf *err)
{
    struct numbers numbers = {.below = segment};
    char log_dir[4096];
    int len = snprintf(log_dir, sizeof(log_dir), "%s/log", dir);
    int status =
        len > 0 && (size_t)len < sizeof(log_dir) ? fs->list(fs->ctx, log_dir, note_number, &numbers) : -ENAMETOOLONG;

    if (status == -ENOENT)
        status = 0;
    if (status != 0)
        errbuf_set(err, "%s/log: %s", dir, strerror(-status));
    for (size_t i = 0; i < numbers.count; i++) {
        char name[LOG_SEGMENT_NAME];

        log_segment_name(numbers.items[i], name);
        int rc = delete_file(fs, log_dir, name, err);
        status = status ? status : rc;
        log_draft_name(numbers.items[i], name);
        rc = delete_file(fs, log_dir, name, NULL);
        status = status ? status : rc;
    }
    free(numbers.items);
    return status;
}
