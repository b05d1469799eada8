#include "sstable_files.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <lz4.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "bytes.h"
#include "slice.h"

#define CHECKSUM   4               /* bytes after each chunk */
#define INFO_MAX   ((size_t)65536) /* of the part before the offsets of chunks; databases write some 100 bytes */
#define LZ4_LENGTH 4               /* before an LZ4 block: its length before compression, little-endian */

static int damaged(struct errbuf *err, const char *component, const char *what)
{
    return errbuf_fail(err, SSTABLE_KEYS_DAMAGED, "%s is damaged: %s", component, what);
}

/* ---- compressors: 0, or -EINVAL: these are not this many bytes ---- */

static int decompress_lz4(const unsigned char *from, size_t n, unsigned char *to, size_t len)
{
    if (n < LZ4_LENGTH || le32_get(from) != len)
        return -EINVAL;
    int got = LZ4_decompress_safe((const char *)from + LZ4_LENGTH, (char *)to, (int)(n - LZ4_LENGTH), (int)len);
    return got == (int)len ? 0 : -EINVAL;
}

static int decompress_snappy(const unsigned char *from, size_t n, unsigned char *to, size_t len)
{
    size_t got = len;
    return snappy_uncompress((const char *)from, n, (char *)to, &got) == SNAPPY_OK && got == len ? 0 : -EINVAL;
}

static int decompress_deflate(const unsigned char *from, size_t n, unsigned char *to, size_t len)
{
    uLongf got = len;
    return uncompress(to, &got, from, n) == Z_OK && got == len ? 0 : -EINVAL;
}

static int decompress_zstd(const unsigned char *from, size_t n, unsigned char *to, size_t len)
{
    return ZSTD_decompress(to, len, from, n) == len ? 0 : -EINVAL;
}

/* Behind the bytes of a short last chunk are zeros, up to the length from which on chunks are stored. */
static int copy_stored(const unsigned char *from, size_t n, unsigned char *to, size_t len)
{
    if (n < len)
        return -EINVAL;
    memcpy(to, from, len);
    return 0;
}

static const struct {
    const char *name;
    int (*decompress)(const unsigned char *from, size_t n, unsigned char *to, size_t len);
} compressors[] = {
    {"LZ4Compressor", decompress_lz4},         {"SnappyCompressor", decompress_snappy},
    {"DeflateCompressor", decompress_deflate}, {"ZstdCompressor", decompress_zstd},
    {"NoopCompressor", copy_stored},
};

/* `name` may have its Java package before it. */
static int find_compressor(struct data_db *data, struct slice name, struct errbuf *err)
{
    for (size_t i = name.len; i-- > 0;) {
        if (name.ptr[i] == '.') {
            name = (struct slice){name.ptr + i + 1, name.len - i - 1};
            break;
        }
    }
    for (size_t i = 0; i < sizeof(compressors) / sizeof(compressors[0]); i++) {
        if (name.len == strlen(compressors[i].name) && memcmp(name.ptr, compressors[i].name, name.len) == 0) {
            data->decompress = compressors[i].decompress;
            return 0;
        }
    }
    return errbuf_fail(err, -ENOTSUP, "Data.db is compressed by %.*s, which is unknown",
                       name.len > 100 ? 100 : (int)name.len, name.ptr);
}

/* ---- CompressionInfo.db ---- */

/* The part before the offsets of the chunks. */
struct info_head {
    unsigned char bytes[INFO_MAX];
    size_t n, at;
};

static bool take_bytes(struct info_head *head, size_t n, const unsigned char **out)
{
    if (n > head->n - head->at)
        return false;
    *out = head->bytes + head->at;
    head->at += n;
    return true;
}

static bool take_number(struct info_head *head, unsigned bytes, uint64_t *out)
{
    const unsigned char *p;
    if (!take_bytes(head, bytes, &p))
        return false;
    for (*out = 0; bytes > 0; bytes--)
        *out = *out << 8 | *p++;
    return true;
}

