/* The BF.* commands that do not go through the window. Replies and their texts as RedisBloom gives them (tests/golden/
 * corpus); where they differ on purpose, docs/COMPATIBILITY.md says why. */
#include "bf.h"
#include "command.h"
#include "handlers.h"

struct bf_call bf_call_of(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 1);
    return (struct bf_call){
        .server = ctx->server,
        .stats = ctx->stats,
        .reply = ctx->reply,
        .ring = ctx->ring,
        .ctx = ctx,
        .name = name,
        .name_hash = registry_hash(ctx->server->registry, name),
        .missing = MISSING_BY_SETTING,
        .no_touch = session_no_touch(ctx->session),
    };
}

/* ---- BF.RESERVE -------------------------------------------------------------------------------------------------- */

/* TTL seconds. */
static bool reserve_option(struct command_ctx *ctx, size_t *i, void *expires_ms)
{
    if (!slice_is(command_arg(ctx, *i), "TTL"))
        return false;
    if (*i + 1 == command_argc(ctx)) {
        reply_error(ctx->reply, "ERR TTL without seconds");
        return false;
    }
    return bf_read_ttl(ctx, command_arg(ctx, ++*i), expires_ms);
}

/* RedisBloom has an upper limit for the number of arguments, and its clients' tests know that. */
static bool too_many_args(const struct command_ctx *ctx)
{
    size_t most = 7;
    for (size_t i = 4; i < command_argc(ctx); i++)
        most += slice_is(command_arg(ctx, i), "TTL") ? 2 : 0;
    return command_argc(ctx) > most;
}

