#include "transaction.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "acl_user.h"
#include "bf_host.h"
#include "bf.h"
#include "command.h"
#include "cuckoo_dump.h"
#include "glob_match.h"
#include "handlers.h"
#include "hash_table.h"
#include "registry_key.h"
#include "server.h"
#include "sstables.h"
#include "work.h"

/* What decides the work of commands on a filter, now or as the transaction may leave it. Zeroed: there is none. */
struct state {
    bool exists, cuckoo;
    bool compacting;       /* each change takes a step of it */
    unsigned layers, bits; /* of an item in a layer */
    uint64_t moves;        /* of an add to a cuckoo filter */
    uint64_t bytes;        /* of the newest layer */
    uint64_t young;        /* pages of it that may not exist yet */
    uint64_t unread;       /* of these, pages that no query has met */
    uint64_t room;         /* items without another layer */
    uint64_t next;         /* the capacity of that layer */
    uint32_t expansion;    /* 0: it never has another layer */
    uint64_t cleared;      /* bytes of its first layer */
};

struct named {
    struct hash_link link; /* by the key's hash, without the lowest bits, which are those of the database */
    struct named *older;
    struct slice name;
    unsigned database;
    struct state state;
};

struct estimate {
    const struct command_ctx *ctx;
    size_t npatterns;
    struct hash_table table;
    struct named *newest;
    bool mixed; /* filters were removed, or got other names: from then on each name may have any of them */
    struct state any;
    uint64_t work;
    bool failed; /* no memory */
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* ---- states ---- */

#define CACHE_BYTES (UINT64_C(2) << 20)

static uint64_t pages_of(uint64_t bytes)
{
    return bytes / 4096;
}

/* Parts of a window follow each other like layers of the same capacity. */
static struct state state_new(const struct bloom_params *params, uint64_t capacity, unsigned bits, uint64_t bytes)
{
    uint32_t expansion = bloom_params_is_window(params) ? 1 : params->expansion;
    uint64_t moves = bloom_params_is_cuckoo(params) ? params->iterations : 0;
    return (struct state){
        .exists = true,
        .cuckoo = bloom_params_is_cuckoo(params),
        .layers = 1,
        .bits = bits,
        .moves = bytes > CACHE_BYTES ? moves : moves / 8,
        .bytes = bytes,
        .young = pages_of(bytes),
        .unread = pages_of(bytes),
        .room = capacity,
        .next = times(capacity, expansion),
        .expansion = expansion,
        .cleared = bytes,
    };
}

static struct state state_of(const struct bloom_filter *filter)
{
    struct bloom_layer_view newest, first;
    unsigned layers = bloom_filter_nlayers(filter);
    bloom_filter_layer(filter, layers - 1, &newest);
    bloom_filter_layer(filter, 0, &first);
    uint64_t items = newest.ordinal - newest.base;
    struct state state =
        state_new(bloom_filter_params(filter), newest.capacity, newest.shape.k, newest.shape.nwords * 8);
    state.layers = layers;
    if (items >= state.young)
        state.young = state.unread = 0;
    state.room = newest.capacity - least(items, newest.capacity);
    state.cleared = first.shape.nwords * 8;
    state.compacting = state.cuckoo && cuckoo_is_compacting(filter);
    return state;
}

/* Makes `state` the one with more work in each respect. */
static void join(struct state *state, const struct state *other)
{
    if (!state->exists || !other->exists) {
        *state = state->exists ? *state : *other;
        return;
    }
    state->cuckoo &= other->cuckoo;
    state->compacting |= other->compacting;
    state->layers = (unsigned)most(state->layers, other->layers);
    state->bits = (unsigned)most(state->bits, other->bits);
    state->moves = most(state->moves, other->moves);
    state->bytes = most(state->bytes, other->bytes);
    state->young = most(state->young, other->young);
    state->unread = most(state->unread, other->unread);
    state->room = least(state->room, other->room);
    state->next = state->expansion && (!other->expansion || state->next < other->next) ? state->next : other->next;
    state->expansion = state->expansion && (!other->expansion || state->expansion < other->expansion)
                           ? state->expansion
                           : other->expansion;
    state->cleared = most(state->cleared, other->cleared);
}

/* Of one item; its first layer counts with its word. A look at a layer of a cuckoo filter is cheap where a few equal
 * items make many of them. */
static uint64_t looks(const struct state *state)
{
    return state->cuckoo && state->bytes <= CACHE_BYTES ? state->layers / 8 : state->layers - 1;
}

static uint64_t ask(struct state *state, uint64_t items)
{
    uint64_t unread = least(times(items, state->bits), state->unread);
    state->unread -= unread;
    return state->exists ? times(items, looks(state)) + WORK_PAGE / 4 * unread : 0;
}

/* A cuckoo filter may have another layer when equal items have filled their two buckets. `most_layers`: of these, with
 * which a command adds nothing (cf-max-expansions). */
static uint64_t add(struct state *state, uint64_t items, unsigned most_layers)
{
    uint64_t work = 0, left = items, in_buckets = 2 * (uint64_t)state->bits;
    unsigned limit =
        state->cuckoo ? (unsigned)least(most_layers + items / in_buckets, BLOOM_MAX_LAYERS) : BLOOM_MAX_LAYERS;
    for (; left > state->room && state->expansion && state->layers < limit;) {
        work += state->cuckoo ? WORK_MADE : WORK_LAYER + 2 * state->layers;
        left -= state->room;
        state->layers++;
        state->room = state->cuckoo ? in_buckets : state->next;
        state->next = times(state->next, state->expansion);
        state->bytes = least(times(state->bytes, state->expansion), UINT64_C(1) << 40);
        state->bytes += state->cuckoo ? 0 : state->bytes / 4; /* its rate is lower */
        state->young += pages_of(state->bytes);
        state->unread += pages_of(state->bytes);
    }
    state->room -= least(left, state->room);
    uint64_t young = least(times(items, state->cuckoo ? 2 : state->bits), state->young);
    state->young -= young;
    uint64_t step = state->compacting ? CF_LOOKS_BESIDE / 4 : 0;
    return work + times(items, 1 + looks(state) + state->moves + step) + WORK_PAGE * young;
}

/* ---- names ---- */

static struct state look_up(const struct server *server, struct slice key, uint64_t hash)
{
    struct entry *entry = registry_find(server->registry, hash, key);
    if (!entry && server->sstables)
        entry = sstables_find(server->sstables, key);
    const struct bloom_filter *filter = entry ? entry_shape(entry) : NULL;
    return filter ? state_of(filter) : (struct state){0};
}

/* The state of a name's filter. NULL: there is no memory, or no filter can have the name. */
static struct state *filter_named(struct estimate *estimate, unsigned database, struct slice name)
{
    const struct server *server = estimate->ctx->server;
    char space[REGISTRY_MAX_NAME + 2 * DATABASE_PREFIX];
    if (name.len > REGISTRY_MAX_NAME)
        return NULL;
    struct slice key = key_write(space, database, name);
    uint64_t hash = registry_hash(server->registry, key);
    struct hash_link *link = hash_table_first(&estimate->table, hash >> 16);
    struct named *named = NULL;
    for (; link; link = hash_table_next(link)) {
        named = HASH_OBJECT(link, struct named, link);
        if (named->database == database && slice_equal(named->name, name))
            return estimate->mixed ? &estimate->any : &named->state;
    }
    named = malloc(sizeof(*named));
    if (named)
        *named = (struct named){.link.hash = hash >> 16, .older = estimate->newest, .name = name, .database = database};
    if (!named || hash_table_insert(&estimate->table, &named->link) != 0) {
        free(named);
        estimate->failed = true;
        return NULL;
    }
    estimate->newest = named;
    estimate->work += 2; /* a filter out of the cache, by its name */
    named->state = look_up(server, key, hash);
    if (!estimate->mixed)
        return &named->state;
    join(&estimate->any, &named->state);
    return &estimate->any;
}

static void mix(struct estimate *estimate, const struct command *command, const struct resp_command *cmd,
                unsigned database)
{
    struct command_keys keys = command_keys(command, cmd->argc);
    for (size_t i = keys.first; i < keys.end; i += keys.step)
        (void)filter_named(estimate, database, resp_arg(cmd, i));
    for (struct named *named = estimate->newest; named && !estimate->mixed; named = named->older)
        join(&estimate->any, &named->state);
    estimate->mixed = true;
}

/* ---- commands ---- */

static struct slice word_at(const void *cmd, size_t i)
{
    return resp_arg(cmd, i);
}

typedef void handler(struct command_ctx *ctx);

static bool is_one_of(const struct command *command, handler *const handlers[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (command->handler == handlers[i])
            return true;
    return false;
}

#define IS_ONE_OF(command, ...) \
    is_one_of(command, (handler *const[]){__VA_ARGS__}, sizeof((handler *[]){__VA_ARGS__}) / sizeof(handler *))

static bool is_cuckoo_list(const struct command *command)
{
    return IS_ONE_OF(command, cmd_cf_insert, cmd_cf_insertnx);
}

/* The filter that the command makes if there is none. Returns the work; 0: it makes none. */
static uint64_t made_by(const struct server *server, const struct command *command, const struct bf_args *args,
                        struct state *made_out)
{
    bool automatic = server_config(server)->filters.auto_create;
    struct errbuf error;
    struct bloom_params params;
    if (command->flags & CMD_CUCKOO) {
        struct cuckoo_numbers defaults = cf_defaults_of(server), numbers = defaults;
        struct bloom_shape shape;
        struct cf_insert insert;
        if (command->handler == cmd_cf_reserve)
            automatic = cf_read_reserve(args, &defaults, &numbers, &error);
        else if (is_cuckoo_list(command) && cf_read_insert(args, &defaults, &insert, &error)) {
            automatic &= !insert.no_create;
            numbers = insert.numbers;
        }
        if (!automatic || cuckoo_plan(&numbers, &params, &shape, &error) != BLOOM_OK)
            return 0;
        *made_out = state_new(&params, 2 * (uint64_t)shape.k, shape.k, shape.nwords * 8);
        return WORK_MADE;
    }
    struct bf_defaults defaults = bf_defaults_of(server);
    struct bf_reserve reserve;
    struct bf_insert insert;
    params = defaults.params;
    if (command->handler == cmd_bf_reserve) {
        automatic = bf_read_reserve(args, &defaults, &reserve, &error);
        params = reserve.params;
    } else if (command->handler == cmd_bf_insert) {
        automatic =
            bf_read_insert(args, &defaults, &insert, &error) && !insert.no_create && (automatic || insert.sized);
        params = insert.params;
    }
    if (!automatic)
        return 0;
    /* a little more than is made: this many hash functions, and 1.5 times as many bits for each item */
    double rate = params.error_rate > 0 && params.error_rate < 1 ? params.error_rate : 1e-9;
    unsigned bits = (unsigned)least((uint64_t)(2 - ilogb(rate)), BLOOM_MAX_K);
    uint64_t capacity = bloom_params_is_window(&params) ? params.capacity / params.window_parts + 1 : params.capacity;
    *made_out = state_new(&params, capacity, bits, times(capacity, bits + bits / 2) / 8);
    return bloom_params_variant(&params) == BLOOM_BLOCKED ? 2 * WORK_SLOW : WORK_MADE; /* of a new rate */
}

static size_t items_of(const struct server *server, const struct command *command, const struct bf_args *args)
{
    struct cuckoo_numbers defaults = cf_defaults_of(server);
    struct cf_insert insert;
    struct errbuf error;
    if (is_cuckoo_list(command))
        return cf_read_insert(args, &defaults, &insert, &error) ? args->argc - insert.first_item : 0;
    struct slice owner = {NULL, 0};
    size_t first = IS_ONE_OF(command, cmd_bf_insert, cmd_bf_query) ? bf_first_item(args, &owner) : 2;
    return first < args->argc ? (args->argc - first) * (owner.len ? 2 : 1) : 0; /* a claim is two */
}

/* BF.CLEAR looks whether a small filter has bits, and maps a large one. */
static uint64_t clear(struct state *filter)
{
    if (!filter->exists)
        return 0;
    uint64_t work = WORK_MADE + filter->layers;
    work += filter->cleared >= BLOOM_ROOM_MIN_BYTES ? 512 : filter->cleared / 1024;
    filter->young = most(filter->young, pages_of(filter->cleared));
    filter->unread = most(filter->unread, pages_of(filter->cleared));
    return work;
}

/* A deletion may begin a compaction, too. */
static uint64_t compact(struct state *filter)
{
    filter->compacting |= filter->layers > 1;
    return ask(filter, 1) + (filter->layers > 1 ? least(filter->bytes, CF_LOOKS_AT_ONCE) / 8 : 0);
}

static void take_filter(struct estimate *estimate, const struct command *command, const struct resp_command *cmd,
                        unsigned database)
{
    const struct server *server = estimate->ctx->server;
    struct bf_args args = {cmd->argc, word_at, cmd, command->full_name, bf_is_valkey(server)};
    struct state *filter = filter_named(estimate, database, resp_arg(cmd, (size_t)command->first_key)), made;
    bool reserves = IS_ONE_OF(command, cmd_bf_reserve, cmd_cf_reserve);
    bool adds = IS_ONE_OF(command, cmd_bf_add, cmd_bf_madd, cmd_bf_insert, cmd_cf_add, cmd_cf_addnx, cmd_cf_insert,
                          cmd_cf_insertnx);
    if (!filter)
        return;
    bool makes = (adds || reserves) && (!filter->exists || estimate->mixed);
    uint64_t work = makes ? made_by(server, command, &args, &made) : 0;
    if (work) {
        estimate->work += work;
        join(filter, &made);
    }
    if (reserves)
        return;
    size_t items = items_of(server, command, &args);
    if (adds && filter->exists)
        estimate->work += add(filter, items, (unsigned)server_config(server)->cuckoo.max_expansions);
    else if (IS_ONE_OF(command, cmd_bf_exists, cmd_bf_mexists, cmd_bf_query, cmd_cf_exists, cmd_cf_mexists,
                       cmd_cf_count))
        estimate->work += ask(filter, items);
    else if (command->handler == cmd_bf_clear)
        estimate->work += clear(filter);
    else if (IS_ONE_OF(command, cmd_cf_del, cmd_cf_compact))
        estimate->work += compact(filter);
    else if (command->handler == cmd_bf_info && items > 0) /* bits may be counted; with more it is refused */
        estimate->work += least(times(256, filter->layers) + filter->bytes / 2048, WORK_INLINE);
    else if (command->flags & CMD_MODULE) /* a line, or numbers, for each layer */
        estimate->work += WORK_PAGE + 4 * (uint64_t)filter->layers;
}

/* A named filter has its own work; a pattern that of as many filters as may be asked on the loop. */
static void take_find(struct estimate *estimate, const struct command *command, const struct resp_command *cmd,
                      unsigned database)
{
    struct bf_args args = {cmd->argc, word_at, cmd, command->full_name};
    struct bf_find request;
    struct errbuf error;
    if (!bf_read_find(&args, &request, &error))
        return;
    for (size_t i = 0; i < request.names; i++) {
        struct slice name = bf_arg(&args, request.first_name + i);
        struct state *filter = glob_is_literal(name) ? filter_named(estimate, database, name) : NULL;
        if (filter)
            estimate->work += ask(filter, request.items);
        else if (!glob_is_literal(name))
            estimate->work += WORK_INLINE;
    }
}

/* The header of a dump in chunks makes all layers; the other chunks are slots, which become records. */
static uint64_t work_of_chunk(const struct resp_command *cmd)
{
    struct slice data = resp_arg(cmd, 3);
    struct cuckoo_head head;
    if (!cuckoo_head_get((const unsigned char *)data.ptr, data.len, &head))
        return data.len / 64;
    return WORK_LAYER * least(head.nlayers, BLOOM_MAX_LAYERS);
}

/* Whether other filters may have its names afterwards. */
static bool mixes(const struct command *command, const struct resp_command *cmd)
{
    int64_t time;
    if (IS_ONE_OF(command, cmd_expire, cmd_pexpire))
        return slice_to_int64(resp_arg(cmd, 2), &time) && time <= 0;
    return IS_ONE_OF(command, cmd_del, cmd_expireat, cmd_pexpireat, cmd_rename, cmd_renamenx, cmd_move);
}

static void take(void *ctx, const struct command *command, const struct resp_command *cmd, unsigned database)
{
    struct estimate *estimate = ctx;
    estimate->work += work_of_words(command, cmd, estimate->npatterns);
    if (estimate->work > WORK_TRANSACTION) /* it is refused: the rest need not be looked up */
        return;
    if (IS_ONE_OF(command, cmd_acl_list, cmd_acl_users))
        estimate->work += atomic_load(&estimate->ctx->server->memory.of_users) / 16;
    else if (command->handler == cmd_cf_loadchunk)
        estimate->work += work_of_chunk(cmd);
    else if (command->handler == cmd_bf_find)
        take_find(estimate, command, cmd, database);
    else if (mixes(command, cmd))
        mix(estimate, command, cmd, database);
    else if ((command->flags & CMD_MODULE) && command->first_key)
        take_filter(estimate, command, cmd, database);
}

/* ---- the whole ---- */

bool transaction_may_run(const struct command_ctx *ctx, struct errbuf *error)
{
    const struct acl_user *user = ctx->session->modes & MODE_RESTRICTED ? ctx->session->acl.user : NULL;
    struct estimate estimate = {.ctx = ctx, .npatterns = user ? user->npatterns : 0};
    transaction_preview(ctx->session, ctx->server, take, &estimate);
    for (struct named *named = estimate.newest, *older; named; named = older) {
        older = named->older;
        free(named);
    }
    hash_table_deinit(&estimate.table);
    if (estimate.failed)
        errbuf_set(error, "EXECABORT Transaction discarded: out of memory");
    else if (estimate.work > WORK_TRANSACTION)
        errbuf_set(error,
                   "EXECABORT Transaction discarded: all clients wait while it runs, and its words, times the layers "
                   "of these filters, are more than %d: split it, or send its commands without MULTI",
                   (int)WORK_TRANSACTION);
    else
        return true;
    return false;
}
