/* The BF.* commands that do not go through the window. Replies and their texts as RedisBloom gives them (tests/golden/
 * corpus); where they differ on purpose, docs/COMPATIBILITY.md says why. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bf.h"
#include "command.h"
#include "handlers.h"

static struct bf_call call_of(const struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 1);
    return (struct bf_call){
        .server = ctx->server,
        .stats = ctx->stats,
        .reply = ctx->reply,
        .name = name,
        .name_hash = registry_hash(ctx->server->registry, name),
    };
}

/* ---- options --------------------------------------------------------------------------------------------------------- */

/* A floating-point number that is the whole argument; hexadecimal, infinite and denormal ones too, but no NaN, and none
 * that is too small or too large to be told from 0 or infinity. */
static bool slice_to_double(struct slice arg, double *value_out)
{
    char text[128], *end;
    if (arg.len == 0 || arg.len >= sizeof(text) || strchr(" \t\n\v\f\r", arg.ptr[0]) || memchr(arg.ptr, '\0', arg.len))
        return false;
    memcpy(text, arg.ptr, arg.len);
    text[arg.len] = '\0';
    errno = 0;
    double value = strtod(text, &end);
    if (*end != '\0' || isnan(value) || (errno == ERANGE && (value == 0 || isinf(value))))
        return false;
    *value_out = value;
    return true;
}

/* The largest capacity that a first layer can have. */
static uint64_t max_capacity(const struct bloom_params *params)
{
    return bloom_size_max_items(params->expansion ? params->error_rate / 2 : params->error_rate);
}

/* ---- BF.RESERVE ------------------------------------------------------------------------------------------------------ */

/* Reads EXPANSION n and NONSCALING from argument 4 on. */
static bool reserve_options(struct command_ctx *ctx, struct bloom_params *params)
{
    bool fixed = false, expansion_given = false;
    for (size_t i = 4; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        if (slice_is(word, "NONSCALING")) {
            fixed = true;
        } else if (slice_is(word, "EXPANSION")) {
            int64_t expansion;
            if (++i == command_argc(ctx)) {
                reply_error(ctx->reply, "ERR no expansion");
                return false;
            }
            if (!slice_to_int64(command_arg(ctx, i), &expansion)) {
                reply_error(ctx->reply, "ERR bad expansion");
                return false;
            }
            if (expansion < 0 || expansion > BLOOM_MAX_EXPANSION) {
                reply_errorf(ctx->reply, "ERR expansion must be in the range [0, %d]", BLOOM_MAX_EXPANSION);
                return false;
            }
            params->expansion = (uint32_t)expansion;
            expansion_given = true;
        } else {
            reply_errorf(ctx->reply, "ERR unknown option '%.*s': BF.RESERVE takes EXPANSION n and NONSCALING",
                         (int)(word.len < 64 ? word.len : 64), word.ptr);
            return false;
        }
    }
    if (fixed && expansion_given && params->expansion) {
        reply_error(ctx->reply, "Nonscaling filters cannot expand");
        return false;
    }
    if (fixed)
        params->expansion = 0;
    return true;
}

void cmd_bf_reserve(struct command_ctx *ctx)
{
    struct bloom_params params = {.expansion = (uint32_t)server_config(ctx->server)->bf_expansion_factor};
    int64_t capacity;
    if (command_argc(ctx) > 7) {
        reply_error(ctx->reply, "ERR wrong number of arguments for 'bf.reserve' command");
        return;
    }
    if (!slice_to_double(command_arg(ctx, 2), &params.error_rate)) {
        reply_error(ctx->reply, "ERR bad error rate");
        return;
    }
    if (!(params.error_rate > 0 && params.error_rate < 1)) {
        reply_error(ctx->reply, "ERR error rate must be in the range (0.000000, 1.000000)");
        return;
    }
    if (!slice_to_int64(command_arg(ctx, 3), &capacity)) {
        reply_error(ctx->reply, "ERR bad capacity");
        return;
    }
    if (!reserve_options(ctx, &params))
        return;
    if (capacity < 1) {
        reply_errorf(ctx->reply, "ERR capacity must be in the range [1, %llu]", (unsigned long long)max_capacity(&params));
        return;
    }
    params.capacity = (uint64_t)capacity;

    struct bf_call call = call_of(ctx);
    bool existed = registry_find(ctx->server->registry, call.name_hash, call.name) != NULL;
    if (!existed && !bf_create(&call, &params, &existed))
        return;
    if (existed)
        reply_error(ctx->reply, "ERR item exists");
    else
        reply_status(ctx->reply, "OK");
}

/* ---- items ----------------------------------------------------------------------------------------------------------- */

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
    struct bf_call call = call_of(ctx);
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
    struct bf_call call = call_of(ctx);
    add_items(ctx, &call, 2);
}

