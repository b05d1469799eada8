/* The numbers are those that tests/bench/command_costs.py printed for a release build (the least of several runs, in a
 * virtual machine of 2 processors at 2.1 GHz), and a little more. */
#include "cost.h"

#include <math.h>
#include <string.h>

#include "bloom_filter.h"
#include "cf.h"
#include "command.h"
#include "cuckoo.h"
#include "handlers.h"
#include "stats.h"

/* ---- the table ---- */

#define WORD      UINT64_C(125) /* parsed, queued, found again: PING 99, an item of BF.EXISTS 80 */
#define CALL      UINT64_C(100) /* a short reply is written: READONLY 151 */
#define KILOBYTE  UINT64_C(400) /* hashed: an item of 4,000 bytes 1,500 */
#define ECHOED    1300          /* a kilobyte that is also replied: ECHO of 4,000 bytes 4,400 */
#define NAMED     1500          /* a kilobyte that is checked and kept: CLIENT SETNAME of 1,000 bytes 1,500 */
#define HASHED    6000          /* a kilobyte that may be a password: SHA-256 */
#define HELP      10000         /* lines are made of rows: CLIENT HELP, the longest, 8,800 */
#define CLEARED   UINT64_C(70)  /* a layer of the old filter is counted: BF.CLEAR of 1,024 layers 62,800 */
#define PATTERN   UINT64_C(1)   /* of the user's rights, compared with a name */
#define KEY       UINT64_C(75)  /* a name out of the cache: EXISTS of 600,000 names 144 */
#define OPERATORS 100000        /* CMD_ADMIN: CONFIG GET * 60,000; others allocate, lock, read small files */

#define LAYER_BATCH UINT64_C(110) /* a layer is fetched for up to 32 items: one item in 1,024 layers 107,000 */
#define LAYER_ITEM  UINT64_C(8)   /* an item is tested in a layer: 1,000 items in 1,024 layers 8,200,000 */
#define LAYER_AFAR  UINT64_C(50)  /* the same where the words are not in the cache */
#define ITEM_AFAR   UINT64_C(150) /* a layer beyond the last cache, k of 21: 260 for an item with its word */
#define QUESTION    UINT64_C(50)  /* BF.FIND asks a filter for an item; and then each of its layers: 10,400 for 1,024 */
#define LAYER_FOUND UINT64_C(11)
#define ITEM_ADDED  UINT64_C(125)  /* locked, counted, recorded */
#define PAGE        UINT64_C(1800) /* is made when it is written for the first time: 37,700 for an item with k of 21 */
#define PAGE_SHARED \
    UINT64_C(       \
        2800) /* of the heap, or a huge one with other filters: BF.ADD to a fresh filter of 350 KB 56,400, k of 20 */
#define PAGE_ASKED  UINT64_C(700)   /* is found to be empty: BF.EXISTS of it 10,700 */
#define LAYER_GROWN UINT64_C(15000) /* sized, allocated, published */
#define LAYER_ABOVE UINT64_C(300)   /* the others below it are gone through: 150,000,000 for growth to 1,024 layers */
#define FILTER_MADE UINT64_C(1200)  /* and published */
#define SIZED       UINT64_C(10000) /* unless another one has the same parameters */
#define MAPPED      UINT64_C(25000) /* words of their own: 25,700 for a filter of 1 GB */
#define UNMAPPED \
    UINT64_C(60000) /* given back meanwhile, with the same lock of the address space: BF.CLEAR of 1 GB 83,200 */
#define LOOKED_AT  UINT64_C(180000) /* a megabyte for bits: BF.CLEAR of 0.9 MB 154,000 */
#define INFO_LAYER UINT64_C(160)    /* BF.INFO of 1,024 layers 162,000 */
#define INFO_BITS  UINT64_C(52000)  /* with a layer's bits, rates and fields: of 32 layers 1,630,000 */

#define CUCKOO_LAYER \
    UINT64_C(30) /* two buckets are looked through: CF.MEXISTS of 1,000 items in 750 layers 20,800,000 */
#define EVICTED      UINT64_C(25) /* a fingerprint is moved on */
#define EVICTED_AFAR UINT64_C(150)
#define SLOT_LOOKED_AT                                                                                       \
    UINT64_C(30) /* by a compaction: CF.COMPACT of four layers of 1 MB, 14,680,064 slots with those checked, \
                    \ 63,000,000 */

