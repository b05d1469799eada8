#include "transaction_cost.h"

#include <stdlib.h>
#include <string.h>

#include "acl_user.h"
#include "bf_host.h"
#include "cf.h"
#include "clock.h"
#include "command.h"
#include "cost.h"
#include "cuckoo_dump.h"
#include "glob_match.h"
#include "handlers.h"
#include "hash_table.h"
#include "memory_use.h"
#include "registry_databases.h"
#include "server.h"
#include "sstables.h"
#include "transaction.h"
#include "registry_key.h"

/* A name in the transaction, and the possible state of its filter by now. */
struct named {
    struct hash_link link; /* by the key's hash, without the lowest bits, which are those of the database */
    struct named *older;
    struct slice name;
    unsigned database;
    struct cost_filter filter;
};

struct estimate {
    const struct command_ctx *ctx;
    size_t npatterns;
    struct hash_table table;
    struct named *newest;
    uint64_t cost;
    struct bloom_params made; /* the parameters of the filter that was made last */
    uint64_t cleared;         /* bytes that BF.CLEAR makes beside those of the old filters */
    size_t nclears;
    bool failed; /* no memory */
};

/* ---- names ---- */

static struct cost_filter look_up(const struct server *server, struct slice key, uint64_t hash)
{
    struct entry *entry = registry_find(server->registry, hash, key);
    if (!entry && server->sstables)
        entry = sstables_find(server->sstables, key);
    const struct bloom_filter *filter = entry ? entry_shape(entry) : NULL;
    return filter ? cost_filter_of(filter) : (struct cost_filter){0};
}

static struct named *find_named(const struct estimate *estimate, uint64_t hash, unsigned database, struct slice name)
{
    for (struct hash_link *link = hash_table_first(&estimate->table, hash); link; link = hash_table_next(link)) {
        struct named *named = HASH_OBJECT(link, struct named, link);
        if (named->database == database && slice_equal(named->name, name))
            return named;
    }
    return NULL;
}

/* NULL: there is no memory, or no filter can have the name. */
static struct cost_filter *filter_named(struct estimate *estimate, unsigned database, struct slice name)
{
    const struct server *server = estimate->ctx->server;
    char space[REGISTRY_MAX_NAME + 2 * DATABASE_PREFIX];
    struct named *named = estimate->newest;
    if (named && named->database == database && slice_equal(named->name, name)) /* as usual */
        return &named->filter;
    if (name.len > REGISTRY_MAX_NAME)
        return NULL;
    struct slice key = key_write(space, database, name);
    uint64_t hash = registry_hash(server->registry, key);
    named = find_named(estimate, hash >> 16, database, name);
    if (named)
        return &named->filter;
    named = malloc(sizeof(*named));
    if (named)
        *named = (struct named){.link.hash = hash >> 16, .older = estimate->newest, .name = name, .database = database};
    if (!named || hash_table_insert(&estimate->table, &named->link) != 0) {
        free(named);
        estimate->failed = true;
        return NULL;
    }
    estimate->newest = named;
    estimate->cost += COST_NAME;
    named->filter = look_up(server, key, hash);
    return &named->filter;
}

static void free_names(struct estimate *estimate)
{
    for (struct named *named = estimate->newest, *older; named; named = older) {
        older = named->older;
        free(named);
    }
    hash_table_deinit(&estimate->table);
}

/* ---- commands ---- */

static struct slice word_at(const void *cmd, size_t i)
{
    return resp_arg(cmd, i);
}

static bool adds_list(const struct command *command)
{
    return command->handler == cmd_cf_insert || command->handler == cmd_cf_insertnx;
}

static bool is_for_cuckoo(const struct command *command)
{
    return adds_list(command) || command->handler == cmd_cf_add || command->handler == cmd_cf_addnx ||
           command->handler == cmd_cf_reserve;
}

static bool cuckoo_made_by(const struct server *server, const struct command *command, const struct bf_args *args,
                           struct cost_filter *made_out)
{
    struct cuckoo_numbers defaults = cf_defaults_of(server), numbers = defaults;
    bool makes = server_config(server)->filters.auto_create;
    struct bloom_params params;
    struct bloom_shape shape;
    struct cf_insert insert;
    struct errbuf error;
    if (command->handler == cmd_cf_reserve) {
        makes = cf_read_reserve(args, &defaults, &numbers, &error);
    } else if (adds_list(command)) {
        makes = makes && cf_read_insert(args, &defaults, &insert, &error) && !insert.no_create;
        if (makes)
            numbers = insert.numbers;
    }
    makes = makes && cuckoo_plan(&numbers, &params, &shape, &error) == BLOOM_OK;
    if (makes)
        *made_out = cost_filter_cuckoo(&params, &shape);
    return makes;
}

