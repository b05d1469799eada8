#include "sstable_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

#define BUFFER ((size_t)256 << 10)
#define NEED   ((size_t)SSTABLE_KEY_MAX + 2 + 2 * 9) /* of an entry: all except the bytes after its last number */

int index_db_open(struct index_db *index, const struct fsops *fs, const char *path, bool numbers_vary)
{
    *index = (struct index_db){.fs = fs, .fd = -1, .numbers_vary = numbers_vary};
    int rc = fs->open(fs->ctx, path, FS_READ, &index->fd);
    if (rc != 0) {
        index->fd = -1;
        return rc;
    }
    rc = fs->size(fs->ctx, index->fd, &index->size);
    index->bytes = rc == 0 ? malloc(BUFFER) : NULL;
    if (rc == 0 && !index->bytes)
        rc = -ENOMEM;
    if (rc != 0)
        index_db_close(index);
    return rc;
}

void index_db_close(struct index_db *index)
{
    if (index->fd >= 0)
        index->fs->close(index->fs->ctx, index->fd);
    free(index->bytes);
    index->bytes = NULL;
    index->fd = -1;
}

static size_t left(const struct index_db *index)
{
    return index->n - index->at;
}

/* Has the next NEED bytes in the buffer, or all up to the end of the file. 0 or -errno. */
static int fill(struct index_db *index)
{
    uint64_t at = index->from + index->at;
    if (left(index) >= NEED || index->from + index->n >= index->size)
        return 0;
    memmove(index->bytes, index->bytes + index->at, left(index));
    index->n = left(index);
    index->from = at;
    index->at = 0;
    size_t room = BUFFER - index->n;
    uint64_t more = index->size - (index->from + index->n);
    size_t len = more < room ? (size_t)more : room;
    int rc = fs_read_all(index->fs, index->fd, index->bytes + index->n, len, index->from + index->n);
    index->n += rc == 0 ? len : 0;
    return rc;
}

static int damaged(const struct index_db *index, const char *what, struct errbuf *err)
{
    errbuf_set(err, "Index.db is damaged: the entry at byte %" PRIu64 " of %" PRIu64 ": %s", index->entry, index->size,
               what);
    return SSTABLE_KEYS_DAMAGED;
}

/* The number of leading ones of the first byte is that of further bytes; the rest of it are the highest bits. */
static bool take_vint(struct index_db *index, uint64_t *out)
{
    if (left(index) < 1)
        return false;
    const unsigned char *p = index->bytes + index->at;
    unsigned more = p[0] == 0xff ? 8 : (unsigned)__builtin_clz(~((unsigned)p[0] << 24));
    uint64_t value = more >= 7 ? 0 : p[0] & (0x7fu >> more);
    if (left(index) < 1 + more)
        return false;
    for (unsigned i = 1; i <= more; i++)
        value = value << 8 | p[i];
    index->at += 1 + more;
    *out = value;
    return true;
}

/* The place in Data.db, and the bytes of an index of the partition's rows that follow. */
static bool take_numbers(struct index_db *index, uint64_t *behind_out)
{
    uint64_t place;
    if (index->numbers_vary)
        return take_vint(index, &place) && take_vint(index, behind_out);
    if (left(index) < 12)
        return false;
    *behind_out = be32_get(index->bytes + index->at + 8);
    index->at += 12;
    return true;
}

/* Passes over bytes that need not be in the buffer. */
static bool pass_over(struct index_db *index, uint64_t n)
{
    uint64_t at = index->from + index->at;
    if (n > index->size - at)
        return false;
    if (n <= left(index)) {
        index->at += (size_t)n;
        return true;
    }
    index->from = at + n;
    index->n = index->at = 0;
    return true;
}

int index_db_next(struct index_db *index, const unsigned char **key_out, size_t *len_out, struct errbuf *err)
{
    uint64_t behind;
    int rc = fill(index);
    index->entry = index->from + index->at;
    if (rc != 0)
        return rc;
    if (index->entry == index->size)
        return SSTABLE_KEYS_END;
    if (left(index) < 2)
        return damaged(index, "the file ends within it", err);
    size_t len = be16_get(index->bytes + index->at);
    if (left(index) < 2 + len)
        return damaged(index, "its key is longer than the rest of the file", err);
    size_t key = index->at + 2;
    index->at = key + len;
    if (!take_numbers(index, &behind) || !pass_over(index, behind))
        return damaged(index, "it is longer than the rest of the file", err);
    *key_out = index->bytes + key; /* pass_over() leaves the bytes */
    *len_out = len;
    return SSTABLE_KEYS_ONE;
}
