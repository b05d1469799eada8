#include "statistics_db.h"

#include <errno.h>
#include <string.h>

#include "bytes.h"

#define COMPONENTS      4 /* databases write them all; the one for validation is type 0 */
#define ENTRY           8 /* type and place */
#define PARTITIONER_MAX 512

/* Of the partitioner's name and the rate behind it. */
static int read_validation(const struct fsops *fs, int fd, uint64_t at, double *rate_out)
{
    static const char end[] = "artitioner";
    unsigned char name[2 + PARTITIONER_MAX + 8];
    int rc = fs_read_all(fs, fd, name, 2, at);
    size_t len = rc == 0 ? be16_get(name) : 0;
    if (rc == 0 && (len < strlen(end) || len > PARTITIONER_MAX))
        return -EINVAL;
    if (rc == 0)
        rc = fs_read_all(fs, fd, name + 2, len + 8, at + 2);
    if (rc != 0)
        return rc;
    uint64_t bits = be64_get(name + 2 + len);
    memcpy(rate_out, &bits, sizeof(bits));
    bool valid = memcmp(name + 2 + len - strlen(end), end, strlen(end)) == 0 && *rate_out > 0 && *rate_out <= 1;
    return valid ? 0 : -EINVAL;
}

static int read_rate(const struct fsops *fs, int fd, double *rate_out)
{
    unsigned char head[8 + COMPONENTS * ENTRY];
    int rc = fs_read_all(fs, fd, head, sizeof(head), 0);
    if (rc != 0)
        return rc == -EIO ? -EINVAL : rc; /* it is shorter */
    if (be32_get(head) == 0 || be32_get(head) > COMPONENTS)
        return -EINVAL;
    for (size_t begin = 4; begin <= 8; begin += 4) { /* since na, a checksum is between */
        for (size_t i = 0; i < be32_get(head); i++) {
            const unsigned char *entry = head + begin + i * ENTRY;
            if (be32_get(entry) == 0 && be32_get(entry + 4) >= begin + be32_get(head) * ENTRY)
                return read_validation(fs, fd, be32_get(entry + 4), rate_out);
        }
    }
    return -EINVAL;
}

int statistics_db_rate(const struct fsops *fs, const char *path, double *rate_out)
{
    int fd, rc = fs->open(fs->ctx, path, FS_READ, &fd);
    if (rc != 0)
        return rc;
    rc = read_rate(fs, fd, rate_out);
    fs->close(fs->ctx, fd);
    return rc;
}