/* The filter that the command makes if there is none; false: it makes none. */
static bool made_by(struct estimate *estimate, const struct command *command, const struct bf_args *args,
                    struct cost_filter *made_out)
{
    const struct server *server = estimate->ctx->server;
    struct bf_defaults defaults = bf_defaults_of(server);
    struct bloom_params params = defaults.params;
    bool makes = server_config(server)->filters.auto_create;
    struct bf_reserve reserve;
    struct bf_insert insert;
    struct errbuf error;
    if (is_for_cuckoo(command))
        return cuckoo_made_by(server, command, args, made_out);
    if (command->handler == cmd_bf_reserve) {
        makes = bf_read_reserve(args, &defaults, &reserve, &error);
        params = reserve.params;
    } else if (command->handler == cmd_bf_insert) {
        makes = bf_read_insert(args, &defaults, &insert, &error) && !insert.no_create && (makes || insert.sized);
        params = insert.params;
    }
    if (makes) {
        *made_out = cost_filter_new(&params);
        made_out->is_sized = params.capacity == estimate->made.capacity &&
                             params.error_rate == estimate->made.error_rate && params.window == estimate->made.window;
        estimate->made = params;
    }
    return makes;
}

static size_t items_of(const struct server *server, const struct command *command, const struct bf_args *args)
{
    struct cuckoo_numbers defaults = cf_defaults_of(server);
    struct cf_insert insert;
    struct errbuf error;
    if (adds_list(command))
        return cf_read_insert(args, &defaults, &insert, &error) ? args->argc - insert.first_item : 0;
    bool has_word = command->handler == cmd_bf_insert || command->handler == cmd_bf_query;
    size_t first = has_word ? bf_first_item(args) : 2;
    return first < args->argc ? args->argc - first : 0;
}

static void take_filter(struct estimate *estimate, const struct command *command, const struct resp_command *cmd,
                        unsigned database)
{
    struct bf_args args = {cmd->argc, word_at, cmd, command->full_name};
    enum cost_by by = cost_by(command);
    struct cost_filter made = {0};
    struct cost_filter *filter = filter_named(estimate, database, resp_arg(cmd, (size_t)command->first_key));
    if (!filter)
        return;
    bool makes = (by == COST_BY_MADE || by == COST_BY_ADDED) && (!filter->exists || filter->may_be_removed) &&
                 made_by(estimate, command, &args, &made);
    if (by == COST_BY_CLEARED && filter->exists) {
        estimate->cleared += filter->first.bytes;
        estimate->nclears++;
    }
    filter->most = (unsigned)server_config(estimate->ctx->server)->cuckoo.max_expansions;
    estimate->cost +=
        cost_of_filter(command, filter, items_of(estimate->ctx->server, command, &args), makes ? &made : NULL);
}

/* A named filter has its own cost; a pattern has that of as many filters as may be asked on the loop. */
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
        struct cost_filter *filter = glob_is_literal(name) ? filter_named(estimate, database, name) : NULL;
        if (filter)
            estimate->cost += cost_of_filter(command, filter, request.items, NULL);
        else if (!glob_is_literal(name))
            estimate->cost += COST_INLINE;
    }
}

/* The header of a dump in chunks makes all layers. */
static uint64_t cost_of_header(const struct resp_command *cmd)
{
    struct slice data = resp_arg(cmd, 3);
    struct cuckoo_head head;
    if (!cuckoo_head_get((const unsigned char *)data.ptr, data.len, &head))
        return 0;
    return COST_CUCKOO_LAYER * (head.nlayers < BLOOM_MAX_LAYERS ? head.nlayers : BLOOM_MAX_LAYERS);
}

/* DEL and UNLINK; EXPIRE and its like with a time that is over. */
static bool is_removal(const struct command *command, const struct resp_command *cmd)
{
    bool in_seconds = command->handler == cmd_expireat;
    int64_t time;
    if (command->handler == cmd_del)
        return true;
    if (command->handler == cmd_expire || command->handler == cmd_pexpire)
        return slice_to_int64(resp_arg(cmd, 2), &time) && time <= 0;
    if (!in_seconds && command->handler != cmd_pexpireat)
        return false;
    return slice_to_int64(resp_arg(cmd, 2), &time) && time / (in_seconds ? 1 : 1000) <= clock_unix_ms() / 1000 + 1;
}

