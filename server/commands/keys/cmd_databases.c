/* Commands on databases and on the keys of filters: SELECT, SWAPDB, RENAME, MOVE. Errors are Redis's, also those of its
 * cluster, which has database 0 only. */
#include <errno.h>

#include "command.h"
#include "handlers.h"
#include "host.h"
#include "registry_databases.h"
#include "server.h"
#include "sstable_reads.h"
#include "registry_key.h"

#define OUT_OF_RANGE "ERR DB index is out of range"

bool database_exists(const struct server *server, struct reply *reply, int64_t number)
{
    if (number >= 0 && number < (int64_t)server_config(server)->data.databases)
        return true;
    reply_error(reply, OUT_OF_RANGE);
    return false;
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
    int status = change_key(ctx, from, key_write(space, database, key_name(from)), true);
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
