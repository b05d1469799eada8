#include "statistics_db.h"

#include <errno.h>
#include <string.h>

#include "bytes.h"

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
    if (rc == 0)
        rc = fs_read_all(fs, fd, name + 2, len + 8, at + 2);
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
    int rc = fs_read_all(fs, fd, head, sizeof(head), 0);
    if (rc != 0)
        return rc;
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
    if (rc == 0)
        rc = fs_read_all(fs, fd, buckets, n * BUCKET, at + sizeof(head));
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
