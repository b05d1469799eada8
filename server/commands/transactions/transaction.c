#include "transaction.h"

#include <stdlib.h>
#include <string.h>

#include "acl_user.h"
#include "bf.h"
#include "bloom_keyring.h"
#include "command.h"
#include "database.h"
#include "handlers.h"
#include "host.h"
#include "journal.h"
#include "registry.h"
#include "server.h"
#include "registry_key.h"
#include "work.h"

struct watched {
    struct watched *next;
    struct registry_version version;
    unsigned db; /* the client's number: SWAPDB gives it other filters */
    size_t len;
    char name[];
};

struct queued {
    const struct command *command;
    size_t base;  /* in the transaction's bytes */
    size_t first; /* of its spans */
    size_t argc;
};

/* The queue is three arrays, so that a long one costs few allocations: the commands, their spans, their bytes. */
struct transaction {
    struct queued *commands;
    size_t ncommands, commands_size;
    struct resp_span *spans;
    size_t nspans, spans_size;
    struct buf bytes;
    uint32_t flags; /* of all commands, ored */
    uint64_t work;  /* of the words of all commands */
    bool tainted;
    struct watched *watched;
    size_t watched_bytes;
};

static struct transaction *begin(struct session *session)
{
    if (!session->multi.transaction) {
        session->multi.transaction = calloc(1, sizeof(*session->multi.transaction));
        if (session->multi.transaction)
            buf_init(&session->multi.transaction->bytes, SIZE_MAX);
    }
    return session->multi.transaction;
}

static size_t memory_of(const struct transaction *tx)
{
    return sizeof(*tx) + tx->commands_size * sizeof(*tx->commands) + tx->spans_size * sizeof(*tx->spans) +
           tx->bytes.size + tx->watched_bytes;
}

static void unwatch(struct session *session)
{
    struct transaction *tx = session->multi.transaction;
    while (tx && tx->watched) {
        struct watched *next = tx->watched->next;
        free(tx->watched);
        tx->watched = next;
    }
    if (tx) {
        tx->watched_bytes = 0;
        atomic_store_explicit(&session->multi.bytes, memory_of(tx), memory_order_relaxed);
    }
    atomic_store_explicit(&session->multi.watched, 0, memory_order_relaxed);
}

void transaction_end(struct session *session)
{
    struct transaction *tx = session->multi.transaction;
    session->modes &= ~(unsigned)MODE_IN_MULTI;
    if (!tx)
        return;
    unwatch(session);
    free(tx->commands);
    free(tx->spans);
    buf_deinit(&tx->bytes);
    free(tx);
    session->multi.transaction = NULL;
    atomic_store_explicit(&session->multi.queued, -1, memory_order_relaxed);
    atomic_store_explicit(&session->multi.bytes, 0, memory_order_relaxed);
}

void transaction_taint(struct session *session)
{
    if (session->modes & MODE_IN_MULTI)
        session->multi.transaction->tainted = true;
}

uint32_t transaction_flags(const struct session *session)
{
    return session->modes & MODE_IN_MULTI ? session->multi.transaction->flags : 0;
}

/* ---- the queue ---- */

bool transaction_takes(const struct session *session, const struct command *command)
{
    return (session->modes & MODE_IN_MULTI) && command->handler != cmd_multi && command->handler != cmd_exec &&
           command->handler != cmd_discard && command->handler != cmd_watch && command->handler != cmd_quit &&
           command->handler != cmd_reset;
}

/* Makes room for `n` more elements of an array. */
static bool make_room(void **items, size_t *size, size_t used, size_t n, size_t each)
{
    if (n <= *size - used)
        return true;
    size_t want = *size ? *size * 2 : 16;
    if (want < used + n)
        want = used + n;
    void *larger = realloc(*items, want * each);
    if (!larger)
        return false;
    *items = larger;
    *size = want;
    return true;
}

static uint64_t work_of(const struct session *session, const struct command *command, const struct resp_command *cmd)
{
    return work_of_words(command, cmd, session->modes & MODE_RESTRICTED ? session->acl.user->npatterns : 0);
}

bool transaction_has_room(const struct session *session, const struct command *command, const struct resp_command *cmd)
{
    return session->multi.transaction->work + work_of(session, command, cmd) <= WORK_TRANSACTION;
}

static bool append(struct transaction *tx, const struct command *command, const struct resp_command *cmd)
{
    size_t len = command_bytes(cmd);
    char *room = buf_reserve(&tx->bytes, len);
    if (!room || !make_room((void **)&tx->commands, &tx->commands_size, tx->ncommands, 1, sizeof(*tx->commands)) ||
        !make_room((void **)&tx->spans, &tx->spans_size, tx->nspans, cmd->argc, sizeof(*tx->spans)))
        return false;
    tx->commands[tx->ncommands++] =
        (struct queued){.command = command, .base = buf_len(&tx->bytes), .first = tx->nspans, .argc = cmd->argc};
    memcpy(tx->spans + tx->nspans, cmd->spans, cmd->argc * sizeof(*cmd->spans));
    tx->nspans += cmd->argc;
    memcpy(room, cmd->base, len);
    buf_commit(&tx->bytes, len);
    tx->flags |= command->flags;
    return true;
}

