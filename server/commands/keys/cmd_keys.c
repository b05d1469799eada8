/* Commands on names: those that Redis has for keys of any type, times to live, and databases. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "all_names.h"
#include "bf_host.h"
#include "clock.h"
#include "command.h"
#include "handlers.h"
#include "host.h"
#include "registry_key.h"
#include "server.h"
#include "sstables.h"

/* The keys given as arguments from 1 on, for commands that count something over them. */
static void count_keys(struct command_ctx *ctx, bool (*counts)(struct command_ctx *ctx, struct slice name))
{
    size_t first, names = command_slice(ctx, command_argc(ctx) - 1, &first);
    int64_t n = ctx->slice ? ctx->slice->count : 0;
    for (size_t i = 0; i < names; i++)
        n += counts(ctx, command_arg(ctx, 1 + first + i));
    if (ctx->slice && ctx->later)
        ctx->slice->count = n;
    else
        reply_integer(ctx->reply, n);
}

static bool is_there(struct command_ctx *ctx, struct slice name)
{
    return registry_lookup(ctx->server->registry, name) || sstables_find(ctx->server->sstables, name);
}

static bool delete_one(struct command_ctx *ctx, struct slice name)
{
    return registry_delete(ctx->server->registry, name) == REGISTRY_OK;
}

void cmd_exists(struct command_ctx *ctx)
{
    count_keys(ctx, is_there);
}

static bool touch_one(struct command_ctx *ctx, struct slice name)
{
    struct entry *entry = registry_lookup(ctx->server->registry, name);
    if (entry)
        entry_note_use(entry, atomic_load_explicit(&ctx->server->memory.use_stamp, memory_order_relaxed));
    return entry != NULL;
}

void cmd_touch(struct command_ctx *ctx)
{
    count_keys(ctx, touch_one);
}

/* UNLINK, too: the memory is given back by the reclaimer's thread in any case. */
void cmd_del(struct command_ctx *ctx)
{
    count_keys(ctx, delete_one);
}

void cmd_type(struct command_ctx *ctx)
{
    struct entry *entry = registry_lookup(ctx->server->registry, command_arg(ctx, 1));
    reply_status(ctx->reply, entry || is_there(ctx, command_arg(ctx, 1)) ? bf_type_name(entry) : "none");
}

#define DBSIZE_REMOVES 64

/* Expired filters are counted until they are removed. Unless many expired at the same time, none is left here. */
void cmd_dbsize(struct command_ctx *ctx)
{
    const struct server *server = ctx->server;
    registry_expire_due(server->registry, DBSIZE_REMOVES, NULL);
    reply_integer(ctx->reply, (int64_t)all_names_count(server->registry, server->sstables, ctx->database));
}

/* ---- FLUSHALL, FLUSHDB ---- */

static void flushed(struct command_job *job, int status)
{
    if (status != 0)
        reply_error(&job->reply, "ERR out of memory");
    else
        reply_status(&job->reply, "OK");
}

static void flush_all(struct command_job *job)
{
    size_t removed;
    flushed(job, registry_clear(job->server->registry, &removed));
}

static void flush_one(struct command_job *job)
{
    size_t removed;
    flushed(job, registry_database_clear(job->server->registry, job->database, &removed));
}

static void flush(struct command_ctx *ctx, void (*run)(struct command_job *job))
{
    struct slice mode = command_argc(ctx) > 1 ? command_arg(ctx, 1) : (struct slice){"SYNC", 4};
    if (command_argc(ctx) > 2 || (!slice_is(mode, "SYNC") && !slice_is(mode, "ASYNC"))) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    command_defer(ctx, run, NULL);
}

void cmd_flushall(struct command_ctx *ctx)
{
    flush(ctx, flush_all);
}

void cmd_flushdb(struct command_ctx *ctx)
{
    flush(ctx, flush_one);
}

/* ---- OBJECT, MEMORY USAGE ---- */