static bool take_text(struct info_head *head, struct slice *out)
{
    uint64_t len;
    const unsigned char *p;
    if (!take_number(head, 2, &len) || !take_bytes(head, (size_t)len, &p))
        return false;
    *out = (struct slice){(const char *)p, (size_t)len};
    return true;
}

static bool pass_options(struct info_head *head)
{
    uint64_t n;
    struct slice text;
    bool good = take_number(head, 4, &n);
    for (uint64_t i = 0; good && i < 2 * n; i++) /* each takes two bytes at least */
        good = take_text(head, &text);
    return good;
}

static int parse_info(struct data_db *data, struct info_head *head, uint64_t info_size, bool with_most,
                      struct errbuf *err)
{
    struct slice name;
    uint64_t chunk_length, most = INT32_MAX;
    if (!take_text(head, &name) || !pass_options(head) || !take_number(head, 4, &chunk_length) ||
        (with_most && !take_number(head, 4, &most)) || !take_number(head, 8, &data->length) ||
        !take_number(head, 4, &data->nchunks))
        return damaged(err, "CompressionInfo.db", "it ends before the places of the chunks");
    data->chunk_length = (size_t)chunk_length;
    data->stored_from = (size_t)most;
    data->offsets = head->at;
    if (chunk_length == 0 || chunk_length > DATA_CHUNK_MAX)
        return damaged(err, "CompressionInfo.db", "invalid length of a chunk");
    if (data->nchunks != data->length / chunk_length + (data->length % chunk_length != 0))
        return damaged(err, "CompressionInfo.db", "the number of chunks is not that of the bytes");
    if (data->nchunks > (info_size - data->offsets) / 8)
        return damaged(err, "CompressionInfo.db", "it ends within the places of the chunks");
    return find_compressor(data, name, err);
}

static int read_info(struct data_db *data, const char *path, bool with_most, struct errbuf *err)
{
    uint64_t size;
    int rc = data->fs->open(data->fs->ctx, path, FS_READ, &data->info_fd);
    if (rc != 0) {
        data->info_fd = -1;
        return rc;
    }
    rc = data->fs->size(data->fs->ctx, data->info_fd, &size);
    struct info_head *head = rc == 0 ? malloc(sizeof(*head)) : NULL;
    if (!head)
        return rc != 0 ? rc : -ENOMEM;
    head->n = size < INFO_MAX ? (size_t)size : INFO_MAX;
    head->at = 0;
    rc = fs_read_all(data->fs, data->info_fd, head->bytes, head->n, 0);
    STEP(rc, parse_info(data, head, size, with_most, err));
    free(head);
    return rc;
}

/* ---- chunks ---- */

/* The most that a chunk takes: compressors add a sixth at most, and some bytes. */
static size_t packed_max(const struct data_db *data)
{
    return data->chunk_length + data->chunk_length / 6 + 1024;
}

/* The offsets of chunk i and of its checksum. */
static int find_chunk(const struct data_db *data, uint64_t i, uint64_t *from_out, size_t *n_out, struct errbuf *err)
{
    unsigned char offsets[16];
    bool last = i + 1 == data->nchunks;
    TRY(fs_read_all(data->fs, data->info_fd, offsets, last ? 8 : 16, data->offsets + 8 * i));
    uint64_t from = be64_get(offsets), end = last ? data->size : be64_get(offsets + 8);
    if (end > data->size || from > end || end - from <= CHECKSUM || end - from > packed_max(data) + CHECKSUM)
        return damaged(err, "CompressionInfo.db", "the place of a chunk is not one of Data.db");
    *from_out = from;
    *n_out = (size_t)(end - from - CHECKSUM);
    return 0;
}

