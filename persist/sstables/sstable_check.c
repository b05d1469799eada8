/* Whether a filter has the keys of its SSTable. A Filter.db has no checksum, and a false "certainly not" must never
 * occur. So the daemon, when it reads a file, and `bloomery find` query it for the first and the last keys of its
 * SSTable. `bloomery verify`, which asks for all keys, finds damage anywhere else. */
#include "sstable_keys.h"

#define KEYS      100                 /* at either end */
#define WHOLE_MAX (UINT64_C(8) << 20) /* a longer Index.db is not read up to its last keys */

/* The last ones of the hashes that were asked for. */
struct last_keys {
    struct bloom_hash hashes[KEYS];
    uint64_t n; /* so far */
};

static bool refuse(struct errbuf *err, const char *which)
{
    errbuf_set(err,
               "it lacks %s keys of its SSTable: it is damaged, or its bits have the layout of another version; run "
               "'bloomery verify'",
               which);
    return false;
}

static bool has_last(const struct last_keys *last, sstable_query *has, void *ctx)
{
    for (uint64_t i = 0; i < last->n && i < KEYS; i++) {
        if (!has(ctx, last->hashes[i]))
            return false;
    }
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
