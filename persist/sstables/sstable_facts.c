#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "bytes.h"
#include "sstable_files.h"

#define COMPONENTS      4 /* databases write them all; the one for validation is type 0 */
#define ENTRY           8 /* type and place */
#define VALIDATION      0
#define STATS           2
#define PARTITIONER_MAX 512
#define BUCKET          16  /* of the histogram of partition sizes: a size and a number */
#define BUCKETS_MAX     256 /* databases write 151 or 156 */
#define PARTITIONS_MAX  (UINT64_C(1) << 48)

static bool ends_with(const unsigned char *name, size_t len, const char *end)
{
    return len >= strlen(end) && memcmp(name + len - strlen(end), end, strlen(end)) == 0;
}

/* Of the partitioner's name and the rate after it. */
static int read_validation(const struct fsops *fs, int fd, uint64_t at, struct statistics_validation *out)
{
    unsigned char name[2 + PARTITIONER_MAX + 8];
    int rc = fs_read_all(fs, fd, name, 2, at);
    size_t len = rc == 0 ? be16_get(name) : 0;
    if (rc == 0 && len > PARTITIONER_MAX)
        return -EINVAL;
    STEP(rc, fs_read_all(fs, fd, name + 2, len + 8, at + 2));
    if (rc != 0)
        return rc;
    uint64_t bits = be64_get(name + 2 + len);
    memcpy(&out->rate, &bits, sizeof(bits));
    out->murmur3 = ends_with(name + 2, len, "Murmur3Partitioner");
    return ends_with(name + 2, len, "artitioner") && out->rate > 0 && out->rate <= 1 ? 0 : -EINVAL;
}

/* The place of a component. */
static int find_component(const struct fsops *fs, int fd, uint32_t type, uint64_t *at_out)
{
    unsigned char head[8 + COMPONENTS * ENTRY];
    TRY(fs_read_all(fs, fd, head, sizeof(head), 0));
    if (be32_get(head) == 0 || be32_get(head) > COMPONENTS)
        return -EINVAL;
    for (size_t begin = 4; begin <= 8; begin += 4) { /* since na, a checksum is between */
        for (size_t i = 0; i < be32_get(head); i++) {
            const unsigned char *entry = head + begin + i * ENTRY;
            *at_out = be32_get(entry + 4);
            if (be32_get(entry) == type && *at_out >= begin + be32_get(head) * ENTRY)
                return 0;
        }
    }
    return -EINVAL;
}

/* The numbers of partitions of each size, added up. The sizes rise, except for the first two. */
static int read_partitions(const struct fsops *fs, int fd, uint64_t at, uint64_t *partitions_out)
{
    unsigned char head[4], buckets[BUCKETS_MAX * BUCKET];
    int rc = fs_read_all(fs, fd, head, sizeof(head), at);
    uint64_t n = rc == 0 ? be32_get(head) : 0, sum = 0, before = 0;
    if (rc == 0 && (n < 2 || n > BUCKETS_MAX))
        return -EINVAL;
    STEP(rc, fs_read_all(fs, fd, buckets, n * BUCKET, at + sizeof(head)));
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        uint64_t size = be64_get(buckets + i * BUCKET), count = be64_get(buckets + i * BUCKET + 8);
        if (size < before || (size == before && i != 1) || count > PARTITIONS_MAX)
            return -EINVAL;
        sum += count;
        before = size;
    }
    *partitions_out = sum;
    return rc == 0 && sum == 0 ? -EINVAL : rc;
}

static int find_validation(const struct fsops *fs, int fd, void *out)
{
    uint64_t at = 0;
    int rc = find_component(fs, fd, VALIDATION, &at);
    return rc == 0 ? read_validation(fs, fd, at, out) : rc;
}

static int read_count(const struct fsops *fs, int fd, void *partitions_out)
{
    uint64_t at = 0;
    int rc = find_component(fs, fd, STATS, &at);
    return rc == 0 ? read_partitions(fs, fd, at, partitions_out) : rc;
}

static int read_file(const struct fsops *fs, const char *path, int (*read)(const struct fsops *fs, int fd, void *out),
                     void *out)
{
    int fd, rc = fs->open(fs->ctx, path, FS_READ, &fd);
    if (rc != 0)
        return rc;
    rc = read(fs, fd, out);
    fs->close(fs->ctx, fd);
    return rc == FS_ENDS ? -EINVAL : rc;
}

int statistics_db_validation(const struct fsops *fs, const char *path, struct statistics_validation *out)
{
    return read_file(fs, path, find_validation, out);
}

int statistics_db_partitions(const struct fsops *fs, const char *path, uint64_t *partitions_out)
{
    return read_file(fs, path, read_count, partitions_out);
}

/* ---- Scylla.db ---- */

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
    return errbuf_fail(err, -EINVAL, "it is damaged");
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
        if (rc == 0 && !is_about_others(be32_get(head)))
            return errbuf_fail(err, -EINVAL,
                               "its entry of type %" PRIu32
                               " may have a checksum of the filter, or say that it is encrypted",
                               be32_get(head));
        if (rc == 0 && be32_get(head + 4) > size - at)
            return damaged(err);
        at += rc == 0 ? be32_get(head + 4) : 0;
    }
    if (rc == 0 && at != size)
        return errbuf_fail(err, -EINVAL, "%" PRIu64 " bytes follow its entries, which may be a checksum", size - at);
    return rc;
}

int scylla_db_leaves_filter(const struct fsops *fs, const char *path, struct errbuf *err)
{
    uint64_t size;
    int fd, rc = fs->open(fs->ctx, path, FS_READ, &fd);
    if (rc == 0) {
        rc = fs->size(fs->ctx, fd, &size);
        STEP(rc, read_entries(fs, fd, size, err));
        fs->close(fs->ctx, fd);
    }
    if (rc == FS_ENDS)
        return damaged(err);
    if (rc != 0 && rc != -EINVAL)
        errbuf_set(err, "%s", fs_error_text(rc));
    return rc;
}

/* ---- Summary.db ---- */

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
        STEP(rc, pass_over(summary, be32_get(head + 8)));
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
    STEP(rc, pass_samples(summary, name));
    STEP(rc, take_length(summary, &first));
    STEP(rc, pass_over(summary, first));
    STEP(rc, take_length(summary, len_out));
    return rc != 0 ? rc : take(summary, key_out, *len_out);
}

int summary_db_last(const struct fsops *fs, const char *path, const struct sstable_name *name,
                    unsigned char key_out[SSTABLE_KEY_MAX], size_t *len_out)
{
    struct summary summary = {.fs = fs};
    TRY(fs->open(fs->ctx, path, FS_READ, &summary.fd));
    int rc = read_last(&summary, name, key_out, len_out);
    fs->close(fs->ctx, summary.fd);
    return rc;
}
