#include "all_names.h"

static const struct registry *others(const struct sstables *sstables, unsigned database)
{
    return sstables && database == 0 ? sstables_registry(sstables) : NULL;
}

struct met {
    struct slice key;
    struct entry *entry;
};

/* ---- in the order of their bytes ----
 *
 * The next names of each are merged. A name is left out only where the other registry's has been met in the same step.
 * A look-up would not do: it may find a filter that has come since its place was passed, and the name would be met
 * nowhere. */

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

/* ---- in other orders ---- */

uint64_t all_names_scan(const struct registry *own, const struct sstables *sstables, unsigned database, uint64_t cursor,
                        size_t count, void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx)
{
    const struct registry *registry = others(sstables, database);
    uint64_t next = cursor < ALL_NAMES_OTHERS ? registry_database_scan(own, database, cursor, count, visit, ctx) : 0;
    if (next || !registry)
        return next;
    if (cursor < ALL_NAMES_OTHERS)
        return ALL_NAMES_OTHERS;
    next = registry_database_scan(registry, 0, cursor - ALL_NAMES_OTHERS, count, visit, ctx);
    return next ? ALL_NAMES_OTHERS + next : 0;
}

static size_t count_in(const struct registry *registry)
{
    return registry ? registry_database_count(registry, 0) : 0;
}

size_t all_names_count(const struct registry *own, const struct sstables *sstables, unsigned database)
{
    return registry_database_count(own, database) + count_in(others(sstables, database));
}
