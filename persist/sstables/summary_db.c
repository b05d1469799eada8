#include "summary_db.h"

#include <errno.h>

#include "bytes.h"

struct summary {
    const struct fsops *fs;
    int fd;
    uint64_t size, at;
};

static int take(struct summary *summary, unsigned char *out, size_t len)
{
    if (len > summary->size - summary->at)
        return -EINVAL;
    int rc = fs_read_all(summary->fs, summary->fd, out, len, summary->at);
    summary->at += rc == 0 ? len : 0;
    return rc;
}

static int pass_over(struct summary *summary, uint64_t len)
{
    if (len > summary->size - summary->at)
        return -EINVAL;
    summary->at += len;
    return 0;
}

/* Cassandra 1.2 has them one after the other: place, length, key. */
static int pass_old_samples(struct summary *summary, uint32_t n)
{
    unsigned char head[12];
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        rc = take(summary, head, sizeof(head));
        if (rc == 0)
            rc = pass_over(summary, be32_get(head + 8));
    }
    return rc;
}

/* Since 2.0 all are in one piece, whose length comes before; since 2.1 two numbers are between. */
static int pass_samples(struct summary *summary, const struct sstable_name *name)
{
    unsigned char head[8];
    int rc = take(summary, head, sizeof(head));
    if (rc != 0 || name->version.ptr[0] < 'j')
        return rc != 0 ? rc : pass_old_samples(summary, be32_get(head + 4));
    rc = take(summary, head, sizeof(head));
    if (rc == 0 && name->version.ptr[0] >= 'k')
        rc = pass_over(summary, 8);
    return rc != 0 ? rc : pass_over(summary, be64_get(head));
}

static int take_length(struct summary *summary, size_t *len_out)
{
    unsigned char bytes[4];
    int rc = take(summary, bytes, sizeof(bytes));
    *len_out = rc == 0 ? be32_get(bytes) : 0;
    return rc == 0 && *len_out > SSTABLE_KEY_MAX ? -EINVAL : rc;
}

static int read_last(struct summary *summary, const struct sstable_name *name, unsigned char *key_out, size_t *len_out)
{
    size_t first;
    int rc = summary->fs->size(summary->fs->ctx, summary->fd, &summary->size);
    if (rc == 0)
        rc = pass_samples(summary, name);
    if (rc == 0)
        rc = take_length(summary, &first);
    if (rc == 0)
        rc = pass_over(summary, first);
    if (rc == 0)
        rc = take_length(summary, len_out);
    return rc != 0 ? rc : take(summary, key_out, *len_out);
}

int summary_db_last(const struct fsops *fs, const char *path, const struct sstable_name *name,
                    unsigned char key_out[SSTABLE_KEY_MAX], size_t *len_out)
{
    struct summary summary = {.fs = fs};
    int rc = fs->open(fs->ctx, path, FS_READ, &summary.fd);
    if (rc != 0)
        return rc;
    rc = read_last(&summary, name, key_out, len_out);
    fs->close(fs->ctx, summary.fd);
    return rc;
}
