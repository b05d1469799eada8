/* The files of an SSTable, of any bytes. Of Index.db, in both forms: keys follow each other in the file, and it ends
 * or is damaged. Of a trie: a walk ends, forwards and backwards. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "sstable_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILES = 4 };
static const char *const components[FILES] = {"Partitions.db", "Rows.db", "CompressionInfo.db", "Data.db"};

struct files {
    bool index; /* the only file, with all bytes */
    struct {
        const uint8_t *bytes;
        size_t len;
    } of[FILES];
};

static int open_file(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    const struct files *files = ctx;
    (void)flags;
    for (*fd_out = 0; *fd_out < FILES; ++*fd_out) {
        if (files->index ? *fd_out == 0 : strstr(path, components[*fd_out]) != NULL)
            return files->index || *fd_out != 2 || files->of[2].len ? 0 : -ENOENT;
    }
    return -ENOENT;
}

static int close_file(void *ctx, int fd)
{
    (void)ctx, (void)fd;
    return 0;
}

static int read_file(void *ctx, int fd, void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    const struct files *files = ctx;
    size_t size = files->of[fd].len, left = offset < size ? size - (size_t)offset : 0;
    *n_out = len < left ? len : left;
    if (*n_out)
        memcpy(buf, files->of[fd].bytes + offset, *n_out);
    return 0;
}

static int size_of_file(void *ctx, int fd, uint64_t *size_out)
{
    *size_out = ((const struct files *)ctx)->of[fd].len;
    return 0;
}

static void read_keys(struct files *files, const char *path, bool backwards)
{
    const struct fsops fs = {
        .ctx = files, .open = open_file, .close = close_file, .pread = read_file, .size = size_of_file};
    struct sstable_name name;
    struct sstable_keys *keys;
    struct errbuf err = {""};
    struct sstable_key key;
    uint64_t sum = 0;
    CHECK(sstable_name_parse(path, &name, NULL) == SSTABLE_OK);
    int rc = sstable_keys_open(&keys, &fs, path, &name, &err);
    if (rc == 0) {
        CHECK(!backwards || sstable_keys_from_end(keys));
        while ((rc = sstable_keys_next(keys, &key, &err)) == SSTABLE_KEYS_ONE) {
            uint64_t end = sstable_keys_done(keys);
            sum += 2 + key.len;
            CHECK(!files->index || (sum <= end && end <= files->of[0].len));
            CHECK(!files->index || memmem(files->of[0].bytes, files->of[0].len, key.ptr, key.len));
        }
        sstable_keys_close(keys);
    }
    CHECK(rc == SSTABLE_KEYS_END || rc == SSTABLE_KEYS_DAMAGED || rc == -ENOTSUP);
    CHECK((err.text[0] != '\0') == (rc != SSTABLE_KEYS_END));
}

/* The first byte chooses: Index.db of both forms, or a trie, where three lengths of two bytes follow. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"nb-1-big-Data.db", "ks-t-ka-1-Data.db", "da-1-bti-Data.db",
                                        "ms-1-big-Data.db"};
    struct files files = {.index = size > 0 && data[0] % 4 < 2};
    if (size == 0)
        return 0;
    if (files.index) {
        files.of[0].bytes = data + 1;
        files.of[0].len = size - 1;
        read_keys(&files, names[data[0] % 4], false);
        return 0;
    }
    if (size < 7)
        return 0;
    size_t at = 7;
    for (unsigned i = 0; i < FILES; i++) {
        size_t left = size - at, len = i + 1 < FILES ? (size_t)data[1 + 2 * i] << 8 | data[2 + 2 * i] : left;
        files.of[i].bytes = data + at;
        files.of[i].len = len < left ? len : left;
        at += files.of[i].len;
    }
    read_keys(&files, names[data[0] % 4], false);
    read_keys(&files, names[data[0] % 4], true);
    return 0;
}