static void take_removed(struct estimate *estimate, const struct command *command, const struct resp_command *cmd,
                         unsigned database)
{
    size_t last = command->last_key < 0 ? cmd->argc - 1 : (size_t)command->last_key;
    for (size_t i = (size_t)command->first_key; i <= last && i < cmd->argc; i++) {
        struct cost_filter *filter = filter_named(estimate, database, resp_arg(cmd, i));
        if (filter)
            filter->may_be_removed = true;
    }
}

/* RENAME, RENAMENX and MOVE. */
static void take_moved(struct estimate *estimate, unsigned from_database, struct slice from, unsigned to_database,
                       struct slice to)
{
    struct cost_filter *filter = filter_named(estimate, from_database, from);
    if (!filter)
        return;
    filter->may_be_removed = true;
    struct cost_filter moved = *filter; /* the next name may be the last one, whose place is another */
    filter = filter_named(estimate, to_database, to);
    if (filter)
        cost_filter_join(filter, &moved);
}

static void take(void *ctx, const struct command *command, const struct resp_command *cmd, unsigned database)
{
    struct estimate *estimate = ctx;
    const struct registry *registry = estimate->ctx->server->registry;
    int64_t number;
    estimate->cost += cost_of_words(command, cmd, estimate->npatterns);
    if (estimate->cost > COST_TRANSACTION) /* it is refused: the rest need not be looked up */
        return;
    if (cost_by(command) == COST_BY_USERS)
        estimate->cost += COST_USER_BYTE * atomic_load(&estimate->ctx->server->memory.of_users);
    else if (command->handler == cmd_cf_loadchunk)
        estimate->cost += cost_of_header(cmd);
    else if (command->handler == cmd_bf_find)
        take_find(estimate, command, cmd, database);
    else if (cost_by(command) != COST_BY_WORDS)
        take_filter(estimate, command, cmd, database);
    else if (is_removal(command, cmd))
        take_removed(estimate, command, cmd, database);
    else if (command->handler == cmd_rename || command->handler == cmd_renamenx)
        take_moved(estimate, database, resp_arg(cmd, 1), database, resp_arg(cmd, 2));
    else if (command->handler == cmd_move && slice_to_int64(resp_arg(cmd, 2), &number) && number >= 0 &&
             number < DATABASES_MAX)
        take_moved(estimate, database, resp_arg(cmd, 1), registry_database(registry, (unsigned)number),
                   resp_arg(cmd, 1));
}

/* ---- the whole ---- */

/* Filters that BF.CLEAR replaces are freed after EXEC. One BF.CLEAR may pass the limit, as outside of a transaction. */
static bool has_memory(const struct estimate *estimate)
{
    const struct server *server = estimate->ctx->server;
    uint64_t limit = server_config(server)->memory.maxmemory;
    bool alone = estimate->nclears <= 1 && memory_staying(server) == memory_limited(server);
    return limit == 0 || estimate->nclears == 0 || alone || memory_limited(server) + estimate->cleared <= limit;
}

bool transaction_may_run(const struct command_ctx *ctx, struct errbuf *error)
{
    const struct acl_user *user = ctx->session->modes & MODE_RESTRICTED ? ctx->session->acl.user : NULL;
    struct estimate estimate = {.ctx = ctx, .npatterns = user ? user->npatterns : 0};
    transaction_preview(ctx->session, ctx->server, take, &estimate);
    free_names(&estimate);
    if (estimate.failed)
        errbuf_set(error, "EXECABORT Transaction discarded: out of memory");
    else if (estimate.cost > COST_TRANSACTION)
        errbuf_set(error,
                   "EXECABORT Transaction discarded: all clients wait while it runs, and with these filters it would "
                   "take %llu ms or more, of at most %d: split it, or send its commands without MULTI",
                   (unsigned long long)((estimate.cost + 999999) / 1000000), (int)(COST_TRANSACTION / 1000000));
    else if (!has_memory(&estimate))
        errbuf_set(
            error,
            "EXECABORT Transaction discarded: its %zu BF.CLEAR need %llu additional bytes, more than 'maxmemory' "
            "leaves: send them without MULTI",
            estimate.nclears, (unsigned long long)estimate.cleared);
    else
        return true;
    return false;
}
