#include "sstable_keys.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "murmur.h"

/* ---- Index.db ---- */

/* The partition keys in an Index.db, in the order of the table (docs/FORMAT.md, section 19). It has no checksum: each
 * length is checked against the end of the file, so damage is found where the entries stop to fit. */

#define BUFFER ((size_t)256 << 10)
#define NEED   ((size_t)SSTABLE_KEY_MAX + 2 + 2 * 9) /* of an entry: all except the bytes after its last number */

struct index_db {
    const struct fsops *fs;
    int fd;               /* -1: not open */
    bool numbers_vary;    /* as from version ma on */
    uint64_t size, entry; /* of the file; where the current entry begins */
    unsigned char *bytes; /* from..from + n of the file, of which `at` are done */
    uint64_t from;
    size_t n, at;
};

static void index_db_close(struct index_db *index)
{
    if (index->fd >= 0)
        index->fs->close(index->fs->ctx, index->fd);
    free(index->bytes);
    index->bytes = NULL;
    index->fd = -1;
}

/* 0 or -errno; nothing is open then. */
static int index_db_open(struct index_db *index, const struct fsops *fs, const char *path, bool numbers_vary)
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
    return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                       "Index.db is damaged: the entry at byte %" PRIu64 " of %" PRIu64 ": %s", index->entry,
                       index->size, what);
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

/* The next key, which is valid until the next call. An enum sstable_keys_status, or -errno. */
static int index_db_next(struct index_db *index, const unsigned char **key_out, size_t *len_out, struct errbuf *err)
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

struct sstable_keys {
    const struct fsops *fs;
    const char *path; /* borrowed, as the name */
    const struct sstable_name *name;
    struct index_db index; /* one of these two */
    struct partitions_db partitions;
    struct data_db data; /* as Rows.db, opened when a place leads there */
    int rows_fd;         /* -1: not open */
    uint64_t rows_size;
    unsigned char key[2 + SSTABLE_KEY_MAX]; /* of a trie; of an index the last one, behind two bytes */
    size_t last_len;
    uint64_t n;    /* keys so far */
    bool ordered;  /* by their tokens */
    int64_t token; /* of the last key */
};

/* Tries since Cassandra 5.0 and in ScyllaDB since ms; the letters before represent series of formats with an index. */
bool sstable_has_trie(const struct sstable_name *name)
{
    return name->bti || (name->version.len == 2 && name->version.ptr[0] == 'm' && name->version.ptr[1] >= 's');
}

const char *sstable_keys_component(const struct sstable_name *name)
{
    return sstable_has_trie(name) ? "Partitions.db" : "Index.db";
}

/* ---- opening ---- */

