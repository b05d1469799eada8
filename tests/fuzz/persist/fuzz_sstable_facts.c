/* Scylla.db and Statistics.db of any bytes: the facts found are in the bytes, and whole. The first byte chooses. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"
#include "check.h"
#include "sstable_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct file {
    const uint8_t *bytes;
    size_t len;
};

static int open_file(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    (void)ctx, (void)path, (void)flags;
    *fd_out = 0;
    return 0;
}

static int close_file(void *ctx, int fd)
{
    (void)ctx, (void)fd;
    return 0;
}

static int read_file(void *ctx, int fd, void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    const struct file *file = ctx;
    size_t left = offset < file->len ? file->len - (size_t)offset : 0;
    (void)fd;
    *n_out = len < left ? len : left;
    if (*n_out)
        memcpy(buf, file->bytes + offset, *n_out);
    return 0;
}

static int size_of_file(void *ctx, int fd, uint64_t *size_out)
{
    (void)fd;
    *size_out = ((const struct file *)ctx)->len;
    return 0;
}

static int look_at_scylla(struct fsops *fs)
{
    struct errbuf err = {""};
    int rc = scylla_db_leaves_filter(fs, "me-1-big-Scylla.db", &err);
    CHECK(rc == 0 || rc == -EINVAL);
    CHECK((rc == 0) == (err.text[0] == '\0'));
    return rc;
}

/* Of a file that leaves the filter alone the last byte belongs to an entry, and so does no further one. */
static void check_scylla(struct fsops *fs, struct file *file)
{
    if (look_at_scylla(fs) != 0)
        return;
    CHECK(file->len >= 4);
    file->len--;
    CHECK(look_at_scylla(fs) == -EINVAL);
}

static void check_statistics(const struct fsops *fs, const struct file *file)
{
    static const char path[] = "nb-1-big-Statistics.db";
    unsigned char number[8];
    uint64_t partitions = 0, bits;
    struct statistics_validation validation = {.rate = 0};
    int rc = statistics_db_validation(fs, path, &validation);
    double rate = validation.rate;
    CHECK(rc == 0 || rc == -EINVAL);
    if (rc == 0) {
        CHECK(rate > 0 && rate <= 1);
        memcpy(&bits, &rate, sizeof(bits));
        be64_put(number, bits);
        CHECK(memmem(file->bytes, file->len, number, sizeof(number)));
    }
    rc = statistics_db_partitions(fs, path, &partitions);
    CHECK(rc == 0 ? partitions > 0 : rc == -EINVAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct file file = {.bytes = data + 1, .len = size - 1};
    struct fsops fs = {.ctx = &file, .open = open_file, .close = close_file, .pread = read_file, .size = size_of_file};
    if (data[0] % 2)
        check_scylla(&fs, &file);
    else
        check_statistics(&fs, &file);
    return 0;
}