static int load_chunk(struct data_db *data, uint64_t i, struct errbuf *err)
{
    uint64_t from = 0, left = data->length - i * data->chunk_length;
    size_t n = 0, len = left < data->chunk_length ? (size_t)left : data->chunk_length;
    if (data->chunk == i)
        return 0;
    data->chunk = data->nchunks;
    TRY(find_chunk(data, i, &from, &n, err));
    TRY(fs_read_all(data->fs, data->fd, data->packed, n + CHECKSUM, from));
    if (crc32(0, data->packed, (uInt)n) != be32_get(data->packed + n))
        return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                           "Data.db is damaged: the chunk at byte %" PRIu64 " does not match its checksum", from);
    if ((n >= data->stored_from ? copy_stored : data->decompress)(data->packed, n, data->plain, len) != 0)
        return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                           "Data.db is damaged: the chunk at byte %" PRIu64 " cannot be decompressed", from);
    data->chunk = i;
    data->plain_len = len;
    return 0;
}

static int read_chunks(struct data_db *data, uint64_t at, unsigned char *out, size_t len, struct errbuf *err)
{
    int rc = 0;
    while (len > 0 && (rc = load_chunk(data, at / data->chunk_length, err)) == 0) {
        size_t begin = at % data->chunk_length, n = data->plain_len - begin;
        n = n < len ? n : len;
        memcpy(out, data->plain + begin, n);
        out += n;
        at += n;
        len -= n;
    }
    return rc;
}

int data_db_read(struct data_db *data, uint64_t at, unsigned char *out, size_t len, struct errbuf *err)
{
    if (at > data->length || len > data->length - at)
        return damaged(err, "Data.db", "it ends within a key");
    int rc = data->info_fd >= 0 ? read_chunks(data, at, out, len, err) : fs_read_all(data->fs, data->fd, out, len, at);
    if (rc < 0)
        errbuf_set(err, "Data.db: %s", fs_error_text(rc));
    return rc;
}

/* ---- opening ---- */

/* CompressionInfo.db has the length from which on a chunk is stored uncompressed: Cassandra since 4.0. */
static bool has_stored_chunks(const struct sstable_name *name)
{
    return name->bti || name->version.ptr[0] >= 'n';
}

static int open_files(struct data_db *data, const char *path, const struct sstable_name *name, struct errbuf *err)
{
    char file[PATH_MAX];
    if (sstable_sibling(path, name, "CompressionInfo.db", file, sizeof(file)) >= sizeof(file))
        return -ENAMETOOLONG;
    int rc = read_info(data, file, has_stored_chunks(name), err);
    bool compressed = rc != -ENOENT;
    if (compressed && rc != 0) {
        if (rc < 0 && rc != -ENOTSUP)
            errbuf_set(err, "CompressionInfo.db: %s", fs_error_text(rc));
        return rc;
    }
    sstable_sibling(path, name, "Data.db", file, sizeof(file));
    rc = data->fs->open(data->fs->ctx, file, FS_READ, &data->fd);
    if (rc != 0)
        data->fd = -1;
    else
        rc = data->fs->size(data->fs->ctx, data->fd, &data->size);
    if (rc == 0 && !compressed)
        data->length = data->size;
    if (rc == 0 && compressed) {
        data->plain = malloc(data->chunk_length);
        data->packed = malloc(packed_max(data) + CHECKSUM);
        data->chunk = data->nchunks;
        rc = data->plain && data->packed ? 0 : -ENOMEM;
    }
    return rc == 0 ? 0 : errbuf_fail(err, rc, "Data.db: %s", fs_error_text(rc));
}

int data_db_open(struct data_db *data, const struct fsops *fs, const char *path, const struct sstable_name *name,
                 struct errbuf *err)
{
    *data = (struct data_db){.fs = fs, .fd = -1, .info_fd = -1};
    int rc = open_files(data, path, name, err);
    if (rc != 0)
        data_db_close(data);
    return rc;
}

void data_db_close(struct data_db *data)
{
    if (data->fd >= 0)
        data->fs->close(data->fs->ctx, data->fd);
    if (data->info_fd >= 0)
        data->fs->close(data->fs->ctx, data->info_fd);
    free(data->plain);
    free(data->packed);
    data->plain = data->packed = NULL;
    data->fd = data->info_fd = -1;
}
