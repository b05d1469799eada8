#include "find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "all_names.h"
#include "bloom_batch.h"
#include "bloom_find.h"
#include "bloom_keyring.h"
#include "cql_key.h"
#include "glob_match.h"
#include "id_map.h"
#include "registry_key.h"
#include "residency.h"
#include "sstables.h"

#define STEP_QUESTIONS 65536 /* layers times items in a step: a few milliseconds */
#define STEP_MIN       16
#define NAMES_AHEAD    16
#define TOGETHER       32   /* items: from this many on they are asked for filter by filter */
#define PART           1024 /* of these */

/* The filters found for an item. */
struct found {
    size_t key, key_len; /* of a key: its bytes in find->keys */
    size_t n;
    struct buf names; /* as replies */
};

/* The pattern that is being worked on. */
struct pattern {
    bool begun;
    bool matched;  /* a name has matched */
    bool compiled; /* into find->glob; otherwise all names with the prefix match */
    char prefix[GLOB_COMPILED_MAX];
    size_t prefix_len;
    bool left;         /* names that were visited in this step: for the next one */
    struct slice last; /* in this step: the key checked last */
    struct buf after;  /* between two steps: the same */
};

struct step {
    size_t most;             /* names checked */
    size_t budget;           /* layers asked */
    size_t nmaybe;           /* filters that the last step has answered "maybe" for */
    size_t nchosen, nlayers; /* in this step, and their layers */
};

struct policy {
    uint16_t stamp;
    bool maybe;         /* quarantined filters answer "maybe" */
    bool evicted_maybe; /* filters whose bits are not in memory do (maxmemory-policy) */
};

struct answers {
    size_t queried, nunknown;
    struct buf unknown; /* names and reasons, as replies */
    size_t bytes;       /* of the names found */
    uint64_t maybes;    /* answers of filters whose bits are not in memory */
};

struct reads {
    struct buf unread;    /* keys of filters to be read, each after its length */
    struct buf reading;   /* the part of them that find_read() works on */
    size_t taken;         /* bytes of `reading` whose filters were chosen last */
    bool was_read;        /* find_read() chooses */
    struct errbuf why;    /* its bits could not be read */
    struct entry *pinned; /* the data directory's filter that find_read() has brought into memory; NULL: none */
};

struct find {
    struct server *server;
    unsigned database;
    struct bf_args words;
    struct bf_find request;
    size_t cap;
    struct step step;
    struct policy policy;
    bool failed;
    size_t at; /* the word of the next filter */
    struct pattern pattern;
    struct id_map seen;
    struct answers answers;
    struct {
        uint64_t round;       /* when it began */
        struct errbuf missed; /* why SSTables may not be known; empty: all are */
        unsigned hold;
    } sstables;
    struct buf keys;
    struct buf key; /* in the registry, of the name that was looked up last (key_of()) */
    struct reads reads;
    const struct bloom_filter *filters[FIND_STEP];
    struct slice names[FIND_STEP];
    struct glob glob;     /* of a compiled pattern */
    struct found found[]; /* one for each item */
};

/* ---- lifetime ---- */

struct find *find_create(struct server *server, unsigned database, const struct bf_args *words,
                         const struct bf_find *request, size_t cap)
{
    struct find *find = malloc(sizeof(*find) + request->items * sizeof(find->found[0]));
    if (!find)
        return NULL;
    memset(find, 0, offsetof(struct find, filters)); /* the rest is written before it is read */
    find->server = server;
    find->database = database;
    find->words = *words;
    find->request = *request;
    find->cap = cap;
    find->step.budget = STEP_QUESTIONS / request->items;
    if (find->step.budget < STEP_MIN)
        find->step.budget = STEP_MIN;
    find->step.most = find->step.budget < FIND_STEP ? find->step.budget : FIND_STEP;
    find->policy.stamp = atomic_load_explicit(&server->memory.use_stamp, memory_order_relaxed);
    find->policy.maybe = server_config(server)->data.quarantined_filters == QUARANTINE_MAYBE;
    find->policy.evicted_maybe = server_config(server)->memory.maxmemory_policy == MEMORY_MAYBE;
    find->at = request->first_name;
    if (server->sstables) {
        find->sstables.hold = sstables_hold(server->sstables);
        find->sstables.round = sstables_round(server->sstables);
    }
    if (database == 0)
        sstables_may_miss(server->sstables, &find->sstables.missed);
    buf_init(&find->answers.unknown, cap);
    buf_init(&find->keys, SIZE_MAX);
    buf_init(&find->key, SIZE_MAX);
    buf_init(&find->reads.unread, SIZE_MAX);
    buf_init(&find->reads.reading, SIZE_MAX);
    buf_init(&find->pattern.after, cap);
    for (size_t i = 0; i < request->items; i++) {
        find->found[i].n = 0;
        buf_init(&find->found[i].names, cap);
    }
    return find;
}