#define CACHE_BYTES  (UINT64_C(2) << 20)
#define MEMORY_BYTES (UINT64_C(32) << 20)
#define PAGE_BYTES   UINT64_C(4096)
#define MEGABYTE     (UINT64_C(1) << 20)

/* The commands that differ from the usual cost: CALL and the words, or CMD_ADMIN and HELP as above. */
static const struct cost_row {
    void (*handler)(struct command_ctx *ctx);
    enum cost_by by;
    uint32_t call;     /* once */
    uint32_t word;     /* instead of WORD; 0: WORD */
    uint32_t layer;    /* COST_BY_LAYERS */
    uint32_t kilobyte; /* instead of KILOBYTE; 0: KILOBYTE */
} rows[] = {
    {cmd_bf_exists, COST_BY_ASKED},
    {cmd_bf_mexists, COST_BY_ASKED},
    {cmd_bf_query, COST_BY_ASKED},
    {cmd_bf_add, COST_BY_ADDED},
    {cmd_bf_madd, COST_BY_ADDED},
    {cmd_bf_insert, COST_BY_ADDED},
    {cmd_bf_reserve, COST_BY_MADE, 1500},
    {cmd_bf_clear, COST_BY_CLEARED, 2000},
    {cmd_cf_exists, COST_BY_ASKED},
    {cmd_cf_mexists, COST_BY_ASKED},
    {cmd_cf_count, COST_BY_ASKED},
    {cmd_cf_add, COST_BY_ADDED},
    {cmd_cf_addnx, COST_BY_ADDED},
    {cmd_cf_insert, COST_BY_ADDED},
    {cmd_cf_insertnx, COST_BY_ADDED},
    {cmd_cf_reserve, COST_BY_MADE, 1500},
    {cmd_cf_del, COST_BY_DELETED, 200},
    {cmd_cf_compact, COST_BY_COMPACTED, 200},
    {cmd_cf_info, COST_BY_LAYERS, 3000, 0, 160},
    {cmd_cf_debug, COST_BY_LAYERS, 3000, 0, 160},
    {cmd_cf_scandump, COST_BY_WORDS, 300000},             /* of a whole chunk */
    {cmd_cf_loadchunk, COST_BY_WORDS, 20000, 0, 0, 3000}, /* of 512 KB 1,400,000 */
    {cmd_bf_card, COST_BY_LAYERS, 0, 0, 13},
    {cmd_bf_debug, COST_BY_LAYERS, 1000, 0, 500},
    {cmd_bf_info, COST_BY_INFO, 3000},
    {cmd_bf_falsepositive, COST_BY_WORDS, 5000},
    {cmd_bf_find, COST_BY_FOUND, 5000},
    {cmd_bf_plan, COST_BY_WORDS, 100000},
    {cmd_memory_usage, COST_BY_WORDS, 8000},
    {cmd_del, COST_BY_WORDS, 500, 350},
    {cmd_expire, COST_BY_WORDS, 1000},
    {cmd_pexpire, COST_BY_WORDS, 1000},
    {cmd_expireat, COST_BY_WORDS, 1000},
    {cmd_pexpireat, COST_BY_WORDS, 1000},
    {cmd_persist, COST_BY_WORDS, 500},
    {cmd_rename, COST_BY_WORDS, 1500},
    {cmd_renamenx, COST_BY_WORDS, 1500},
    {cmd_move, COST_BY_WORDS, 1500},
    {cmd_scan, COST_BY_WORDS, 30000},       /* of 100 names */
    {cmd_randomkey, COST_BY_WORDS, 100000}, /* 3,800, or through 4,096 names that have expired */
    {cmd_ping, COST_BY_WORDS, 0, 0, 0, ECHOED},
    {cmd_echo, COST_BY_WORDS, 0, 0, 0, ECHOED},
    {cmd_time, COST_BY_WORDS, 300},
    {cmd_hello, COST_BY_WORDS, 1500, 0, 0, HASHED}, /* 420; with AUTH 1,300 */
    {cmd_auth, COST_BY_WORDS, 1500, 0, 0, HASHED},
    {cmd_acl_setuser, COST_BY_WORDS, 200000, 0, 0, HASHED}, /* of 1,024 rules 145,000 */
    {cmd_acl_list, COST_BY_USERS, OPERATORS},
    {cmd_acl_users, COST_BY_USERS, OPERATORS},
    {cmd_object_freq, COST_BY_WORDS, 250},
    {cmd_pubsub_numpat, COST_BY_WORDS, 200},
    {cmd_pubsub_numsub, COST_BY_WORDS, 200, 0, 0, ECHOED},
    {cmd_pubsub_shardnumsub, COST_BY_WORDS, 200, 0, 0, ECHOED},
    {cmd_subscribe, COST_BY_WORDS, 500, 500, 0, ECHOED},
    {cmd_ssubscribe, COST_BY_WORDS, 500, 500, 0, ECHOED},
    {cmd_psubscribe, COST_BY_WORDS, 500, 500, 0, ECHOED},
    {cmd_unsubscribe, COST_BY_WORDS, 500, 500, 0, ECHOED},
    {cmd_sunsubscribe, COST_BY_WORDS, 500, 500, 0, ECHOED},
    {cmd_punsubscribe, COST_BY_WORDS, 500, 500, 0, ECHOED},
    {cmd_client_setname, COST_BY_WORDS, 200, 0, 0, NAMED},
    {cmd_client_setinfo, COST_BY_WORDS, 200, 0, 0, NAMED},
    {cmd_client_getname, COST_BY_WORDS, 1300}, /* a kilobyte at most */
    {cmd_client_info, COST_BY_WORDS, 4500},    /* the same, and that of CLIENT SETINFO */
    {cmd_command_count, COST_BY_WORDS, 250},
    {cmd_command_getkeys, COST_BY_WORDS, 300, 0, 0, ECHOED},
    {cmd_command_getkeysandflags, COST_BY_WORDS, 500, 400, 0, ECHOED},
    {cmd_command, COST_BY_WORDS, 140000},
    {cmd_command_docs, COST_BY_WORDS, 140000, 24000}, /* of CLIENT with its subcommands 23,500 */
    {cmd_command_info, COST_BY_WORDS, 140000, 12000},
    {cmd_command_list, COST_BY_WORDS, 100000},
    {cmd_acl_cat, COST_BY_WORDS, 100000},
    {cmd_acl_genpass, COST_BY_WORDS, 100000},
    {cmd_acl_log, COST_BY_WORDS, 200000}, /* of 128 entries */
    {cmd_debug, COST_BY_WORDS, 100000},
};