static int path_of(const struct sstable_keys *keys, const char *component, char out[PATH_MAX])
{
    return sstable_sibling(keys->path, keys->name, component, out, PATH_MAX) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int open_component(struct sstable_keys *keys, struct errbuf *err)
{
    char file[PATH_MAX];
    const char *component = sstable_keys_component(keys->name);
    int rc = path_of(keys, component, file);
    STEP(rc, sstable_has_trie(keys->name)
                 ? partitions_db_open(&keys->partitions, keys->fs, file, err)
                 : index_db_open(&keys->index, keys->fs, file, keys->name->version.ptr[0] >= 'm'));
    if (rc < 0)
        errbuf_set(err, "%s: %s", component, fs_error_text(rc));
    return rc;
}

int sstable_keys_open(struct sstable_keys **keys_out, const struct fsops *fs, const char *path,
                      const struct sstable_name *name, struct errbuf *err)
{
    struct sstable_keys *keys = calloc(1, sizeof(*keys));
    *keys_out = NULL;
    if (!keys)
        return errbuf_fail(err, -ENOMEM, "%s", strerror(ENOMEM));
    *keys = (struct sstable_keys){.fs = fs, .path = path, .name = name, .rows_fd = -1};
    keys->index.fd = keys->partitions.fd = keys->data.fd = keys->data.info_fd = -1;
    int rc = open_component(keys, err);
    if (rc != 0) {
        sstable_keys_close(keys);
        return rc;
    }
    char statistics[PATH_MAX];
    struct statistics_validation validation;
    keys->ordered = path_of(keys, "Statistics.db", statistics) == 0 &&
                    statistics_db_validation(fs, statistics, &validation) == 0 && validation.murmur3;
    *keys_out = keys;
    return 0;
}

void sstable_keys_close(struct sstable_keys *keys)
{
    if (!keys)
        return;
    if (keys->rows_fd >= 0)
        keys->fs->close(keys->fs->ctx, keys->rows_fd);
    if (keys->data.fd >= 0)
        data_db_close(&keys->data);
    partitions_db_close(&keys->partitions);
    index_db_close(&keys->index);
    free(keys);
}

/* ---- keys of a trie ---- */

static int open_rows(struct sstable_keys *keys)
{
    char file[PATH_MAX];
    int rc = path_of(keys, "Rows.db", file);
    STEP(rc, keys->fs->open(keys->fs->ctx, file, FS_READ, &keys->rows_fd));
    if (rc != 0) {
        keys->rows_fd = -1;
        return rc;
    }
    return keys->fs->size(keys->fs->ctx, keys->rows_fd, &keys->rows_size);
}

static int read_rows(struct sstable_keys *keys, uint64_t at, unsigned char *out, size_t len, struct errbuf *err)
{
    int rc = keys->rows_fd < 0 ? open_rows(keys) : 0;
    if (rc == 0 && (at > keys->rows_size || len > keys->rows_size - at))
        return errbuf_fail(err, SSTABLE_KEYS_DAMAGED, "Rows.db is damaged: it ends within a key");
    STEP(rc, fs_read_all(keys->fs, keys->rows_fd, out, len, at));
    return rc == 0 ? 0 : errbuf_fail(err, rc, "Rows.db: %s", fs_error_text(rc));
}

static int read_data(struct sstable_keys *keys, uint64_t at, unsigned char *out, size_t len, struct errbuf *err)
{
    int rc = keys->data.fd < 0 ? data_db_open(&keys->data, keys->fs, keys->path, keys->name, err) : 0;
    return rc != 0 ? rc : data_db_read(&keys->data, at, out, len, err);
}

/* The key at this place: 2 bytes of its length, and its bytes. */
static int read_key(struct sstable_keys *keys, const struct partition_place *place, size_t *len_out, struct errbuf *err)
{
    int (*read)(struct sstable_keys * keys, uint64_t at, unsigned char *out, size_t len, struct errbuf *err) =
        place->in_rows ? read_rows : read_data;
    int rc = read(keys, place->offset, keys->key, 2, err);
    *len_out = rc == 0 ? be16_get(keys->key) : 0;
    if (rc == 0 && *len_out)
        rc = read(keys, place->offset + 2, keys->key + 2, *len_out, err);
    if (rc != 0 || !place->has_hash || (uint8_t)murmur3_hash(keys->key + 2, *len_out).h2 == place->hash)
        return rc;
    return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                       "%s is damaged: there is not the key at byte %" PRIu64 " that Partitions.db says",
                       place->in_rows ? "Rows.db" : "Data.db", place->offset);
}

/* ---- keys of an index ---- */