bool transaction_queue(struct session *session, const struct command *command, const struct resp_command *cmd,
                       size_t limit)
{
    struct transaction *tx = session->multi.transaction;
    /* A transaction that will be refused keeps no commands; a new command must fit before it gets room. */
    if (!tx->tainted) {
        if (memory_of(tx) + command_bytes(cmd) + cmd->argc * sizeof(*tx->spans) > limit || !append(tx, command, cmd)) {
            return false;
        }
        tx->work += work_of(session, command, cmd);
        atomic_store_explicit(&session->multi.queued, (int)tx->ncommands, memory_order_relaxed);
        atomic_store_explicit(&session->multi.bytes, memory_of(tx), memory_order_relaxed);
    }
    return true;
}

/* ---- WATCH ---- */

static struct registry_version version_of(const struct server *server, unsigned db, struct slice name)
{
    char space[REGISTRY_MAX_NAME + 2 * DATABASE_PREFIX];
    if (name.len > REGISTRY_MAX_NAME) /* no filter has a name of this length */
        return (struct registry_version){0};
    struct slice key = key_write(space, registry_database(server->registry, db), name);
    return registry_version(server->registry, key);
}

static bool touched(const struct server *server, const struct transaction *tx)
{
    for (const struct watched *w = tx->watched; w; w = w->next) {
        struct registry_version now = version_of(server, w->db, (struct slice){w->name, w->len});
        if (!registry_version_same(&now, &w->version))
            return true;
    }
    return false;
}

static bool watch(const struct server *server, struct session *session, struct slice name)
{
    struct transaction *tx = session->multi.transaction;
    struct watched *w = malloc(sizeof(*w) + name.len);
    if (!w)
        return false;
    w->db = atomic_load_explicit(&session->db, memory_order_relaxed);
    w->version = version_of(server, w->db, name);
    w->len = name.len;
    memcpy(w->name, name.ptr, name.len);
    w->next = tx->watched;
    tx->watched = w;
    tx->watched_bytes += sizeof(*w) + name.len;
    atomic_fetch_add_explicit(&session->multi.watched, 1, memory_order_relaxed);
    atomic_store_explicit(&session->multi.bytes, memory_of(tx), memory_order_relaxed);
    return true;
}

void cmd_watch(struct command_ctx *ctx)
{
    struct session *session = ctx->session;
    if (session->modes & MODE_IN_MULTI) {
        reply_error(ctx->reply, "ERR WATCH inside MULTI is not allowed");
        return;
    }
    size_t watched = atomic_load_explicit(&session->multi.watched, memory_order_relaxed);
    if (watched + command_argc(ctx) - 1 > TRANSACTION_WATCHES) {
        reply_errorf(ctx->reply, "ERR a client can watch at most %d names", TRANSACTION_WATCHES);
        return;
    }
    struct transaction *tx = begin(session);
    size_t limit = (size_t)server_config(ctx->server)->clients.client_query_buffer_limit;
    for (size_t i = 1; i < command_argc(ctx); i++) {
        if (tx && memory_of(tx) > limit) {
            command_over_limit(ctx, "its transaction exceeded client-query-buffer-limit");
            return;
        }
        if (!tx || !watch(ctx->server, session, key_name(command_arg(ctx, i)))) {
            reply_error(ctx->reply, "ERR out of memory");
            return;
        }
    }
    reply_status(ctx->reply, "OK");
}

void cmd_unwatch(struct command_ctx *ctx)
{
    struct session *session = ctx->session;
    if (!session->multi.in_exec) /* in EXEC the names have been compared already, and are dropped at the end */
        unwatch(session);
    reply_status(ctx->reply, "OK");
}

/* ---- MULTI, DISCARD, EXEC ---- */

void cmd_multi(struct command_ctx *ctx)
{
    struct session *session = ctx->session;
    if (session->modes & MODE_IN_MULTI) {
        reply_error(ctx->reply, "ERR MULTI calls can not be nested");
        return;
    }
    if (!begin(session)) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    session->modes |= MODE_IN_MULTI;
    atomic_store_explicit(&ctx->session->multi.queued, 0, memory_order_relaxed);
    reply_status(ctx->reply, "OK");
}

void cmd_discard(struct command_ctx *ctx)
{
    struct session *session = ctx->session;
    if (!(session->modes & MODE_IN_MULTI)) {
        reply_error(ctx->reply, "ERR DISCARD without MULTI");
        return;
    }
    transaction_end(session);
    reply_status(ctx->reply, "OK");
}

static struct resp_command command_of(const struct transaction *tx, const struct queued *queued)
{
    return (struct resp_command){buf_head(&tx->bytes) + queued->base, tx->spans + queued->first, queued->argc};
}

