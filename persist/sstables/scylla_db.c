#include "scylla_db.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "bytes.h"

#define ENTRIES 64 /* there were ten kinds at most in files without checksums */
#define HEAD    8  /* type and size of an entry */

/* Entries that are known, from real files, to have other contents: shards, features, the run, large partitions, origin,
 * version, build and time stamps, the SSTable's id. Not 3, attributes of extensions, as of encryption: then the filter
 * is encrypted, too. Later ones have checksums of all components. */
static const uint32_t about_others[] = {1, 2, 4, 5, 6, 7, 8, 9, 10};

static bool is_about_others(uint32_t type)
{
    bool is = false;
    for (size_t i = 0; i < sizeof(about_others) / sizeof(about_others[0]); i++)
        is |= about_others[i] == type;
    return is;
}

static int damaged(struct errbuf *err)
{
    errbuf_set(err, "it is damaged");
    return -EINVAL;
}

/* The entries of a file of `size` bytes. */
static int read_entries(const struct fsops *fs, int fd, uint64_t size, struct errbuf *err)
{
    unsigned char head[HEAD];
    uint64_t at = 4;
    int rc = size < 4 ? FS_ENDS : fs_read_all(fs, fd, head, 4, 0);
    uint32_t n = rc == 0 ? be32_get(head) : 0;
    if (rc == 0 && n > ENTRIES)
        return damaged(err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        if (size - at < HEAD)
            return damaged(err);
        rc = fs_read_all(fs, fd, head, HEAD, at);
        at += HEAD;
        if (rc == 0 && !is_about_others(be32_get(head))) {
            errbuf_set(err,
                       "its entry of type %" PRIu32 " may have a checksum of the filter, or say that it is encrypted",
                       be32_get(head));
            return -EINVAL;
        }
        if (rc == 0 && be32_get(head + 4) > size - at)
            return damaged(err);
        at += rc == 0 ? be32_get(head + 4) : 0;
    }
    if (rc == 0 && at != size) {
        errbuf_set(err, "%" PRIu64 " bytes follow its entries, which may be a checksum", size - at);
        return -EINVAL;
    }
    return rc;
}

int scylla_db_leaves_filter(const struct fsops *fs, const char *path, struct errbuf *err)
{
    uint64_t size;
    int fd, rc = fs->open(fs->ctx, path, FS_READ, &fd);
    if (rc == 0) {
        rc = fs->size(fs->ctx, fd, &size);
        if (rc == 0)
            rc = read_entries(fs, fd, size, err);
        fs->close(fs->ctx, fd);
    }
    if (rc == FS_ENDS)
        return damaged(err);
    if (rc != 0 && rc != -EINVAL)
        errbuf_set(err, "%s", fs_error_text(rc));
    return rc;
}