/* Index.db may have been cut between two entries. Then it ends before the key that Summary.db has as the last one. */
static int compare_last(struct sstable_keys *keys, struct errbuf *err)
{
    unsigned char *last = malloc(SSTABLE_KEY_MAX);
    char file[PATH_MAX];
    size_t len = 0;
    int rc = !last ? -ENOMEM : path_of(keys, "Summary.db", file);
    STEP(rc, summary_db_last(keys->fs, file, keys->name, last, &len));
    bool same = rc == 0 && len == keys->last_len && memcmp(last, keys->key + 2, len) == 0;
    free(last);
    if (same || rc == -ENOENT || rc == -EINVAL) /* there may be none, and databases do without a damaged one */
        return SSTABLE_KEYS_END;
    if (rc != 0)
        return errbuf_fail(err, rc, "Summary.db: %s", fs_error_text(rc));
    return errbuf_fail(
        err, SSTABLE_KEYS_DAMAGED,
        "Index.db is damaged: its last key differs from Summary.db's last key: it was truncated, or Summary.db "
        "belongs to another SSTable");
}

/* Nor does an Index.db have fewer keys than Statistics.db has counted partitions. */
static int compare_count(struct sstable_keys *keys, struct errbuf *err)
{
    uint64_t partitions = 0;
    char file[PATH_MAX];
    int rc = path_of(keys, "Statistics.db", file);
    STEP(rc, statistics_db_partitions(keys->fs, file, &partitions));
    if (rc == -ENOENT || rc == -EINVAL || (rc == 0 && partitions <= keys->n))
        return SSTABLE_KEYS_END;
    if (rc != 0)
        return errbuf_fail(err, rc, "Statistics.db: %s", fs_error_text(rc));
    return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                       "Index.db is damaged: it has %" PRIu64 " keys, but Statistics.db counts %" PRIu64
                       " partitions: it was truncated, or Statistics.db belongs to another SSTable",
                       keys->n, partitions);
}

/* Whether the key may follow the one before it. */
static int check_order(struct sstable_keys *keys, const struct sstable_key *key, uint64_t at, struct errbuf *err)
{
    int64_t token = sstable_key_token(key->hash), before = keys->token;
    keys->token = token;
    if (keys->n++ == 0 || !keys->ordered || token >= before)
        return SSTABLE_KEYS_ONE;
    return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                       "%s is damaged: the key at byte %" PRIu64
                       " has a token below that of the key before it: one of the two "
                       "is not a key of the SSTable",
                       sstable_keys_component(keys->name), at);
}

static int next_of_index(struct sstable_keys *keys, struct sstable_key *key, struct errbuf *err)
{
    int rc = index_db_next(&keys->index, &key->ptr, &key->len, err);
    if (rc < 0)
        errbuf_set(err, "Index.db: %s", fs_error_text(rc));
    if (rc == SSTABLE_KEYS_ONE) {
        if (keys->n > 0 && key->len == keys->last_len && memcmp(key->ptr, keys->key + 2, key->len) == 0)
            return errbuf_fail(err, SSTABLE_KEYS_DAMAGED,
                               "Index.db is damaged: the key at byte %" PRIu64 " is there twice", keys->index.entry);
        keys->last_len = key->len;
        memcpy(keys->key + 2, key->ptr, key->len);
        key->hash = murmur3_hash(key->ptr, key->len);
        return check_order(keys, key, keys->index.entry, err);
    }
    if (rc == SSTABLE_KEYS_END && keys->n > 0)
        rc = compare_last(keys, err);
    return rc == SSTABLE_KEYS_END && keys->n > 0 ? compare_count(keys, err) : rc;
}

static int next_of_trie(struct sstable_keys *keys, struct sstable_key *key, struct errbuf *err)
{
    struct partition_place place;
    int rc = partitions_db_next(&keys->partitions, &place, err);
    if (rc < 0)
        errbuf_set(err, "Partitions.db: %s", fs_error_text(rc));
    if (rc != SSTABLE_KEYS_ONE)
        return rc;
    TRY(read_key(keys, &place, &key->len, err));
    key->ptr = keys->key + 2;
    key->hash = murmur3_hash(key->ptr, key->len);
    return keys->partitions.backwards ? SSTABLE_KEYS_ONE : check_order(keys, key, place.offset, err);
}

/* ---- any ---- */

bool sstable_keys_from_end(struct sstable_keys *keys)
{
    keys->partitions.backwards = sstable_has_trie(keys->name);
    return keys->partitions.backwards;
}