/* Whether the filter exists; false after a null reply. */
static bool object_is_there(struct command_ctx *ctx)
{
    bool there = registry_lookup(ctx->server->registry, command_arg(ctx, 2)) != NULL;
    if (!there)
        reply_null(ctx->reply);
    return there;
}

void cmd_object_encoding(struct command_ctx *ctx)
{
    if (object_is_there(ctx))
        reply_bulk(ctx->reply, "raw", 3);
}

void cmd_object_refcount(struct command_ctx *ctx)
{
    if (object_is_there(ctx))
        reply_integer(ctx->reply, 1);
}

/* In steps of 65 s, as time of use is noted. */
void cmd_object_idletime(struct command_ctx *ctx)
{
    struct entry *entry = registry_lookup(ctx->server->registry, command_arg(ctx, 2));
    if (entry)
        reply_integer(ctx->reply, entry_idle_ms(entry, clock_ms()) / 1000);
    else
        reply_null(ctx->reply);
}

/* Redis replies this under every policy of maxmemory but its LFU ones, which do not exist here. */
void cmd_object_freq(struct command_ctx *ctx)
{
    if (object_is_there(ctx))
        reply_error(ctx->reply,
                    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that "
                    "when switching between policies at runtime LRU and LFU data will take some time to adjust.");
}

void cmd_memory_usage(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 2);
    int64_t samples;

    for (size_t i = 3; i < command_argc(ctx); i += 2) { /* accepted without effect: no samples are taken */
        if (!slice_is(command_arg(ctx, i), "SAMPLES") || i + 1 == command_argc(ctx)) {
            reply_error(ctx->reply, "ERR syntax error");
            return;
        }
        if (!slice_to_int64(command_arg(ctx, i + 1), &samples)) {
            reply_error(ctx->reply, "ERR value is not an integer or out of range");
            return;
        }
        if (samples < 0) {
            reply_error(ctx->reply, "ERR syntax error");
            return;
        }
    }
    struct entry *entry = registry_lookup(ctx->server->registry, name);
    if (entry == NULL) {
        reply_null(ctx->reply);
        return;
    }
    const struct bloom_filter *filter = entry_shape(entry);
    uint64_t bytes = sizeof(*entry) + ((name.len + 7) & ~(uint64_t)7) + sizeof(uint64_t) +
                     REGISTRY_NAME_BYTES; /* its slot in the table and its node in the index */
    reply_integer(ctx->reply, (int64_t)(bytes + (filter == NULL ? 0 : bloom_filter_memory(filter))));
}

/* ---- setting a time ---- */

static bool read_conditions(struct command_ctx *ctx, unsigned *conditions_out)
{
    unsigned conditions = 0;
    for (size_t i = 3; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        if (slice_is(word, "NX")) {
            conditions |= REGISTRY_EXPIRE_NX;
        } else if (slice_is(word, "XX")) {
            conditions |= REGISTRY_EXPIRE_XX;
        } else if (slice_is(word, "GT")) {
            conditions |= REGISTRY_EXPIRE_GT;
        } else if (slice_is(word, "LT")) {
            conditions |= REGISTRY_EXPIRE_LT;
        } else {
            return reply_errorf(ctx->reply, "ERR Unsupported option %.*s", slice_shown(word), word.ptr);
        }
    }
    if ((conditions & REGISTRY_EXPIRE_NX) && conditions != REGISTRY_EXPIRE_NX)
        return reply_error(ctx->reply, "ERR NX and XX, GT or LT options at the same time are not compatible");
    if ((conditions & REGISTRY_EXPIRE_GT) && (conditions & REGISTRY_EXPIRE_LT))
        return reply_error(ctx->reply, "ERR GT and LT options at the same time are not compatible");
    *conditions_out = conditions;
    return true;
}

/* The time in `value`, times `unit_ms` and counted from `base_ms`. false: beyond what 64 bits hold. */
static bool to_time(int64_t value, int64_t unit_ms, int64_t base_ms, int64_t *expires_ms_out)
{
    if (value > INT64_MAX / unit_ms || value < INT64_MIN / unit_ms)
        return false;
    value *= unit_ms;
    if (value > INT64_MAX - base_ms)
        return false;
    *expires_ms_out = value + base_ms;
    return true;
}