void find_destroy(struct find *find)
{
    if (!find)
        return;
    if (find->server->sstables)
        sstables_release(find->server->sstables, find->sstables.hold);
    for (size_t i = 0; i < find->request.items; i++)
        buf_deinit(&find->found[i].names);
    buf_deinit(&find->answers.unknown);
    if (find->reads.pinned)
        entry_unpin(find->reads.pinned);
    buf_deinit(&find->keys);
    buf_deinit(&find->reads.unread);
    buf_deinit(&find->reads.reading);
    buf_deinit(&find->pattern.after);
    buf_deinit(&find->key);
    id_map_deinit(&find->seen);
    free(find);
}

/* Whether the search cannot continue: no memory, or the reply is too long. */
static bool find_failed(const struct find *find)
{
    return find->failed || find->answers.bytes > find->cap || buf_failed(&find->answers.unknown);
}

/* ---- items ---- */

bool find_read_keys(struct find *find, struct errbuf *error)
{
    unsigned char key[CQL_KEY_MAX];
    for (size_t i = 0; find->request.keys && i < find->request.items; i++) {
        struct slice text = bf_arg(&find->words, find->request.first_item + i);
        struct found *found = &find->found[i];
        if (cql_key_parse(text.ptr, text.len, key, &found->key_len, error) != CQL_KEY_OK) {
            errbuf_prefix(error, "ERR key %zu", i + 1);
            return false;
        }
        found->key = buf_len(&find->keys);
        buf_append(&find->keys, key, found->key_len);
    }
    find->failed |= buf_failed(&find->keys);
    return true;
}

static struct bloom_item item_of(const struct find *find, size_t i)
{
    const struct found *found = &find->found[i];
    if (find->request.keys)
        return (struct bloom_item){buf_head(&find->keys) + found->key, found->key_len};
    struct slice item = bf_arg(&find->words, find->request.first_item + i);
    return (struct bloom_item){item.ptr, item.len};
}

/* ---- choosing ---- */

static void unknown(struct find *find, struct slice name, const char *reason)
{
    struct reply reply = {.buf = &find->answers.unknown, .version = 2};
    reply_bulk(&reply, name.ptr, name.len);
    reply_bulk_str(&reply, reason);
    find->answers.nunknown++;
}

static void add_name(struct find *find, struct found *found, struct slice name)
{
    struct reply reply = {.buf = &found->names, .version = 2};
    found->n++;
    if (find->request.count)
        return;
    reply_bulk(&reply, name.ptr, name.len);
    find->answers.bytes += name.len + 5;
    find->failed |= buf_failed(&found->names);
}

static void answer_maybe(struct find *find, struct slice name)
{
    find->answers.queried++;
    find->step.nmaybe++;
    for (size_t i = 0; i < find->request.items && !find_failed(find); i++)
        add_name(find, &find->found[i], name);
}

static void append_name(struct buf *names, struct slice name)
{
    buf_append(names, &name.len, sizeof(name.len));
    buf_append(names, name.ptr, name.len);
}

static struct slice name_at(const struct buf *names, size_t at)
{
    struct slice name = {buf_head(names) + at + sizeof(name.len), 0};
    memcpy(&name.len, buf_head(names) + at, sizeof(name.len));
    return name;
}