int64_t sstable_key_token(struct bloom_hash hash)
{
    int64_t token = (int64_t)hash.h1;
    return token == INT64_MIN ? INT64_MAX : token;
}

int sstable_keys_next(struct sstable_keys *keys, struct sstable_key *key_out, struct errbuf *err)
{
    return (sstable_has_trie(keys->name) ? next_of_trie : next_of_index)(keys, key_out, err);
}

uint64_t sstable_keys_size(const struct sstable_keys *keys)
{
    return sstable_has_trie(keys->name) ? keys->partitions.size : keys->index.size;
}

uint64_t sstable_keys_done(const struct sstable_keys *keys)
{
    if (!sstable_has_trie(keys->name))
        return keys->index.from + keys->index.at;
    const struct partitions_db *trie = &keys->partitions;
    return trie->keys ? (uint64_t)((double)trie->size * (double)trie->found / (double)trie->keys) : trie->size;
}

/* ---- whether a filter has the keys ---- */

/* Whether a filter has the keys of its SSTable. A Filter.db has no checksum, and a false "certainly not" must never
 * occur. So the daemon, when it reads a file, and `bloomery find` query it for the first and the last keys of its
 * SSTable. `bloomery verify`, which asks for all keys, finds damage anywhere else. */

#define KEYS      100                 /* at either end */
#define WHOLE_MAX (UINT64_C(8) << 20) /* a longer Index.db is not read up to its last keys */

/* The last ones of the hashes that were asked for. */
struct last_keys {
    struct bloom_hash hashes[KEYS];
    uint64_t n; /* so far */
};

static bool refuse(struct errbuf *err, const char *which)
{
    return errbuf_fail(
        err, false,
        "it lacks %s keys of its SSTable: it is damaged, or its bits have the layout of another version; run "
        "'bloomery verify'",
        which);
}

static bool has_last(const struct last_keys *last, sstable_query *has, void *ctx)
{
    for (uint64_t i = 0; i < last->n && i < KEYS; i++)
        if (!has(ctx, last->hashes[i]))
            return false;
    return true;
}

/* Whether the filter has the first KEYS of up to `most` keys. Keys that cannot be read are not compared. */
static bool has_first(struct sstable_keys *keys, sstable_query *has, void *ctx, uint64_t most, struct last_keys *last)
{
    struct errbuf ignored;
    struct sstable_key key;
    bool all = true;
    while (all && last->n < most && sstable_keys_next(keys, &key, &ignored) == SSTABLE_KEYS_ONE) {
        all = last->n >= KEYS || has(ctx, key.hash);
        last->hashes[last->n++ % KEYS] = key.hash;
    }
    return all;
}

bool sstable_keys_are_in(const char *path, sstable_query *has, void *ctx, struct errbuf *err)
{
    struct last_keys last = {.n = 0};
    struct sstable_name name;
    struct sstable_keys *keys;
    struct errbuf ignored;
    if (sstable_name_parse(path, &name, &ignored) != SSTABLE_OK ||
        sstable_keys_open(&keys, fsops_posix(), path, &name, &ignored) != 0)
        return true; /* there is nothing to compare with */
    bool trie = sstable_has_trie(&name), whole = !trie && sstable_keys_size(keys) <= WHOLE_MAX;
    bool first = has_first(keys, has, ctx, whole ? UINT64_MAX : KEYS, &last);
    sstable_keys_close(keys);
    if (!first)
        return refuse(err, "the first");
    if (trie && sstable_keys_open(&keys, fsops_posix(), path, &name, &ignored) == 0) {
        sstable_keys_from_end(keys);
        last.n = 0;
        bool all = has_first(keys, has, ctx, KEYS, &last);
        sstable_keys_close(keys);
        return all || refuse(err, "the last");
    }
    return has_last(&last, has, ctx) || refuse(err, "the last");
}