static const struct cost_row *of_command[STATS_MAX_COMMANDS]; /* by command_index(); NULL: as usual */

/* Before main(), as the table of commands. */
__attribute__((constructor)) static void sort_rows(void)
{
    const struct command *row;
    for (size_t i = 0; (row = command_row(i)); i++) {
        for (size_t j = 0; row->handler && j < sizeof(rows) / sizeof(rows[0]); j++) {
            if (rows[j].handler == row->handler)
                of_command[i] = &rows[j];
        }
    }
}

static const struct cost_row *row_of(const struct command *command)
{
    static const struct cost_row usual = {.call = CALL}, admin = {.call = OPERATORS}, help = {.call = HELP};
    const struct cost_row *row = of_command[command_index(command)];
    if (row)
        return row;
    return command->flags & CMD_ADMIN ? &admin : strcmp(command->name, "help") == 0 ? &help : &usual;
}

enum cost_by cost_by(const struct command *command)
{
    return row_of(command)->by;
}

static size_t keys_of(const struct command *command, size_t argc)
{
    size_t first = (size_t)command->first_key;
    if (first == 0 || first >= argc)
        return 0;
    size_t last = command->last_key < 0 ? argc - (size_t)-command->last_key : (size_t)command->last_key;
    return last < first ? 0 : (last - first) / (size_t)command->key_step + 1;
}

uint64_t cost_of_words(const struct command *command, const struct resp_command *cmd, size_t npatterns)
{
    const struct cost_row *row = row_of(command);
    uint64_t word = row->word ? row->word : WORD, kilobyte = row->kilobyte ? row->kilobyte : KILOBYTE;
    return row->call + word * cmd->argc + kilobyte * command_bytes(cmd) / 1024 +
           (KEY + PATTERN * npatterns) * keys_of(command, cmd->argc);
}

/* ---- filters ---- */

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_mapped(uint64_t bytes)
{
    return bytes >= BLOOM_ROOM_MIN_BYTES;
}

static uint64_t pages_of(uint64_t bytes)
{
    return bytes / PAGE_BYTES;
}

