#include "bring.h"

#include <stdio.h>
#include <stdlib.h>

#include "admission.h"
#include "command.h"
#include "conn.h"
#include "database.h"
#include "handlers.h"
#include "keyed.h"
#include "registry_databases.h"
#include "residency.h"
#include "transaction.h"
#include "worker.h"

/* For a command that has several filters, of which one was renamed meanwhile; then it is asked to try again. */
#define TRIES 8

struct bring {
    struct worker_message message;
    struct worker *worker;
    struct conn *conn; /* NULL: it is gone */
    struct residency_wait *wait;
    unsigned tries;
    bool done;
};

/* Not entry_is_away(): bits that are about to leave are kept by entry_filter(), until the worker goes offline. */
static bool is_missing(struct entry *entry)
{
    return entry && !entry_filter(entry) && entry_shape(entry);
}

bool bring_is_needed(const struct worker *worker, uint64_t name_hash, struct slice name)
{
    if (__builtin_expect(!worker->admission.some_away, true))
        return false;
    return is_missing(registry_find(worker->server->registry, name_hash, name));
}

/* ---- the filters of a command ---- */

/* Under the policy `maybe` questions are answered at once. */
static bool can_do_without(const struct conn *conn, const struct command *command)
{
    return (command->handler == cmd_bf_exists || command->handler == cmd_bf_mexists ||
            command->handler == cmd_bf_query) &&
           server_config(conn->worker->server)->maxmemory_policy == MEMORY_MAYBE;
}

struct names {
    struct conn *conn;
    struct residency_wait *wait; /* NULL: they are only counted */
    unsigned number;             /* of the client's database, when the transaction's next command runs */
    struct databases *databases; /* as they are then */
    size_t n, away;
};

static void take_name(struct names *names, struct slice name)
{
    struct registry *registry = names->conn->worker->server->registry;
    if (names->wait) {
        residency_wait_add(names->wait, name);
        return;
    }
    names->n++;
    names->away += is_missing(registry_lookup(registry, name));
}

static void take_names(struct names *names, const struct command *command, const struct resp_command *cmd)
{
    if (!(command->flags & CMD_BITS) || command->first_key == 0 || can_do_without(names->conn, command))
        return;
    size_t last = command->last_key < 0 ? cmd->argc - (size_t)-command->last_key : (size_t)command->last_key;
    for (size_t i = (size_t)command->first_key; i <= last && i < cmd->argc; i += (size_t)command->key_step)
        take_name(names, resp_arg(cmd, i));
}

static bool read_number(const struct names *names, struct slice word, unsigned *number_out)
{
    int64_t number;
    if (!slice_to_int64(word, &number) || number < 0 || number >= server_config(names->conn->worker->server)->databases)
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

/* A command that is queued: it has names, not keys, of the database to which commands before it lead. */
static void take_queued(void *ctx, const struct command *command, const struct resp_command *cmd)
{
    struct names *names = ctx;
    struct resp_command space;
    unsigned first, second;
    if (command->handler == cmd_select)
        (void)read_number(names, resp_arg(cmd, 1), &names->number);
    if (command->handler == cmd_swapdb && read_number(names, resp_arg(cmd, 1), &first) &&
        read_number(names, resp_arg(cmd, 2), &second))
        swap(names->databases, first, second);
    if (!(command->flags & CMD_BITS))
        return;
    unsigned database = databases_get(names->databases, names->number);
    const struct resp_command *keyed = keyed_command(&names->conn->worker->keyed, command, cmd, database, &space);
    if (keyed)
        take_names(names, command, keyed);
}

static void take_transaction(struct names *names)
{
    const struct session *session = &names->conn->session;
    struct databases databases = {0};
    for (unsigned i = 0; i < DATABASES_MAX; i++)
        databases_set(&databases, i, registry_database(names->conn->worker->server->registry, i));
    names->databases = &databases;
    names->number = atomic_load_explicit(&session->db, memory_order_relaxed);
    transaction_each(session->transaction, take_queued, names);
    names->databases = NULL;
}

static void take_all(struct names *names, const struct command *command, const struct resp_command *cmd)
{
    if (command->handler == cmd_exec && names->conn->session.modes & MODE_IN_MULTI)
        take_transaction(names);
    else
        take_names(names, command, cmd);
}

/* ---- the wait ---- */

static void bring_free(struct bring *bring)
{
    residency_wait_free(bring->wait);
    free(bring);
}

static void on_message(struct worker *worker, struct worker_message *message)
{
    struct bring *bring = (struct bring *)message;
    (void)worker;
    bring->done = true;
    if (bring->conn)
        conn_ready(bring->conn, CONN_WAITS_FILTER);
    else
        bring_free(bring);
}

/* A reader's thread. */
static void on_done(void *ctx)
{
    struct bring *bring = ctx;
    worker_post_message(bring->worker, &bring->message);
}

void bring_end(struct conn *conn)
{
    struct bring *bring = conn->bring;
    if (!bring)
        return;
    conn->bring = NULL;
    conn->session.modes &= ~(unsigned)MODE_BRINGS;
    bring->conn = NULL;
    if (bring->done)
        bring_free(bring);
}

static enum bring_answer refuse(char *text_out, const char *text)
{
    snprintf(text_out, ADMISSION_TEXT_SIZE, "%s", text);
    return BRING_FAILED;
}

static enum bring_answer start(struct conn *conn, const struct command *command, const struct resp_command *cmd,
                               size_t n, char *text_out)
{
    struct bring *before = conn->bring, *bring = calloc(1, sizeof(*bring));
    struct residency_wait *wait = bring ? residency_wait_create(conn->worker->server, n, on_done, bring) : NULL;
    if (!wait) {
        free(bring);
        return refuse(text_out, "ERR out of memory");
    }
    *bring = (struct bring){.message.run = on_message,
                            .worker = conn->worker,
                            .conn = conn,
                            .wait = wait,
                            .tries = before ? before->tries + 1 : 1};
    take_all(&(struct names){.conn = conn, .wait = wait}, command, cmd);
    bring_end(conn); /* what was pinned before is pinned again by now */
    conn->bring = bring;
    conn->session.modes |= MODE_BRINGS;
    if (residency_wait_begin(wait)) {
        conn_wait(conn, CONN_WAITS_FILTER, NULL);
        return BRING_WAIT;
    }
    bring->done = true;
    return BRING_READY;
}

enum bring_answer bring_bits(struct conn *conn, const struct command *command, const struct resp_command *cmd,
                             char *text_out)
{
    const char *why;
    if (__builtin_expect(!conn->worker->admission.some_away && !conn->bring, true) || conn->session.in_exec)
        return BRING_READY;
    if (conn->bring && !residency_wait_succeeded(conn->bring->wait, &why))
        return refuse(text_out, why);
    struct names names = {.conn = conn};
    take_all(&names, command, cmd);
    if (names.away == 0)
        return BRING_READY;
    if (conn->bring && conn->bring->tries >= TRIES)
        return refuse(text_out, RESIDENCY_TRYAGAIN);
    enum bring_answer answer = start(conn, command, cmd, names.n, text_out);
    if (answer == BRING_READY && !residency_wait_succeeded(conn->bring->wait, &why))
        return refuse(text_out, why);
    return answer;
}