static void expire(struct command_ctx *ctx, int64_t unit_ms, int64_t base_ms)
{
    unsigned conditions = 0;
    int64_t value, expires_ms;
    if (!read_conditions(ctx, &conditions))
        return;
    if (!slice_to_int64(command_arg(ctx, 2), &value)) {
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
        return;
    }
    if (!to_time(value, unit_ms, base_ms, &expires_ms)) {
        reply_errorf(ctx->reply, "ERR invalid expire time in '%s' command", ctx->command->name);
        return;
    }
    if (base_ms != 0 && value > 0)
        conditions |= REGISTRY_EXPIRE_LATER;
    int status = registry_expire(ctx->server->registry, command_arg(ctx, 1), expires_ms, conditions);
    if (status == -ENOMEM)
        reply_error(ctx->reply, "ERR out of memory");
    else if (status == REGISTRY_LIMIT)
        reply_error(ctx->reply, COMMAND_OOM);
    else
        reply_integer(ctx->reply, status == REGISTRY_OK);
}

void cmd_expire(struct command_ctx *ctx)
{
    expire(ctx, 1000, clock_unix_ms());
}

void cmd_pexpire(struct command_ctx *ctx)
{
    expire(ctx, 1, clock_unix_ms());
}

void cmd_expireat(struct command_ctx *ctx)
{
    expire(ctx, 1000, 0);
}

void cmd_pexpireat(struct command_ctx *ctx)
{
    expire(ctx, 1, 0);
}

void cmd_persist(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, registry_persist(ctx->server->registry, command_arg(ctx, 1)) == REGISTRY_OK);
}

/* ---- asking for it ---- */

/* The nearest second, as Redis rounds. */
static int64_t to_seconds(int64_t ms)
{
    return ms / 1000 + (ms % 1000 >= 500);
}

/* TTL, PTTL, EXPIRETIME, PEXPIRETIME: -2 without a filter, -1 if it never expires. */
void cmd_ttl(struct command_ctx *ctx)
{
    bool milliseconds = ctx->command->name[0] == 'p', absolute = strstr(ctx->command->name, "time");
    struct slice name = command_arg(ctx, 1);
    int64_t expires_ms, base_ms = absolute ? 0 : clock_unix_ms();
    if (!registry_find_expiry(ctx->server->registry, name, &expires_ms)) {
        reply_integer(ctx->reply, sstables_find(ctx->server->sstables, name) ? -1 : -2);
        return;
    }
    if (expires_ms == 0) {
        reply_integer(ctx->reply, -1);
        return;
    }
    int64_t ms = expires_ms > base_ms ? expires_ms - base_ms : 0;
    reply_integer(ctx->reply, milliseconds ? ms : to_seconds(ms));
}

#define OUT_OF_RANGE "ERR DB index is out of range"

bool database_exists(const struct server *server, struct reply *reply, int64_t number)
{
    if (number >= 0 && number < (int64_t)server_config(server)->data.databases)
        return true;
    return reply_error(reply, OUT_OF_RANGE);
}

/* Whether a cluster refuses the command; true after an error reply. */
static bool refused_by_cluster(struct command_ctx *ctx, const char *name)
{
    if (!server_config(ctx->server)->cluster.emulation)
        return false;
    reply_errorf(ctx->reply, "ERR %s is not allowed in cluster mode", name);
    return true;
}

void cmd_select(struct command_ctx *ctx)
{
    int64_t number;
    if (!read_database(ctx->reply, command_arg(ctx, 1), NULL, &number))
        return;
    if ((number != 0 && refused_by_cluster(ctx, "SELECT")) || !database_exists(ctx->server, ctx->reply, number))
        return;
    atomic_store_explicit(&ctx->session->db, (unsigned)number, memory_order_relaxed);
    reply_status(ctx->reply, "OK");
}

/* ---- RENAME, RENAMENX, MOVE: another key for a filter ---- */