/* A window's parts follow each other like layers of the same capacity. */
static uint32_t expansion_of(const struct bloom_params *params)
{
    return bloom_params_is_window(params) ? 1 : params->expansion;
}

static void note_cuckoo(const struct bloom_filter *filter, struct cost_filter *out)
{
    struct cuckoo_state state;
    cuckoo_state(filter, &state);
    uint64_t sparse = state.items / 10;
    out->iterations = bloom_filter_params(filter)->iterations;
    out->slots = state.slots;
    out->holes = sparse > state.deletes ? (sparse - state.deletes) * 10 / 11 : 0;
    out->holes_then = state.items / 12;
    out->compacting = out->holes == 0 && out->layers > 1 && state.deletes > 0;
    out->room = 0; /* equal items may have filled their buckets */
}

struct cost_filter cost_filter_of(const struct bloom_filter *filter)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct bloom_layer_view newest, first;
    unsigned layers = bloom_filter_nlayers(filter);
    bloom_filter_layer(filter, layers - 1, &newest);
    bloom_filter_layer(filter, 0, &first);
    uint64_t bytes = newest.shape.nwords * 8, items = newest.ordinal - newest.base;
    uint64_t young = items < pages_of(bytes) ? pages_of(bytes) : 0;
    struct cost_filter out = {
        .exists = true,
        .layers = layers,
        .k = newest.shape.k,
        .bytes = bytes,
        .young = young,
        .unread = young,
        .room = newest.capacity - least(items, newest.capacity),
        .next = times(newest.capacity, expansion_of(params)),
        .expansion = expansion_of(params),
        .first = {first.shape.nwords * 8, first.capacity},
    };
    if (bloom_params_is_cuckoo(params))
        note_cuckoo(filter, &out);
    return out;
}

struct cost_filter cost_filter_cuckoo(const struct bloom_params *params, const struct bloom_shape *shape)
{
    uint64_t bytes = shape->nwords * 8;
    return (struct cost_filter){
        .exists = true,
        .is_sized = true,
        .layers = 1,
        .k = shape->k,
        .bytes = bytes,
        .young = pages_of(bytes),
        .unread = pages_of(bytes),
        .room = 2 * (uint64_t)shape->k,
        .expansion = params->expansion,
        .first = {bytes, shape->capacity},
        .iterations = params->iterations,
        .slots = shape->capacity,
    };
}

/* A little more than is made: this many hash functions, and 1.5 times as many bits for each item. */
struct cost_filter cost_filter_new(const struct bloom_params *params)
{
    uint64_t capacity = params->capacity;
    double rate = params->error_rate > 0 && params->error_rate < 1 ? params->error_rate : 1e-9;
    unsigned k = (unsigned)least((uint64_t)(2 - ilogb(rate)), BLOOM_MAX_K);
    if (bloom_params_is_window(params))
        capacity = capacity / params->window_parts + 1;
    uint64_t bytes = least(times(capacity, k + k / 2) / 8, BLOOM_MAX_WORDS * UINT64_C(8));
    return (struct cost_filter){
        .exists = true,
        .layers = 1,
        .k = k,
        .bytes = bytes,
        .young = pages_of(bytes),
        .unread = pages_of(bytes),
        .room = capacity,
        .next = times(capacity, expansion_of(params)),
        .expansion = expansion_of(params),
        .first = {bytes, capacity},
    };
}

void cost_filter_join(struct cost_filter *filter, const struct cost_filter *other)
{
    if (!other->exists || !filter->exists) {
        bool may_be_removed = filter->may_be_removed;
        if (other->exists)
            *filter = *other;
        filter->may_be_removed |= may_be_removed;
        return;
    }
    filter->may_be_removed |= other->may_be_removed;
    filter->layers = (unsigned)most(filter->layers, other->layers);
    filter->k = (unsigned)most(filter->k, other->k);
    filter->bytes = most(filter->bytes, other->bytes);
    filter->young = most(filter->young, other->young);
    filter->unread = most(filter->unread, other->unread);
    filter->room = least(filter->room, other->room);
    if (filter->expansion == 0) /* `next` has no meaning for a filter that never grows */
        filter->next = other->next;
    else if (other->expansion)
        filter->next = least(filter->next, other->next);
    filter->first.bytes = most(filter->first.bytes, other->first.bytes);
    filter->first.capacity = least(filter->first.capacity, other->first.capacity);
    if (filter->expansion == 0 || (other->expansion && other->expansion < filter->expansion))
        filter->expansion = other->expansion;
    filter->iterations = (unsigned)most(filter->iterations, other->iterations);
    filter->slots = most(filter->slots, other->slots);
    filter->holes = least(filter->holes, other->holes);
    filter->holes_then = least(filter->holes_then, other->holes_then);
    filter->compacting |= other->compacting;
}