/* The single forms come here only when the window did not take them: it takes all that pass the checks of the dispatcher,
 * which these have passed, so this is the plain definition of what it does. */
void cmd_bf_exists(struct command_ctx *ctx)
{
    struct bf_call call = call_of(ctx);
    bf_finish_query(&call, command_arg(ctx, 2), NULL);
}

void cmd_bf_add(struct command_ctx *ctx)
{
    struct bf_call call = call_of(ctx);
    bf_finish_add(&call, command_arg(ctx, 2), NULL);
}

/* ---- BF.INSERT ------------------------------------------------------------------------------------------------------- */

struct insert {
    struct bloom_params params;
    bool fixed;
    bool no_create;
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
    } else if (slice_is(option, "ERROR")) {
        double rate;
        if (!slice_to_double(value, &rate) || !(rate > 0 && rate < 1))
            return "Bad error rate";
        insert->params.error_rate = rate;
    } else {
        if (!slice_to_int64(value, &number) || number < 0 || number > BLOOM_MAX_EXPANSION)
            return "Bad expansion";
        insert->params.expansion = (uint32_t)number;
    }
    return NULL;
}

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
    if (!error && insert.params.capacity > max_capacity(&insert.params))
        error = max_capacity(&insert.params) ? "Bad capacity" : "Bad error rate";
    if (error) {
        reply_error(ctx->reply, error);
        return;
    }
    struct bf_call call = call_of(ctx);
    bool existed;
    call.entry = registry_find(ctx->server->registry, call.name_hash, call.name);
    if (!call.entry) {
        if (insert.no_create) {
            reply_error(ctx->reply, "ERR not found");
            return;
        }
        if (!bf_create(&call, &insert.params, &existed))
            return;
    }
    add_items(ctx, &call, insert.first_item); /* to this filter, also when somebody deletes it now */
}

/* ---- BF.INFO, BF.CARD ------------------------------------------------------------------------------------------------ */

struct info_field {
    const char *option;
    const char *name;
    uint64_t (*value)(const struct bloom_filter *filter);
};

static uint64_t info_filters(const struct bloom_filter *filter)
{
    return bloom_filter_nlayers(filter);
}

static uint64_t info_expansion(const struct bloom_filter *filter)
{
    return bloom_filter_params(filter)->expansion;
}

static const struct info_field info_fields[] = {
    {"CAPACITY", "Capacity", bloom_filter_capacity},
    {"SIZE", "Size", bloom_filter_memory},
    {"FILTERS", "Number of filters", info_filters},
    {"ITEMS", "Number of items inserted", bloom_filter_items},
    {"EXPANSION", "Expansion rate", info_expansion},
};
#define INFO_FIELDS (sizeof(info_fields) / sizeof(info_fields[0]))

static void reply_info_value(struct command_ctx *ctx, const struct info_field *field, const struct bloom_filter *filter)
{
    if (field->value == info_expansion && info_expansion(filter) == 0)
        reply_null(ctx->reply); /* a fixed filter has none */
    else
        reply_integer(ctx->reply, (int64_t)field->value(filter));
}

/* RESP2 gives one field alone without its name, RESP3 as a map of one. */
static void reply_info_field(struct command_ctx *ctx, const struct info_field *field, const struct bloom_filter *filter)
{
    if (ctx->reply->version >= 3) {
        reply_map(ctx->reply, 1);
        reply_status(ctx->reply, field->name);
    } else {
        reply_array(ctx->reply, 1);
    }
    reply_info_value(ctx, field, filter);
}

void cmd_bf_info(struct command_ctx *ctx)
{
    if (command_argc(ctx) > 3) {
        reply_error(ctx->reply, "ERR wrong number of arguments for 'bf.info' command");
        return;
    }
    struct bf_call call = call_of(ctx);
    bool replied;
    struct bloom_filter *filter = bf_filter(&call, &replied);
    if (!filter) {
        if (!replied)
            reply_error(ctx->reply, "ERR not found");
        return;
    }
    if (command_argc(ctx) == 3) {
        for (size_t i = 0; i < INFO_FIELDS; i++) {
            if (slice_is(command_arg(ctx, 2), info_fields[i].option)) {
                reply_info_field(ctx, &info_fields[i], filter);
                return;
            }
        }
        reply_error(ctx->reply, "Invalid information value");
        return;
    }
    reply_map(ctx->reply, INFO_FIELDS);
    for (size_t i = 0; i < INFO_FIELDS; i++) {
        reply_status(ctx->reply, info_fields[i].name);
        reply_info_value(ctx, &info_fields[i], filter);
    }
}

void cmd_bf_card(struct command_ctx *ctx)
{
    struct bf_call call = call_of(ctx);
    bool replied;
    struct bloom_filter *filter = bf_filter(&call, &replied);
    if (!replied)
        reply_integer(ctx->reply, filter ? (int64_t)bloom_filter_items(filter) : 0);
}