/* The key of a name in the registry; valid until the next call. No filter has a longer name than its limit. */
static struct slice key_of(struct find *find, struct slice name)
{
    char prefix[DATABASE_PREFIX];
    if (!database_prefix_for(find->database, name.ptr, name.len) || name.len > REGISTRY_MAX_NAME)
        return name;
    database_prefix_put(prefix, find->database);
    buf_truncate(&find->key, 0);
    buf_append(&find->key, prefix, sizeof(prefix));
    buf_append(&find->key, name.ptr, name.len);
    find->failed |= buf_failed(&find->key);
    return (struct slice){buf_head(&find->key), buf_len(&find->key)};
}

/* As BF.EXISTS does it: the bits are read in the background. */
static void note_away(struct find *find, struct slice name, struct entry *entry)
{
    entry_note_use(entry, find->policy.stamp);
    residency_ask(find->server, key_of(find, name));
    answer_maybe(find, name);
    find->answers.maybes += find->request.items;
}

/* Whether another word has named this filter. */
static bool is_known(struct find *find, const struct entry *entry)
{
    if (find->request.names < 2 || find->reads.was_read)
        return false;
    bool known = id_map_has(&find->seen, entry->id);
    find->failed |= !known && id_map_set(&find->seen, entry->id, NULL) != 0;
    return known;
}

/* A filter that cannot be asked now. */
static __attribute__((noinline)) void choose_without_bits(struct find *find, struct slice name, struct entry *entry)
{
    bool evicted = entry_shape(entry); /* or was: they may be back by now */
    bool maybe = evicted && find->policy.evicted_maybe, unread = evicted || sstables_is_unread(entry);
    if (unread && !maybe && find->reads.was_read) { /* it has changed at this moment; or there is no room for it */
        unknown(find, name, evicted ? find->reads.why.text : SSTABLES_UNREAD);
        return;
    }
    if (is_known(find, entry))
        return;
    if (maybe) {
        note_away(find, name, entry);
    } else if (unread) {
        append_name(&find->reads.unread, name);
        find->failed |= buf_failed(&find->reads.unread);
    } else {
        unknown(find, name, entry_quarantine_reason(entry));
        if (find->policy.maybe)
            answer_maybe(find, name);
    }
}

/* The key of a KEYED filter is not here. */
static __attribute__((noinline)) void note_locked(struct find *find, struct slice name, uint64_t key)
{
    char text[64], id[BF_KEY_TEXT];
    snprintf(text, sizeof(text), "its key %s is missing", bf_key_text(key, id));
    unknown(find, name, text);
}

static void choose(struct find *find, struct slice name, struct entry *entry)
{
    struct bloom_filter *filter = entry_filter(entry);
    if (!filter) {
        choose_without_bits(find, name, entry);
        return;
    }
    if (__builtin_expect(!bloom_filter_is_queryable(filter), false)) {
        if (!entry_is_cuckoo(entry)) /* cuckoo filters are not searched */
            note_locked(find, name, bloom_filter_missing_key(filter));
        return;
    }
    if (is_known(find, entry))
        return;
    entry_note_use(entry, find->policy.stamp);
    find->step.nlayers += bloom_filter_nlayers(filter);
    find->filters[find->step.nchosen] = filter;
    find->names[find->step.nchosen++] = name;
}

static void choose_hashed(struct find *find, struct slice name, uint64_t hash)
{
    struct slice key = key_of(find, name);
    struct entry *entry = registry_find(find->server->registry, hash, key);
    const char *missed = find->sstables.missed.text;
    if (!entry)
        entry = sstables_find(find->server->sstables, key);
    if (!entry)
        unknown(find, name, missed[0] && sstables_could_name(name) ? missed : "not found");
    else if (entry_is_cuckoo(entry))
        unknown(find, name, "not a Bloom filter");
    else
        choose(find, name, entry);
}

/* Whether the filters chosen are work enough for a step. */
static bool is_full(const struct find *find)
{
    return find->step.nlayers >= find->step.budget;
}

