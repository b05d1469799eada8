/* Connects the library bf/ to this daemon's arguments, defaults and replies. */
#include "bf_host.h"

#include <stdlib.h>
#include <string.h>

#include "bloom_keyring.h"
#include "bloom_window.h"
#include "clock.h"
#include "cuckoo_dump.h"
#include "host.h"
#include "registry.h"
#include "sstables.h"
#include "valkey_format.h"

static struct slice arg_at(const void *ctx, size_t i)
{
    return command_arg(ctx, i);
}

struct bf_args bf_args_of(const struct command_ctx *ctx)
{
    return (struct bf_args){command_argc(ctx), arg_at, ctx, ctx->command->full_name, bf_is_valkey(ctx->server)};
}

static struct slice job_arg_at(const void *ctx, size_t i)
{
    const struct job_args *args = ctx;
    return args->argv[i];
}

struct bf_args bf_args_of_job(const struct job_args *args, const char *name)
{
    return (struct bf_args){args->argc, job_arg_at, args, name};
}

const char *bf_type_name(struct entry *entry)
{
    if (!entry)
        return FILTER_TYPE_NAME;
    return entry_is_cuckoo(entry) ? CUCKOO_TYPE_NAME : entry_is_valkey(entry) ? VALKEY_TYPE_NAME : FILTER_TYPE_NAME;
}

/* The layout of new filters. */
static enum bloom_variant layout_of(const struct config_filters *filters)
{
    static const enum bloom_variant layouts[] = {BLOOM_NA, BLOOM_REDISBLOOM, BLOOM_VALKEY, BLOOM_BLOCKED};
    bool follows = filters->layout == BF_LAYOUT_NA && filters->compatibility == BF_CONTRACT_VALKEY;
    return follows ? BLOOM_VALKEY : layouts[filters->layout];
}

struct bf_defaults bf_defaults_of(const struct server *server)
{
    const struct config *config = server_config(server);
    struct bf_defaults defaults = {
        .params = {.capacity = (uint64_t)config->filters.initial_size,
                   .error_rate = config->filters.error_rate,
                   .expansion = (uint32_t)config->filters.expansion_factor},
        .keyed = config->filters.keyed,
        .key = bloom_keyring_first(server->pool),
        .now_ms = clock_unix_ms(),
        .tightening = config->filters.tightening_ratio,
        .fixed_seed = !config->filters.random_seed,
        .limit = (uint64_t)config->filters.max_filter_bytes,
    };
    bf_defaults_take(&defaults, layout_of(&config->filters));
    return defaults;
}

static void out_status(void *ctx, const char *text)
{
    reply_status(ctx, text);
}

static void out_error(void *ctx, const char *text)
{
    reply_error(ctx, text);
}

static void out_integer(void *ctx, int64_t value)
{
    reply_integer(ctx, value);
}

static void out_real(void *ctx, double value)
{
    reply_double(ctx, value);
}

static void out_boolean(void *ctx, bool value)
{
    reply_bool(ctx, value);
}

static void out_null(void *ctx)
{
    reply_null(ctx);
}

static void out_bytes(void *ctx, const void *bytes, size_t n)
{
    reply_bulk(ctx, bytes, n);
}

static void out_array(void *ctx, size_t n)
{
    reply_array(ctx, n);
}

static void out_map(void *ctx, size_t pairs)
{
    reply_map(ctx, pairs);
}

struct bf_out bf_out_of(struct reply *reply)
{
    static const struct bf_out_ops ops = {
        .status = out_status,
        .error = out_error,
        .integer = out_integer,
        .real = out_real,
        .boolean = out_boolean,
        .null = out_null,
        .bytes = out_bytes,
        .array = out_array,
        .map = out_map,
    };
    return (struct bf_out){&ops, reply, "maxmemory, bf-max-filter-bytes", reply->version >= 3};
}

/* ---- filters of SSTables ---- */

#define SHOWN 128 /* bytes of a name that an error repeats */

struct reading {
    size_t len;
    char name[];
};

static void read_file(struct command_job *job)
{
    const struct reading *reading = job->data;
    sstables_read(job->server->sstables, (struct slice){reading->name, reading->len});
}

void sstable_read_first(struct command_ctx *ctx, struct reply *reply, struct slice name)
{
    if (!ctx) { /* in the pipeline, which the name entered before the file was there */
        reply_error(reply, "TRYAGAIN the SSTable's filter has not been read yet");
        return;
    }
    struct reading *reading = malloc(sizeof(*reading) + name.len);
    if (!reading) {
        reply_error(reply, "ERR out of memory");
        return;
    }
    reading->len = name.len;
    if (name.len)
        memcpy(reading->name, name.ptr, name.len);
    (void)command_do_first(ctx, read_file, reading);
}

bool sstable_is_hidden_by(const struct server *server, struct slice key)
{
    return server->sstables && !registry_lookup(server->registry, key) && sstables_find(server->sstables, key);
}

bool sstable_is_changed(const struct server *server, const struct command *command, const struct resp_command *args,
                        struct slice *name_out)
{
    if (!server->sstables || !(command->flags & CMD_WRITE))
        return false;
    struct command_keys keys = command_keys(command, args->argc);
    for (size_t i = keys.first; i < keys.end; i += keys.step) {
        *name_out = resp_arg(args, i);
        if (sstable_is_hidden_by(server, *name_out))
            return true;
    }
    return false;
}

bool sstable_has_no_dump(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 1);
    if (!sstable_is_hidden_by(ctx->server, name))
        return false;
    reply_errorf(ctx->reply,
                 "ERR '%.*s' is the filter of an SSTable, which has no dump: import its file with "
                 "BF.IMPORT",
                 (int)(name.len < SHOWN ? name.len : SHOWN), name.ptr);
    return true;
}

void reply_read_only(struct reply *reply, struct slice name)
{
    reply_errorf(reply, "READONLY '%.*s' is the filter of an SSTable, which is read-only",
                 (int)(name.len < SHOWN ? name.len : SHOWN), name.ptr);
}

/* ---- dead parts of windows ---- */

static int clean(void *object)
{
    struct entry *entry = object;
    if (entry_filter(entry))
        bloom_window_clean(entry_filter(entry));
    entry_unpin(entry);
    return 0;
}

void forget_tidy(struct server *server, struct slice name, struct bloom_filter *filter)
{
    if (!bloom_window_wants_clean(filter))
        return;
    struct entry *entry = registry_pin(server->registry, name);
    if (entry && entry_filter(entry) == filter) {
        reclaimer_defer(server->reclaimer, clean, entry, 0);
        return;
    }
    bloom_window_clean_later(filter); /* it has been deleted, or has another name, under which it will be used */
    if (entry)
        entry_unpin(entry);
}