void transaction_each(const struct transaction *tx,
                      void (*run)(void *ctx, const struct command *command, const struct resp_command *cmd), void *ctx)
{
    for (size_t i = 0; i < tx->ncommands; i++) {
        const struct queued *q = &tx->commands[i];
        struct resp_command cmd = command_of(tx, q);
        run(ctx, q->command, &cmd);
    }
}

static bool read_number(const struct server *server, struct slice word, unsigned *number_out)
{
    int64_t number;
    if (!slice_to_int64(word, &number) || number < 0 || number >= server_config(server)->data.databases)
        return false;
    *number_out = (unsigned)number;
    return true;
}

static void swap(struct databases *databases, unsigned first, unsigned second)
{
    unsigned database = databases_get(databases, first);
    databases_set(databases, first, databases_get(databases, second));
    databases_set(databases, second, database);
}

void transaction_preview(const struct session *session, const struct server *server,
                         void (*look)(void *ctx, const struct command *command, const struct resp_command *cmd,
                                      unsigned database),
                         void *ctx)
{
    const struct transaction *tx = session->multi.transaction;
    unsigned number = atomic_load_explicit(&session->db, memory_order_relaxed), first, second;
    struct databases databases = {0};
    for (unsigned i = 0; i < DATABASES_MAX; i++)
        databases_set(&databases, i, registry_database(server->registry, i));
    for (size_t i = 0; i < tx->ncommands; i++) {
        const struct queued *q = &tx->commands[i];
        struct resp_command cmd = command_of(tx, q);
        if (q->command->handler == cmd_select)
            (void)read_number(server, resp_arg(&cmd, 1), &number);
        if (q->command->handler == cmd_swapdb && read_number(server, resp_arg(&cmd, 1), &first) &&
            read_number(server, resp_arg(&cmd, 2), &second))
            swap(&databases, first, second);
        look(ctx, q->command, &cmd, databases_get(&databases, number));
    }
}

/* The transaction's changes are one frame of the log: after a crash all of them are there, or none. */
static void run_queue(struct command_ctx *ctx, struct transaction *tx)
{
    struct session *session = ctx->session;
    struct journal *journal = tx->ncommands > 1 && (tx->flags & CMD_WRITE) ? server_journal(ctx->server) : NULL;
    session->modes &= ~(unsigned)MODE_IN_MULTI;
    session->multi.in_exec = true;
    if (journal)
        journal_hold(journal, ctx->ring);
    reply_array(ctx->reply, tx->ncommands);
    command_run_queue(ctx, tx);
    if (journal)
        journal_release(journal);
    session->multi.in_exec = false;
    atomic_store_explicit(&session->meters.command, "exec", memory_order_relaxed);
}

/* Whether the command has the option KEYED. */
static bool takes_key(const struct command *command)
{
    return command->handler == cmd_bf_reserve || command->handler == cmd_bf_insert ||
           command->handler == cmd_cf_reserve || command->handler == cmd_cf_insert ||
           command->handler == cmd_cf_insertnx;
}

/* The first KEYED filter needs a key, which is made before any of the commands runs. */
static bool needs_first_key(const struct server *server, const struct transaction *tx)
{
    if (bloom_keyring_first(server->pool))
        return false;
    for (size_t i = 0; i < tx->ncommands; i++) {
        const struct resp_command cmd = command_of(tx, &tx->commands[i]);
        if (!takes_key(tx->commands[i].command))
            continue;
        for (unsigned word = 2; word < cmd.argc && !slice_is(resp_arg(&cmd, word), "ITEMS"); word++)
            if (slice_is(resp_arg(&cmd, word), "KEYED"))
                return true;
    }
    return false;
}

/* A single command is isolated anyway; several, or watched names, need all other workers to stand still. */
static bool needs_exclusive(const struct transaction *tx)
{
    return tx->ncommands > 1 || (tx->ncommands && tx->watched) || (tx->flags & CMD_ALONE);
}

void cmd_exec(struct command_ctx *ctx)
{
    struct session *session = ctx->session;
    struct transaction *tx = session->multi.transaction;
    if (!(session->modes & MODE_IN_MULTI)) {
        reply_error(ctx->reply, "ERR EXEC without MULTI");
        return;
    }
    struct errbuf error;
    bool alone = needs_exclusive(tx) && command_is_alone(ctx);
    if (alone)
        registry_hold_clock(ctx->server->registry); /* no filter expires between two of its commands */
    if (tx->tainted) {
        reply_error(ctx->reply, "EXECABORT Transaction discarded because of previous errors.");
    } else if (touched(ctx->server, tx)) {
        reply_null_array(ctx->reply);
    } else if (!alone && needs_first_key(ctx->server, tx)) {
        bf_wait_for_first_key(ctx);
        if (ctx->later)
            return;
    } else if (needs_exclusive(tx) && !alone) {
        command_wait_to_be_alone(ctx);
        return;
    } else if (!transaction_may_run(ctx, &error)) {
        reply_error(ctx->reply, error.text);
    } else {
        run_queue(ctx, tx);
    }
    if (alone)
        registry_release_clock(ctx->server->registry);
    transaction_end(session);
}