/* ---- costs ---- */

static uint64_t cost_of_tested(const struct cost_filter *filter, size_t items)
{
    if (!filter->exists)
        return 0;
    uint64_t layers = filter->layers, batches = (items + 31) / 32;
    uint64_t older = filter->bytes > CACHE_BYTES ? LAYER_AFAR : LAYER_ITEM;
    uint64_t item = (layers - 1) * older + (filter->bytes > MEMORY_BYTES ? ITEM_AFAR : 0);
    return items * item + batches * layers * LAYER_BATCH;
}

/* The pages that this many items meet for the first time. */
static uint64_t take_pages(uint64_t *pages, const struct cost_filter *filter, size_t items)
{
    uint64_t taken = least(times(items, filter->k), *pages);
    *pages -= taken;
    return taken;
}

static uint64_t cost_of_query(struct cost_filter *filter, size_t items)
{
    return cost_of_tested(filter, items) + PAGE_ASKED * take_pages(&filter->unread, filter, items);
}

static uint64_t cost_of_made(struct cost_filter *filter, const struct cost_filter *made)
{
    if (!made || (filter->exists && !filter->may_be_removed))
        return 0;
    cost_filter_join(filter, made);
    uint64_t sized = made->is_sized ? 0 : SIZED, mapped = is_mapped(made->bytes) ? MAPPED : 0;
    return FILTER_MADE + sized + mapped;
}

/* Another layer, or the next part of a window. */
static uint64_t grow(struct cost_filter *filter)
{
    uint64_t cost = LAYER_GROWN + LAYER_ABOVE * filter->layers + (is_mapped(filter->bytes) ? MAPPED : 0);
    filter->layers++;
    filter->room = filter->next;
    filter->next = times(filter->next, filter->expansion);
    filter->bytes = least(times(filter->bytes, filter->expansion), BLOOM_MAX_WORDS * UINT64_C(8) / 2);
    filter->bytes += filter->bytes / 4; /* its rate is lower */
    filter->young += pages_of(filter->bytes);
    filter->unread += pages_of(filter->bytes);
    return cost;
}

static uint64_t cost_of_added(struct cost_filter *filter, size_t items, const struct cost_filter *made)
{
    uint64_t cost = cost_of_made(filter, made), left = items;
    if (!filter->exists)
        return cost;
    while (left > filter->room && filter->expansion && filter->layers < BLOOM_MAX_LAYERS) {
        left -= filter->room;
        cost += grow(filter);
    }
    filter->room -= least(left, filter->room);
    uint64_t pages = take_pages(&filter->young, filter, items);
    return cost + cost_of_tested(filter, items) + ITEM_ADDED * items +
           (is_mapped(filter->bytes) ? PAGE : PAGE_SHARED) * pages;
}

static uint64_t cost_of_cleared(struct cost_filter *filter)
{
    if (!filter->exists)
        return 0;
    uint64_t counted = CLEARED * filter->layers;
    uint64_t looks = filter->layers == 1 && filter->bytes <= MEGABYTE ? LOOKED_AT * filter->bytes / MEGABYTE : 0;
    struct cost_filter empty = *filter;
    empty.layers = 1;
    empty.bytes = filter->first.bytes;
    empty.young = empty.unread = pages_of(filter->first.bytes);
    empty.room = filter->first.capacity;
    empty.next = times(filter->first.capacity, filter->expansion);
    cost_filter_join(filter, &empty);
    return counted + looks + (is_mapped(filter->first.bytes) ? MAPPED + UNMAPPED : 0);
}

/* ---- cuckoo filters ---- */

#define EXPANDED_MAX (UINT64_C(1) << 36) /* bytes of a layer beyond which nothing grows by a factor */

static bool is_for_cuckoo(const struct command *command)
{
    return strncmp(command->full_name, "cf.", 3) == 0;
}

static uint64_t cost_of_probed(const struct cost_filter *filter, size_t items)
{
    uint64_t item = filter->layers * CUCKOO_LAYER + (filter->bytes > CACHE_BYTES ? 2 * ITEM_AFAR : 0);
    return filter->exists ? times(items, item) : 0;
}