/* The next words, at most `most`, as long as they are names: cache misses of NAMES_AHEAD overlap. Their number. */
static size_t choose_names(struct find *find, size_t most)
{
    const struct registry *registry = find->server->registry;
    uint64_t hashes[NAMES_AHEAD];
    size_t n = 0, end = find->request.first_name + find->request.names;
    while (n < most && n < NAMES_AHEAD && find->at + n < end && glob_is_literal(bf_arg(&find->words, find->at + n))) {
        hashes[n] = registry_hash(registry, key_of(find, bf_arg(&find->words, find->at + n)));
        registry_prefetch(registry, hashes[n]);
        n++;
    }
    for (size_t i = 0; i < n; i++)
        registry_prefetch_entry(registry, hashes[i]);
    size_t chosen = 0;
    for (; chosen < n && (chosen == 0 || !is_full(find)); chosen++)
        choose_hashed(find, bf_arg(&find->words, find->at + chosen), hashes[chosen]);
    find->at += chosen;
    return chosen;
}

static void choose_matching(void *ctx, struct slice key, struct entry *entry)
{
    struct find *find = ctx;
    struct pattern *pattern = &find->pattern;
    struct slice name = key_name(key);
    if (is_full(find)) {
        pattern->left = true;
        return;
    }
    pattern->last = key;
    if (!entry || (pattern->compiled && !glob_test(&find->glob, name)))
        return;
    pattern->matched = true;
    choose(find, name, entry);
}

static void begin_pattern(struct find *find, struct slice text)
{
    struct pattern *pattern = &find->pattern;
    struct slice rest = glob_prefix(text, pattern->prefix, &pattern->prefix_len);
    pattern->begun = true;
    pattern->matched = false;
    pattern->compiled = !slice_is(rest, "*");
    if (pattern->compiled)
        glob_compile(&find->glob, text, false);
    buf_truncate(&pattern->after, 0);
}

/* Looks at the next `most` names of the pattern, or the rest of them. Returns how many these were. */
static size_t choose_next(struct find *find, bool first, size_t most)
{
    struct pattern *pattern = &find->pattern;
    char space[GLOB_COMPILED_MAX + DATABASE_PREFIX];
    struct slice prefix = key_write(space, find->database, (struct slice){pattern->prefix, pattern->prefix_len});
    struct slice after = {buf_head(&pattern->after), buf_len(&pattern->after)};
    pattern->left = false;
    size_t n = all_names_walk(find->server->registry, find->server->sstables, prefix, first ? NULL : &after, most,
                              choose_matching, find);
    if (pattern->left) /* filters of many layers: visit no more than are asked */
        find->step.most = find->step.nchosen;
    if (n < most && !pattern->left) {
        const char *missed = find->sstables.missed.text;
        if (missed[0] || !pattern->matched)
            unknown(find, bf_arg(&find->words, find->at), missed[0] ? missed : "no filter matches");
        pattern->begun = false;
        find->at++;
    } else {
        buf_truncate(&pattern->after, 0);
        buf_append(&pattern->after, pattern->last.ptr, pattern->last.len);
        find->failed |= buf_failed(&pattern->after);
    }
    return n;
}

bool find_choose(struct find *find, size_t *layers_out)
{
    size_t looked = 0, end = find->request.first_name + find->request.names;
    find->step.nchosen = find->step.nlayers = find->step.nmaybe = 0;
    while (find->at < end && looked < find->step.most && !is_full(find) && !find_failed(find)) {
        size_t names = choose_names(find, find->step.most - looked);
        looked += names;
        if (names > 0)
            continue;
        bool first = !find->pattern.begun;
        if (first)
            begin_pattern(find, bf_arg(&find->words, find->at));
        looked += choose_next(find, first, find->step.most - looked);
    }
    *layers_out = find->step.nlayers + find->step.nmaybe;
    return find->at < end && !find_failed(find);
}

/* ---- SSTables that have not been read, and filters whose bits are not in memory ---- */

bool find_has_unread(const struct find *find)
{
    return !find_failed(find) &&
           (buf_len(&find->reads.unread) > 0 || buf_len(&find->reads.reading) > find->reads.taken);
}

