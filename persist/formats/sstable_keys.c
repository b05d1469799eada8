#include "sstable_keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

#define BUFFER ((size_t)256 << 10)
#define NEED   ((size_t)SSTABLE_KEY_MAX + 2 + 2 * 9) /* of an entry: all but what follows its last number */

/* Tries since Cassandra 5.0 and in ScyllaDB since ms; the letters before stand for series of formats with an index. */
bool sstable_has_index(const struct sstable_name *name)
{
    return !name->bti && !(name->version.len == 2 && name->version.ptr[0] == 'm' && name->version.ptr[1] >= 's');
}

int sstable_keys_open(struct sstable_keys *keys, const struct fsops *fs, const char *path,
                      const struct sstable_name *name)
{
    *keys = (struct sstable_keys){.fs = fs, .fd = -1, .numbers_vary = name->version.ptr[0] >= 'm'};
    int rc = fs->open(fs->ctx, path, FS_READ, &keys->fd);
    if (rc != 0) {
        keys->fd = -1;
        return rc;
    }
    rc = fs->size(fs->ctx, keys->fd, &keys->size);
    keys->bytes = rc == 0 ? malloc(BUFFER) : NULL;
    if (rc == 0 && !keys->bytes)
        rc = -ENOMEM;
    if (rc != 0)
        sstable_keys_close(keys);
    return rc;
}

void sstable_keys_close(struct sstable_keys *keys)
{
    if (keys->fd >= 0)
        keys->fs->close(keys->fs->ctx, keys->fd);
    free(keys->bytes);
    keys->bytes = NULL;
    keys->fd = -1;
}

static size_t left(const struct sstable_keys *keys)
{
    return keys->n - keys->at;
}

/* Has the next NEED bytes in the buffer, or all up to the end of the file. 0 or -errno. */
static int fill(struct sstable_keys *keys)
{
    uint64_t at = keys->from + keys->at;
    if (left(keys) >= NEED || keys->from + keys->n >= keys->size)
        return 0;
    memmove(keys->bytes, keys->bytes + keys->at, left(keys));
    keys->n = left(keys);
    keys->from = at;
    keys->at = 0;
    size_t room = BUFFER - keys->n;
    uint64_t more = keys->size - (keys->from + keys->n);
    size_t len = more < room ? (size_t)more : room;
    int rc = fs_read_all(keys->fs, keys->fd, keys->bytes + keys->n, len, keys->from + keys->n);
    keys->n += rc == 0 ? len : 0;
    return rc;
}

static int damaged(const struct sstable_keys *keys, const char *what, struct errbuf *err)
{
    errbuf_set(err, "the entry at byte %" PRIu64 " of %" PRIu64 ": %s", keys->entry, keys->size, what);
    return SSTABLE_KEYS_DAMAGED;
}

/* The number of leading ones of the first byte is that of further bytes; the rest of it are the highest bits. */
static bool take_vint(struct sstable_keys *keys, uint64_t *out)
{
    if (left(keys) < 1)
        return false;
    const unsigned char *p = keys->bytes + keys->at;
    unsigned more = p[0] == 0xff ? 8 : (unsigned)__builtin_clz(~((unsigned)p[0] << 24));
    uint64_t value = more >= 7 ? 0 : p[0] & (0x7fu >> more);
    if (left(keys) < 1 + more)
        return false;
    for (unsigned i = 1; i <= more; i++)
        value = value << 8 | p[i];
    keys->at += 1 + more;
    *out = value;
    return true;
}

/* The place in Data.db, and the bytes of an index of the partition's rows that follow. */
static bool take_numbers(struct sstable_keys *keys, uint64_t *behind_out)
{
    uint64_t place;
    if (keys->numbers_vary)
        return take_vint(keys, &place) && take_vint(keys, behind_out);
    if (left(keys) < 12)
        return false;
    *behind_out = be32_get(keys->bytes + keys->at + 8);
    keys->at += 12;
    return true;
}

/* Passes over bytes that need not be in the buffer. */
static bool pass_over(struct sstable_keys *keys, uint64_t n)
{
    uint64_t at = keys->from + keys->at;
    if (n > keys->size - at)
        return false;
    if (n <= left(keys)) {
        keys->at += (size_t)n;
        return true;
    }
    keys->from = at + n;
    keys->n = keys->at = 0;
    return true;
}

int sstable_keys_next(struct sstable_keys *keys, const unsigned char **key_out, size_t *len_out, struct errbuf *err)
{
    uint64_t behind;
    int rc = fill(keys);
    keys->entry = keys->from + keys->at;
    if (rc != 0)
        return rc;
    if (keys->entry == keys->size)
        return SSTABLE_KEYS_END;
    if (left(keys) < 2)
        return damaged(keys, "the file ends within it", err);
    size_t len = be16_get(keys->bytes + keys->at);
    if (left(keys) < 2 + len)
        return damaged(keys, "its key is longer than the rest of the file", err);
    size_t key = keys->at + 2;
    keys->at = key + len;
    if (!take_numbers(keys, &behind) || !pass_over(keys, behind))
        return damaged(keys, "it is longer than the rest of the file", err);
    *key_out = keys->bytes + key; /* pass_over() leaves the bytes */
    *len_out = len;
    return SSTABLE_KEYS_ONE;
}