void cmd_bf_reserve(struct command_ctx *ctx)
{
    struct bloom_params params = {.expansion = (uint32_t)server_config(ctx->server)->bf_expansion_factor};
    int64_t capacity, expires_ms = 0;
    if (too_many_args(ctx)) {
        reply_wrong_arity(ctx);
        return;
    }
    if (!bf_read_rate(ctx, 2, &params.error_rate))
        return;
    if (!bf_read_capacity(ctx, 3, &capacity))
        return;
    if (!bf_read_scaling(ctx, 4, "BF.RESERVE takes EXPANSION n, NONSCALING and TTL seconds", &params, reserve_option,
                         &expires_ms))
        return;
    if (!bf_take_capacity(ctx, capacity, &params))
        return;

    struct bf_call call = bf_call_of(ctx);
    bool existed = registry_find(ctx->server->registry, call.name_hash, call.name) != NULL;
    if (!existed && !bf_create(&call, &params, expires_ms, &existed))
        return;
    if (existed)
        reply_error(ctx->reply, "ERR item exists");
    else
        reply_status(ctx->reply, "OK");
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* The items of a command: its arguments from one on. */
struct item_args {
    const struct command_ctx *ctx;
    size_t first;
};

static struct slice item_arg(const void *items, size_t i)
{
    const struct item_args *args = items;
    return command_arg(args->ctx, args->first + i);
}

static void query_items(struct command_ctx *ctx, size_t first)
{
    struct bf_call call = bf_call_of(ctx);
    bf_query_many(&call, command_argc(ctx) - first, item_arg, &(struct item_args){ctx, first});
}

static void add_items(struct command_ctx *ctx, struct bf_call *call, size_t first)
{
    bf_add_many(call, command_argc(ctx) - first, item_arg, &(struct item_args){ctx, first});
}

void cmd_bf_mexists(struct command_ctx *ctx)
{
    query_items(ctx, 2);
}

void cmd_bf_madd(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    add_items(ctx, &call, 2);
}

/* The single forms come here only when the window did not take them: it takes all that pass the checks of the
 * dispatcher, which these have passed, so this is the plain definition of what it does. */
void cmd_bf_exists(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    bf_query_one(&call, command_arg(ctx, 2));
}

void cmd_bf_add(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    bf_add_one(&call, command_arg(ctx, 2));
}

/* ---- BF.INSERT --------------------------------------------------------------------------------------------------- */

struct insert {
    struct bloom_params params;
    int64_t expires_ms; /* of a filter that this command creates; 0: never */
    bool fixed;
    bool no_create;
    bool sized;         /* the command itself says what a new filter is to be like */
    size_t first_item;
};

/* Reads one option that has a value. */
static const char *insert_value(struct insert *insert, struct slice option, struct slice value)
{
    int64_t number;
    if (slice_is(option, "CAPACITY")) {
        if (!slice_to_int64(value, &number) || number < 1)
            return "Bad capacity";
        insert->params.capacity = (uint64_t)number;
        insert->sized = true;
    } else if (slice_is(option, "ERROR")) {
        double rate;
        if (!slice_to_double(value, &rate) || !(rate > 0 && rate < 1))
            return "Bad error rate";
        insert->params.error_rate = rate;
        insert->sized = true;
    } else {
        if (!slice_to_int64(value, &number) || number < 0 || number > BLOOM_MAX_EXPANSION)
            return "Bad expansion";
        insert->params.expansion = (uint32_t)number;
    }
    return NULL;
}

static const char replied[] = ""; /* instead of an error that is still to be replied */

static const char *insert_options(struct command_ctx *ctx, struct insert *insert)
{
    static const char arity[] = "ERR wrong number of arguments for 'bf.insert' command";
    for (size_t i = 2; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        if (slice_is(word, "ITEMS")) {
            insert->first_item = i + 1;
            return i + 1 < command_argc(ctx) ? NULL : arity;
        }
        if (slice_is(word, "NOCREATE")) {
            insert->no_create = true;
        } else if (slice_is(word, "NONSCALING")) {
            insert->fixed = true;
        } else if (slice_is(word, "TTL")) {
            if (++i == command_argc(ctx))
                return arity;
            if (!bf_read_ttl(ctx, command_arg(ctx, i), &insert->expires_ms))
                return replied;
        } else if (slice_is(word, "CAPACITY") || slice_is(word, "ERROR") || slice_is(word, "EXPANSION")) {
            if (++i == command_argc(ctx))
                return arity;
            const char *error = insert_value(insert, word, command_arg(ctx, i));
            if (error)
                return error;
        } else {
            return "Unknown argument received";
        }
    }
    return arity;
}

void cmd_bf_insert(struct command_ctx *ctx)
{
    struct insert insert = {.params = bf_default_params(ctx->server)};
    const char *error = insert_options(ctx, &insert);
    if (insert.fixed)
        insert.params.expansion = 0;
    bool first_slice = !ctx->slice || ctx->slice->done == 0; /* later ones are in the middle of their reply */
    if (!error && first_slice && insert.params.capacity > bf_max_capacity(&insert.params))
        error = bf_max_capacity(&insert.params) ? "Bad capacity" : "Bad error rate";
    if (error) {
        if (error != replied)
            reply_error(ctx->reply, error);
        return;
    }
    struct bf_call call = bf_call_of(ctx);
    bool existed;
    call.entry = registry_find(ctx->server->registry, call.name_hash, call.name);
    if (!call.entry && first_slice) {
        if (insert.no_create || (!insert.sized && !server_config(ctx->server)->bf_auto_create)) {
            reply_error(ctx->reply, "ERR not found");
            return;
        }
        if (!bf_create(&call, &insert.params, insert.expires_ms, &existed))
            return;
    }
    add_items(ctx, &call, insert.first_item); /* to this filter, also when somebody deletes it now */
}

/* ---- BF.QUERY ---------------------------------------------------------------------------------------------------- */

/* BF.QUERY key [MISSING ERROR|NULL|ABSENT] ITEMS item [item ...]: ITEMS ends the options, so no item can be taken for
 * one. */
void cmd_bf_query(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    size_t i = 2;
    call.missing = MISSING_ERROR;
    for (; i < command_argc(ctx) && !slice_is(command_arg(ctx, i), "ITEMS"); i += 2) {
        if (!slice_is(command_arg(ctx, i), "MISSING") || i + 1 == command_argc(ctx)) {
            reply_error(ctx->reply, "ERR syntax error: BF.QUERY takes MISSING ERROR|NULL|ABSENT, then ITEMS");
            return;
        }
        struct slice word = command_arg(ctx, i + 1);
        if (slice_is(word, "ERROR")) {
            call.missing = MISSING_ERROR;
        } else if (slice_is(word, "NULL")) {
            call.missing = MISSING_NULL;
        } else if (slice_is(word, "ABSENT")) {
            call.missing = MISSING_ABSENT;
        } else {
            reply_error(ctx->reply, "ERR MISSING takes ERROR, NULL or ABSENT");
            return;
        }
    }
    if (i + 1 >= command_argc(ctx)) {
        reply_wrong_arity(ctx);
        return;
    }
    bf_query_many(&call, command_argc(ctx) - i - 1, item_arg, &(struct item_args){ctx, i + 1});
}