void find_read(struct find *find)
{
    if (find->reads.pinned)
        entry_unpin(find->reads.pinned);
    find->reads.pinned = NULL;
    buf_consume(&find->reads.reading, find->reads.taken);
    if (buf_len(&find->reads.reading) == 0) {
        struct buf empty = find->reads.reading;
        find->reads.reading = find->reads.unread;
        find->reads.unread = empty;
    }
    struct slice name = name_at(&find->reads.reading, 0);
    find->reads.taken = sizeof(name.len) + name.len;
    find->step.nchosen = find->step.nlayers = 0;
    find->reads.why = (struct errbuf){RESIDENCY_TRYAGAIN};
    find->reads.pinned =
        residency_pin(find->server, key_of(find, name), &find->reads.why); /* until it has been asked */
    if (!find->reads.pinned && find->server->sstables)                     /* or it was deleted meanwhile */
        sstables_read(find->server->sstables, name);
    find->reads.was_read = true;
    choose_hashed(find, name, registry_hash(find->server->registry, key_of(find, name)));
    find->reads.was_read = false;
}

/* ---- asking ---- */

static void ask_for(struct find *find, struct bloom_item item, struct found *found)
{
    uint64_t have[BLOOM_FIND_WORDS(FIND_STEP)];
    bloom_find(&item, find->filters, find->step.nchosen, have);
    for (size_t w = 0; w < BLOOM_FIND_WORDS(find->step.nchosen); w++)
        for (; have[w] && !find_failed(find); have[w] &= have[w] - 1)
            add_name(find, found, find->names[w * 64 + (size_t)__builtin_ctzll(have[w])]);
}

/* A part of the items, filter by filter, while its words are in the cache. */
static void ask_together(struct find *find, size_t first, size_t n)
{
    uint64_t h1[PART], h2[PART];
    struct bloom_batch batch;
    for (size_t f = 0; f < find->step.nchosen && !find_failed(find); f++) {
        const struct bloom_filter *filter = find->filters[f];
        for (size_t i = 0; i < n && !(f > 0 && bloom_same_hash(find->filters[f - 1], filter)); i++) {
            struct bloom_item item = item_of(find, first + i);
            struct bloom_hash hash = bloom_filter_hash(filter, item.ptr, item.len);
            h1[i] = hash.h1;
            h2[i] = hash.h2;
        }
        for (size_t i = 0; i < n && !find_failed(find); i += BLOOM_BATCH) {
            bloom_batch_start_hashed(&batch, h1 + i, h2 + i, n - i < BLOOM_BATCH ? n - i : BLOOM_BATCH);
            for (uint32_t present = bloom_batch_query(&batch, filter); present; present &= present - 1)
                add_name(find, &find->found[first + i + (size_t)__builtin_ctz(present)], find->names[f]);
        }
    }
}

void find_ask(struct find *find)
{
    size_t items = find->request.items;
    for (size_t i = 0; items >= TOGETHER && i < items; i += PART)
        ask_together(find, i, items - i < PART ? items - i : PART);
    for (size_t i = 0; i < items && items < TOGETHER && !find_failed(find); i++)
        ask_for(find, item_of(find, i), &find->found[i]);
    find->answers.queried += find->step.nchosen;
}

uint64_t find_maybe_answers(const struct find *find)
{
    return find->answers.maybes;
}

void find_reply(const struct find *find, struct reply *reply)
{
    reply_map(reply, find->server->sstables ? 4 : 3);
    reply_bulk_str(reply, "asked");
    reply_integer(reply, (int64_t)find->answers.queried);
    reply_bulk_str(reply, "found");
    reply_array(reply, find->request.items);
    for (size_t i = 0; i < find->request.items; i++) {
        const struct found *found = &find->found[i];
        if (find->request.count) {
            reply_integer(reply, (int64_t)found->n);
            continue;
        }
        reply_array(reply, found->n);
        buf_append(reply->buf, buf_head(&found->names), buf_len(&found->names));
    }
    reply_bulk_str(reply, "unknown");
    reply_map(reply, find->answers.nunknown);
    buf_append(reply->buf, buf_head(&find->answers.unknown), buf_len(&find->answers.unknown));
    if (find->server->sstables) {
        reply_bulk_str(reply, "round");
        reply_integer(reply, (int64_t)find->sstables.round);
    }
    if (find_failed(find))
        reply->buf->failed = true;
}
