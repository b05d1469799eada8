/* Both registries have their names in the order of the bytes, and in the order of the same hashes: the next names of
 * each are merged. A name is left out only where the other registry's has been met in the same step. A look-up would
 * not do: it may find a filter that has come since its place was passed, and the name would be met nowhere. */
#include "all_names.h"

#include <string.h>

#include "buf.h"

static const struct registry *others(const struct sstables *sstables, unsigned database)
{
    return sstables && database == 0 ? sstables_registry(sstables) : NULL;
}

struct met {
    struct slice key;
    struct entry *entry;
};

/* ---- in the order of their bytes ---- */

#define CHUNK 128 /* names taken from each registry at once */

struct chunk {
    struct met names[CHUNK];
    size_t n, at;
    size_t most; /* as many were asked for: if there are fewer, these are the last */
};

static void note_walked(void *ctx, struct slice key, struct entry *entry)
{
    struct chunk *chunk = ctx;
    chunk->names[chunk->n++] = (struct met){key, entry};
}

static void refill(struct chunk *chunk, const struct registry *registry, struct slice prefix, const struct slice *after,
                   size_t most)
{
    chunk->n = chunk->at = 0;
    chunk->most = most;
    registry_scan_prefix(registry, prefix, after, most, note_walked, chunk);
}

/* Whether the next name of the chunk is not known: it must be refilled. */
static bool is_used_up(const struct chunk *chunk)
{
    return chunk->at == chunk->n && chunk->n == chunk->most;
}

/* The next name of both, which are not used up. False: none. */
static bool next_of(struct chunk *own, struct chunk *other, struct met *met_out)
{
    bool has_own = own->at < own->n, has_other = other->at < other->n;
    if (!has_own && !has_other)
        return false;
    int order = !has_own ? 1 : !has_other ? -1 : slice_compare(own->names[own->at].key, other->names[other->at].key);
    *met_out = order <= 0 ? own->names[own->at] : other->names[other->at];
    if (order == 0 && !met_out->entry) /* it has expired, and hides nothing */
        *met_out = other->names[other->at];
    own->at += order <= 0;
    other->at += order >= 0;
    return true;
}

size_t all_names_walk(const struct registry *own, const struct sstables *sstables, struct slice prefix,
                      const struct slice *after, size_t max,
                      void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx)
{
    const struct registry *registry = others(sstables, key_database(prefix));
    struct chunk first, second;
    struct met met;
    size_t visited = 0;
    if (!registry)
        return registry_scan_prefix(own, prefix, after, max, visit, ctx);
    while (visited < max) {
        size_t most = max - visited < CHUNK ? max - visited : CHUNK;
        refill(&first, own, prefix, after, most);
        if (first.n == 0) /* the common case: the remaining names are SSTables' alone */
            return visited + registry_scan_prefix(registry, prefix, after, max - visited, visit, ctx);
        refill(&second, registry, prefix, after, most);
        while (visited < max && !is_used_up(&first) && !is_used_up(&second)) {
            if (!next_of(&first, &second, &met))
                return visited;
            visit(ctx, met.key, met.entry);
            visited++;
        }
        after = &met.key;
    }
    return visited;
}

/* ---- in the order of their hashes ---- */

struct scanned {
    const struct registry *registry;
    struct buf names; /* struct met */
};

static void note_scanned(void *ctx, struct slice key, struct entry *entry)
{
    struct scanned *scanned = ctx;
    buf_append(&scanned->names, &(struct met){key, entry}, sizeof(struct met));
}

static size_t count_of(const struct scanned *scanned)
{
    return buf_len(&scanned->names) / sizeof(struct met);
}

static struct met met_at(const struct scanned *scanned, size_t i)
{
    struct met met;
    memcpy(&met, buf_head(&scanned->names) + i * sizeof(met), sizeof(met));
    return met;
}

static bool has(const struct scanned *scanned, struct slice key)
{
    for (size_t i = 0; i < count_of(scanned); i++)
        if (slice_equal(met_at(scanned, i).key, key))
            return true;
    return false;
}

/* Visits those before `end` that are not among `hiding`. */
static void visit_before(const struct scanned *scanned, uint64_t end, const struct scanned *hiding,
                         void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx)
{
    for (size_t i = 0; i < count_of(scanned); i++) {
        struct met met = met_at(scanned, i);
        if ((end == 0 || registry_cursor(scanned->registry, met.key) < end) && !(hiding && has(hiding, met.key)))
            visit(ctx, met.key, met.entry);
    }
}

/* The end of the shorter one of both sweeps; 0 is that of all names. */
static uint64_t nearer(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

uint64_t all_names_scan(const struct registry *own, const struct sstables *sstables, unsigned database, uint64_t cursor,
                        size_t count, void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx)
{
    struct scanned first = {.registry = own}, second = {.registry = others(sstables, database)};
    if (!second.registry)
        return registry_database_scan(own, database, cursor, count, visit, ctx);
    buf_init(&first.names, SIZE_MAX);
    buf_init(&second.names, SIZE_MAX);
    uint64_t end = nearer(registry_database_scan(own, database, cursor, count, note_scanned, &first),
                          registry_database_scan(second.registry, 0, cursor, count, note_scanned, &second));
    if (buf_failed(&first.names) || buf_failed(&second.names)) {
        end = UINT64_MAX;
    } else {
        visit_before(&first, end, NULL, visit, ctx);
        visit_before(&second, end, &first, visit, ctx);
    }
    buf_deinit(&first.names);
    buf_deinit(&second.names);
    return end;
}

/* ---- all of them ---- */

static size_t count_in(const struct registry *registry)
{
    return registry ? registry_database_count(registry, 0) : 0;
}

size_t all_names_most(const struct registry *own, const struct sstables *sstables, unsigned database)
{
    return registry_database_count(own, database) + count_in(others(sstables, database));
}

struct count {
    const struct registry *in;
    size_t found;
};

static void count_name(void *ctx, struct slice key, struct entry *entry)
{
    struct count *count = ctx;
    count->found += entry && registry_lookup(count->in, key);
}

size_t all_names_count(const struct registry *own, const struct sstables *sstables, unsigned database)
{
    const struct registry *registry = others(sstables, database);
    size_t n = registry_database_count(own, database), nothers = count_in(registry);
    if (n == 0 || nothers == 0)
        return n + nothers;
    struct count both = {.in = n < nothers ? registry : own};
    registry_scan_prefix(n < nothers ? own : registry, (struct slice){"", 0}, NULL, SIZE_MAX, count_name, &both);
    return n + nothers - both.found;
}

bool all_names_random(const struct registry *own, const struct sstables *sstables, unsigned database, uint64_t *random,
                      struct slice *key_out)
{
    const struct registry *registry = others(sstables, database);
    size_t n = registry_database_count(own, database), nothers = count_in(registry);
    if (nothers == 0 || *random % (n + nothers) < n)
        return registry_database_random(own, database, random, key_out);
    return registry_database_random(registry, 0, random, key_out) && !registry_lookup(own, *key_out);
}
