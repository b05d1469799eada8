#include "fetch.h"

#include <stdio.h>
#include <stdlib.h>

#include "client.h"
#include "handlers.h"
#include "keyed.h"
#include "registry_key.h"
#include "residency.h"
#include "transaction.h"

/* For a command with several filters, one of which was renamed meanwhile; after these the client must try again. */
#define TRIES 8

enum state {
    READING,   /* the connection waits */
    READ,      /* or it has failed: the bits are kept for the command */
    ABANDONED, /* the command has ended meanwhile: freed when the bits are there */
};

struct fetch {
    struct message message;
    struct mailbox *mailbox;
    struct conn *conn;
    struct residency_wait *wait;
    unsigned tries;
    enum state state;
};

/* Not entry_is_evicted(): bits that are about to leave are kept by entry_filter(), until the worker goes offline. */
static bool is_missing(struct entry *entry)
{
    return entry && !entry_filter(entry) && entry_shape(entry);
}

void fetches_init(struct fetches *fetches, struct server *server, struct mailbox *mailbox, struct keyed *keyed)
{
    *fetches = (struct fetches){.server = server, .mailbox = mailbox, .keyed = keyed};
}

void fetches_look(struct fetches *fetches)
{
    fetches->some_evicted = residency_some_evicted(fetches->server);
}

bool fetch_is_needed(const struct fetches *fetches, uint64_t name_hash, struct slice name)
{
    if (__builtin_expect(!fetches->some_evicted, true))
        return false;
    return is_missing(registry_find(fetches->server->registry, name_hash, name));
}

/* ---- the filters of a command ---- */

/* Under the policy `maybe` questions are answered immediately. */
static bool can_do_without(const struct server *server, const struct command *command)
{
    return (command->handler == cmd_bf_exists || command->handler == cmd_bf_mexists ||
            command->handler == cmd_bf_query) &&
           server_config(server)->memory.maxmemory_policy == MEMORY_MAYBE;
}

struct names {
    const struct fetches *fetches;
    struct session *session;
    struct residency_wait *wait; /* NULL: they are only counted */
    size_t n, evicted;
};

static void take_name(struct names *names, struct slice name)
{
    struct registry *registry = names->fetches->server->registry;
    if (names->wait) {
        residency_wait_add(names->wait, name);
        return;
    }
    names->n++;
    names->evicted += is_missing(registry_lookup(registry, name));
}

static void take_names(struct names *names, const struct command *command, const struct resp_command *cmd)
{
    if (!(command->flags & CMD_BITS) || can_do_without(names->fetches->server, command))
        return;
    struct command_keys keys = command_keys(command, cmd->argc);
    for (size_t i = keys.first; i < keys.end; i += keys.step)
        take_name(names, resp_arg(cmd, i));
}

/* A command that is queued: it has names, not keys. */
static void take_queued(void *ctx, const struct command *command, const struct resp_command *cmd, unsigned database)
{
    struct names *names = ctx;
    struct resp_command space;
    if (!(command->flags & CMD_BITS))
        return;
    const struct resp_command *keyed = keyed_command(names->fetches->keyed, command, cmd, database, &space);
    if (keyed)
        take_names(names, command, keyed);
}

static void take_all(struct names *names, const struct command *command, const struct resp_command *cmd)
{
    if (command->handler == cmd_exec && names->session->modes & MODE_IN_MULTI)
        transaction_preview(names->session, names->fetches->server, take_queued, names);
    else
        take_names(names, command, cmd);
}

/* ---- the wait ---- */

static void fetch_free(struct fetch *fetch)
{
    residency_wait_free(fetch->wait);
    free(fetch);
}

static void on_message(struct message *message, bool ending)
{
    struct fetch *fetch = (struct fetch *)message;
    (void)ending; /* the connection has gone then */
    if (fetch->state == ABANDONED) {
        fetch_free(fetch);
        return;
    }
    fetch->state = READ;
    conn_ready(fetch->conn, CONN_WAITS_FILTER);
}

/* A reader's thread. */
static void on_done(void *ctx)
{
    struct fetch *fetch = ctx;
    mailbox_post(fetch->mailbox, &fetch->message);
}

void fetch_end(struct conn *conn)
{
    struct fetch *fetch = client_of(conn)->fetch;
    if (!fetch)
        return;
    client_of(conn)->fetch = NULL;
    conn->session.modes &= ~(unsigned)MODE_FETCHES;
    if (fetch->state == READ)
        fetch_free(fetch);
    else
        fetch->state = ABANDONED;
}

static enum fetch_answer fail_with(char *text_out, const char *text)
{
    snprintf(text_out, DISPATCH_ERROR_SIZE, "%s", text);
    return FETCH_FAILED;
}

static enum fetch_answer begin_reading(struct names *names, struct conn *conn, const struct command *command,
                                       const struct resp_command *cmd, char *text_out)
{
    const struct fetches *fetches = names->fetches;
    struct fetch *before = client_of(conn)->fetch, *fetch = calloc(1, sizeof(*fetch));
    struct residency_wait *wait = fetch ? residency_wait_create(fetches->server, names->n, on_done, fetch) : NULL;
    if (!wait) {
        free(fetch);
        return fail_with(text_out, "ERR out of memory");
    }
    *fetch = (struct fetch){.message.run = on_message,
                            .mailbox = fetches->mailbox,
                            .conn = conn,
                            .wait = wait,
                            .tries = before ? before->tries + 1 : 1};
    names->wait = wait;
    take_all(names, command, cmd);
    fetch_end(conn); /* filters pinned before are pinned again by now */
    client_of(conn)->fetch = fetch;
    conn->session.modes |= MODE_FETCHES;
    if (residency_wait_begin(wait)) {
        conn_wait(conn, CONN_WAITS_FILTER, NULL);
        return FETCH_WAIT;
    }
    fetch->state = READ;
    return FETCH_READY;
}

enum fetch_answer fetch_bits(struct fetches *fetches, struct conn *conn, const struct command *command,
                             const struct resp_command *cmd, char text_out[DISPATCH_ERROR_SIZE])
{
    const struct fetch *fetch = client_of(conn)->fetch;
    const char *why;
    if (__builtin_expect(!fetches->some_evicted && !fetch, true) || conn->session.multi.in_exec)
        return FETCH_READY;
    if (fetch && !residency_wait_succeeded(fetch->wait, &why))
        return fail_with(text_out, why);
    struct names names = {.fetches = fetches, .session = &conn->session};
    take_all(&names, command, cmd);
    if (names.evicted == 0)
        return FETCH_READY;
    if (fetch && fetch->tries >= TRIES)
        return fail_with(text_out, RESIDENCY_TRYAGAIN);
    enum fetch_answer answer = begin_reading(&names, conn, command, cmd, text_out);
    if (answer == FETCH_READY && !residency_wait_succeeded(client_of(conn)->fetch->wait, &why))
        return fail_with(text_out, why);
    return answer;
}