/* A step of a compaction that each change takes. */
static uint64_t cost_of_step(const struct cost_filter *filter)
{
    return filter->compacting ? SLOT_LOOKED_AT * CF_LOOKS_BESIDE : 0;
}

/* The worst case: equal items fill their two buckets, and each new layer has two more. */
static uint64_t grow_cuckoo(struct cost_filter *filter)
{
    filter->layers++;
    filter->room = 2 * (uint64_t)filter->k;
    filter->bytes = times(filter->bytes, filter->expansion);
    filter->slots += filter->bytes;
    filter->young += least(pages_of(filter->bytes), filter->room);
    return COST_CUCKOO_LAYER + (is_mapped(filter->bytes) ? MAPPED : 0);
}

/* The command that passes the limit adds the rest of its items. */
static bool may_grow(const struct cost_filter *filter, size_t items)
{
    return filter->expansion && filter->layers < least(filter->most + items / (2 * filter->k), BLOOM_MAX_LAYERS) &&
           (filter->expansion == 1 || filter->bytes < EXPANDED_MAX);
}

static uint64_t cost_of_stored(struct cost_filter *filter, size_t items, const struct cost_filter *made)
{
    uint64_t cost = cost_of_made(filter, made), left = items;
    if (!filter->exists)
        return cost;
    cost += cost_of_probed(filter, items / 2);
    for (; left > filter->room && may_grow(filter, items); cost += grow_cuckoo(filter))
        left -= filter->room;
    filter->room -= least(left, filter->room);
    uint64_t pages = least(2 * (uint64_t)items, filter->young);
    filter->young -= pages;
    uint64_t evicted = filter->iterations * (filter->bytes > CACHE_BYTES ? EVICTED_AFAR : EVICTED);
    return cost + cost_of_probed(filter, items - items / 2) +
           times(items, ITEM_ADDED + evicted + cost_of_step(filter)) +
           (is_mapped(filter->bytes) ? PAGE : PAGE_SHARED) * pages;
}

static uint64_t cost_of_compacted(struct cost_filter *filter)
{
    if (!filter->exists || filter->layers == 1)
        return 0;
    filter->holes = filter->holes_then;
    uint64_t looks = times(filter->slots, 1 + UINT64_C(2) * filter->k * filter->layers);
    filter->compacting = looks > CF_LOOKS_AT_ONCE;
    return SLOT_LOOKED_AT * least(looks, CF_LOOKS_AT_ONCE);
}

static uint64_t cost_of_deleted(struct cost_filter *filter)
{
    uint64_t cost = cost_of_probed(filter, 1) + cost_of_step(filter);
    if (filter->holes == 0)
        return cost + cost_of_compacted(filter);
    filter->holes--;
    return cost;
}

/* ---- all ---- */

uint64_t cost_of_info(uint64_t layers, uint64_t bytes, bool counts_bits)
{
    return layers * (counts_bits ? INFO_BITS : INFO_LAYER) + (counts_bits ? bytes / 16 : 0);
}

uint64_t cost_of_filter(const struct command *command, struct cost_filter *filter, size_t items,
                        const struct cost_filter *made)
{
    const struct cost_row *row = row_of(command);
    switch (row->by) {
    case COST_BY_WORDS:
    case COST_BY_USERS:
        return 0;
    case COST_BY_ASKED:
        return is_for_cuckoo(command) ? cost_of_probed(filter, items) : cost_of_query(filter, items);
    case COST_BY_ADDED:
        return is_for_cuckoo(command) ? cost_of_stored(filter, items, made) : cost_of_added(filter, items, made);
    case COST_BY_MADE:
        return cost_of_made(filter, made);
    case COST_BY_LAYERS:
        return row->layer * (uint64_t)filter->layers;
    case COST_BY_INFO: /* a transaction refuses commands that would cost more */
        return least(cost_of_info(filter->layers, filter->layers * filter->bytes, items > 0), COST_INLINE);
    case COST_BY_CLEARED:
        return cost_of_cleared(filter);
    case COST_BY_DELETED:
        return cost_of_deleted(filter);
    case COST_BY_COMPACTED:
        return cost_of_compacted(filter);
    case COST_BY_FOUND:
        return filter->exists ? items * (QUESTION + LAYER_FOUND * (uint64_t)filter->layers) : 0;
    }
    return 0;
}