/* Renames the key `from` to `to`. Returns the status of registry_rename(), REGISTRY_NOT_FOUND if there is no filter;
 * after an error reply in all cases but that, REGISTRY_OK and REGISTRY_EXISTS. */
static int change_key(struct command_ctx *ctx, struct slice from, struct slice to, bool only_new)
{
    struct registry *registry = ctx->server->registry;
    struct errbuf err = {""};
    struct entry *entry = registry_lookup(registry, from);
    if (!entry)
        return REGISTRY_NOT_FOUND;
    int status = REGISTRY_REFUSED;
    if (entry_quarantine_reason(entry)) {
        errbuf_set(&err, "the filter could not be loaded and is quarantined: %s", entry_quarantine_reason(entry));
    } else if (sstable_is_hidden_by(ctx->server, to)) {
        reply_read_only(ctx->reply, key_name(to));
        return status;
    } else {
        status = registry_rename(registry, from, to, only_new, &err);
    }
    if (status == REGISTRY_REFUSED)
        reply_errorf(ctx->reply, "ERR %s", err.text);
    else if (status == REGISTRY_LIMIT)
        reply_error(ctx->reply, COMMAND_OOM);
    else if (status == -ENOMEM)
        reply_error(ctx->reply, "ERR out of memory");
    return status;
}

void cmd_rename(struct command_ctx *ctx)
{
    int status = change_key(ctx, command_arg(ctx, 1), command_arg(ctx, 2), false);
    if (status == REGISTRY_NOT_FOUND)
        reply_error(ctx->reply, "ERR no such key");
    else if (status == REGISTRY_OK)
        reply_status(ctx->reply, "OK");
}

void cmd_renamenx(struct command_ctx *ctx)
{
    int status = change_key(ctx, command_arg(ctx, 1), command_arg(ctx, 2), true);
    if (status == REGISTRY_NOT_FOUND)
        reply_error(ctx->reply, "ERR no such key");
    else if (status == REGISTRY_OK || status == REGISTRY_EXISTS)
        reply_integer(ctx->reply, status == REGISTRY_OK);
}

void cmd_move(struct command_ctx *ctx)
{
    char space[REGISTRY_MAX_NAME + 2 * DATABASE_PREFIX];
    struct slice from = command_arg(ctx, 1);
    int64_t number;
    if (refused_by_cluster(ctx, "MOVE") || !read_database(ctx->reply, command_arg(ctx, 2), NULL, &number) ||
        !database_exists(ctx->server, ctx->reply, number))
        return;
    unsigned database = registry_database(ctx->server->registry, (unsigned)number);
    if (database == ctx->database) {
        reply_error(ctx->reply, "ERR source and destination objects are the same");
        return;
    }
    struct slice name = key_name(from), to = from; /* a name that no filter has is refused as it is */
    if (name.len <= REGISTRY_MAX_NAME)
        to = key_write(space, database, name);
    int status = change_key(ctx, from, to, true);
    if (status == REGISTRY_OK || status == REGISTRY_NOT_FOUND || status == REGISTRY_EXISTS)
        reply_integer(ctx->reply, status == REGISTRY_OK);
}

/* ---- SWAPDB ---- */

/* Runs while all other workers stand still, so no command sees half of it. In a transaction they already do. */
void cmd_swapdb(struct command_ctx *ctx)
{
    int64_t first, second;
    if (refused_by_cluster(ctx, "SWAPDB") ||
        !read_database(ctx->reply, command_arg(ctx, 1), "ERR invalid first DB index", &first) ||
        !read_database(ctx->reply, command_arg(ctx, 2), "ERR invalid second DB index", &second) ||
        !database_exists(ctx->server, ctx->reply, first) || !database_exists(ctx->server, ctx->reply, second))
        return;
    if (first != second && !command_is_alone(ctx)) {
        command_wait_to_be_alone(ctx);
        return;
    }
    if (first != second)
        registry_swap(ctx->server->registry, (unsigned)first, (unsigned)second);
    reply_status(ctx->reply, "OK");
}
