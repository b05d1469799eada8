/* CLIENT: queries and settings of a connection about itself and others. */
#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "clock.h"
#include "command.h"
#include "alloc.h"
#include "handlers.h"
#include "host.h"
#include "server.h"

/* ---- itself ---- */

void cmd_client_id(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, (int64_t)ctx->session->id);
}

void cmd_client_getname(struct command_ctx *ctx)
{
    if (ctx->session->texts.of[SESSION_NAME] == NULL)
        reply_null(ctx->reply);
    else
        reply_bulk_str(ctx->reply, ctx->session->texts.of[SESSION_NAME]);
}

void cmd_client_setname(struct command_ctx *ctx)
{
    if (session_set_text(ctx, SESSION_NAME, command_arg(ctx, 2), "Client names"))
        reply_status(ctx->reply, "OK");
}

void cmd_client_setinfo(struct command_ctx *ctx)
{
    struct slice option = command_arg(ctx, 2);
    bool lib_name = slice_is(option, "LIB-NAME");

    if (!lib_name && !slice_is(option, "LIB-VER")) {
        reply_errorf(ctx->reply, "ERR Unrecognized option '%.*s'", slice_shown(option), option.ptr);
        return;
    }
    if (session_set_text(ctx, lib_name ? SESSION_LIB_NAME : SESSION_LIB_VER, command_arg(ctx, 3),
                         lib_name ? "LIB-NAME" : "LIB-VER"))
        reply_status(ctx->reply, "OK");
}

void cmd_client_info(struct command_ctx *ctx)
{
    struct buf text;

    buf_init(&text, SIZE_MAX);
    session_format(ctx->session, clock_ms(), &text);
    buf_append(&text, "\n", 1);
    reply_text(ctx->reply, &text);
}

/* ---- REPLY, PAUSE ---- */

void cmd_client_reply(struct command_ctx *ctx)
{
    struct session *session = ctx->session;
    struct slice mode = command_arg(ctx, 2);
    if (slice_is(mode, "ON")) {
        session->modes &= ~(unsigned)(MODE_REPLY_OFF | MODE_REPLY_SKIP | MODE_REPLY_SKIP_NEXT);
        reply_status(ctx->reply, "OK");
    } else if (slice_is(mode, "OFF")) {
        session->modes |= MODE_REPLY_OFF;
    } else if (slice_is(mode, "SKIP")) {
        if (!(session->modes & MODE_REPLY_OFF))
            session->modes |= MODE_REPLY_SKIP_NEXT;
    } else {
        reply_error(ctx->reply, "ERR syntax error");
    }
}

/* Reads timeout and mode. False: an error has been replied. */
static bool pause_arguments(struct command_ctx *ctx, int64_t *timeout_ms_out, enum pause *pause_out)
{
    *pause_out = PAUSE_ALL;
    if (command_argc(ctx) > 4) {
        reply_wrong_subcommand(ctx);
        return false;
    }
    if (command_argc(ctx) == 4) {
        if (slice_is(command_arg(ctx, 3), "WRITE"))
            *pause_out = PAUSE_WRITES;
        else if (!slice_is(command_arg(ctx, 3), "ALL"))
            return reply_error(ctx->reply, "ERR CLIENT PAUSE mode must be WRITE or ALL");
    }
    if (!slice_to_int64(command_arg(ctx, 2), timeout_ms_out) || *timeout_ms_out > INT64_MAX / 2)
        return reply_error(ctx->reply, "ERR timeout is not an integer or out of range");
    if (*timeout_ms_out < 0)
        return reply_error(ctx->reply, "ERR timeout is negative");
    return true;
}

/* The pause is in force on all workers when OK is replied: hence the exclusive section. Of two pauses at a time the
 * longer and the stricter hold, as in Redis. */
void cmd_client_pause(struct command_ctx *ctx)
{
    struct server *server = ctx->server;
    int64_t timeout_ms, now = clock_ms();
    enum pause pause;
    if (!pause_arguments(ctx, &timeout_ms, &pause))
        return;
    if (!ctx->session->multi.in_exec && !command_is_alone(ctx)) {
        command_wait_to_be_alone(ctx);
        return;
    }
    int64_t until = now + timeout_ms, old = atomic_load_explicit(&server->clients.pause.until_ms, memory_order_relaxed);
    enum pause was = (enum pause)atomic_load_explicit(&server->clients.pause.what, memory_order_relaxed);
    if (was && old > now) {
        until = until > old ? until : old;
        pause = pause > was ? pause : was;
    }
    atomic_store_explicit(&server->clients.pause.until_ms, until, memory_order_relaxed);
    atomic_store_explicit(&server->clients.pause.what, (int)pause, memory_order_release);
    command_pause_changed(ctx, false);
    reply_status(ctx->reply, "OK");
}

void cmd_client_unpause(struct command_ctx *ctx)
{
    atomic_store_explicit(&ctx->server->clients.pause.what, PAUSE_NOTHING, memory_order_release);
    command_pause_changed(ctx, true);
    reply_status(ctx->reply, "OK");
}

/* ---- features that do not exist here ---- */

/* No command blocks. */
void cmd_client_unblock(struct command_ctx *ctx)
{
    int64_t id;
    if (command_argc(ctx) > 4)
        reply_wrong_subcommand(ctx);
    else if (command_argc(ctx) == 4 && !slice_is(command_arg(ctx, 3), "TIMEOUT") &&
             !slice_is(command_arg(ctx, 3), "ERROR"))
        reply_error(ctx->reply, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    else if (!slice_to_int64(command_arg(ctx, 2), &id))
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
    else
        reply_integer(ctx->reply, 0);
}

static void client_switch(struct command_ctx *ctx, enum session_flag flag)
{
    struct slice value = command_arg(ctx, 2);
    bool on = slice_is(value, "on");

    if (!on && !slice_is(value, "off")) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    if (on)
        atomic_fetch_or_explicit(&ctx->session->flags, flag, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&ctx->session->flags, ~(unsigned)flag, memory_order_relaxed);
    reply_status(ctx->reply, "OK");
}

/* Such a client is not closed over maxmemory-clients. The end of the iteration sees the change. */
void cmd_client_no_evict(struct command_ctx *ctx)
{
    client_switch(ctx, SESSION_NO_EVICT);
}

/* Commands of such a client are not noted for OBJECT IDLETIME. */
void cmd_client_no_touch(struct command_ctx *ctx)
{
    client_switch(ctx, SESSION_NO_TOUCH);
}

/* It is never on, so it can be switched off. */
void cmd_client_tracking(struct command_ctx *ctx)
{
    if (command_argc(ctx) == 3 && slice_is(command_arg(ctx, 2), "off"))
        reply_status(ctx->reply, "OK");
    else
        reply_error(ctx->reply,
                    "ERR CLIENT TRACKING is not supported: an answer of a filter is a poor thing to cache by "
                    "key. A program can keep a copy of the filter itself: docs/LOCAL.md");
}

/* ---- LIST ---- */

/* Types of clients for LIST and KILL. */
enum client_type {
    CLIENT_ANY,
    CLIENT_NORMAL,
    CLIENT_PUBSUB,
    CLIENT_REPLICATION, /* there are none */
};

/* Reads a type of client of Redis; an error has been replied if it is none. Some have no members here. */
static bool client_type(struct command_ctx *ctx, struct slice type, enum client_type *type_out)
{
    if (slice_is(type, "normal"))
        *type_out = CLIENT_NORMAL;
    else if (slice_is(type, "pubsub"))
        *type_out = CLIENT_PUBSUB;
    else if (slice_is(type, "replica") || slice_is(type, "slave") || slice_is(type, "master"))
        *type_out = CLIENT_REPLICATION;
    else
        reply_errorf(ctx->reply, "ERR Unknown client type '%.*s'", slice_shown(type), type.ptr);
    return *type_out != CLIENT_ANY;
}

static bool has_type(const struct session *session, enum client_type type)
{
    bool pubsub = atomic_load_explicit(&session->pubsub.channels, memory_order_relaxed) +
                      atomic_load_explicit(&session->pubsub.patterns, memory_order_relaxed) +
                      atomic_load_explicit(&session->pubsub.shards, memory_order_relaxed) >
                  0;
    return type == CLIENT_ANY || type == (pubsub ? CLIENT_PUBSUB : CLIENT_NORMAL);
}

/* A CLIENT LIST: the sessions that it asks for. */
struct client_list {
    struct buf text;
    int64_t now_ms;
    enum client_type type;
    size_t nids;    /* 0: any */
    uint64_t ids[]; /* ascending */
};

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void list_one(void *ctx, struct session *session)
{
    struct client_list *list = ctx;
    if (!has_type(session, list->type) ||
        (list->nids > 0 && !bsearch(&session->id, list->ids, list->nids, sizeof(list->ids[0]), compare_ids)))
        return;
    session_format(session, list->now_ms, &list->text);
    buf_append(&list->text, "\n", 1);
}

static void run_client_list(struct command_job *job)
{
    struct client_list *list = job->data;
    buf_init(&list->text, job->reply.buf->cap);
    list->now_ms = clock_ms();
    sessions_each(job->server->clients.sessions, list_one, list);
    reply_text(&job->reply, &list->text);
}

/* The ids from argument `first` on; false after an error reply. */
static bool read_ids(struct command_ctx *ctx, size_t first, struct client_list *list)
{
    for (size_t i = first; i < command_argc(ctx); i++) { /* 0 and negative ids belong to no client, as in Redis */
        int64_t id;

        if (!slice_to_int64(command_arg(ctx, i), &id))
            return reply_error(ctx->reply, "ERR Invalid client ID");
        list->ids[list->nids++] = (uint64_t)id;
    }
    qsort(list->ids, list->nids, sizeof(list->ids[0]), compare_ids);
    return true;
}

void cmd_client_list(struct command_ctx *ctx)
{
    size_t argc = command_argc(ctx);
    struct client_list *list = calloc(1, sizeof(*list) + argc * sizeof(list->ids[0]));
    bool good = list != NULL;

    if (!list)
        reply_error(ctx->reply, "ERR out of memory");
    else if (argc > 3 && slice_is(command_arg(ctx, 2), "ID"))
        good = read_ids(ctx, 3, list);
    else if (argc == 4 && slice_is(command_arg(ctx, 2), "TYPE"))
        good = client_type(ctx, command_arg(ctx, 3), &list->type);
    else if (argc != 2) {
        reply_error(ctx->reply, "ERR syntax error");
        good = false;
    }
    if (good)
        command_defer(ctx, run_client_list, list);
    else
        free(list);
}

/* ---- KILL ---- */

/* The clients that CLIENT KILL ends, and its progress. The strings are NUL-terminated, "" for any. */
struct kill {
    uint64_t self; /* the caller */
    uint64_t id;   /* 0: any */
    int64_t age_s; /* the minimum age */
    enum client_type type;
    const char *user; /* after the array below; NULL: any */
    bool skip_self;
    bool old_form; /* CLIENT KILL addr */
    char addr[sizeof(((struct session *)0)->origin.addr)];
    char laddr[sizeof(((struct session *)0)->origin.laddr)];

    bool posted; /* to the victims' workers */
    bool no_memory;
    int64_t killed;
    uint64_t until[]; /* of host_close(), for each worker */
};

/* The victims that one worker has. */
struct victims {
    size_t n, size;
    uint64_t *ids; /* ascending */
};

struct killing {
    struct kill *kill;
    int64_t now_ms;
    struct victims *of_worker;
};

static bool is_victim(const struct kill *kill, const struct session *session, int64_t now_ms)
{
    return (!kill->id || session->id == kill->id) && (!kill->skip_self || session->id != kill->self) &&
           (!kill->addr[0] || strcmp(session->origin.addr, kill->addr) == 0) &&
           (!kill->laddr[0] || strcmp(session->origin.laddr, kill->laddr) == 0) &&
           (!kill->user || (session->acl.user_name && strcmp(session->acl.user_name, kill->user) == 0)) &&
           has_type(session, kill->type) && (now_ms - session->origin.created_ms) / 1000 >= kill->age_s;
}

/* Marks the session as killed, which takes it off all lists at once, and notes it for its worker. */
static void kill_one(void *ctx, struct session *session)
{
    struct killing *killing = ctx;
    if (killing->kill->no_memory || !is_victim(killing->kill, session, killing->now_ms))
        return;
    struct victims *v = &killing->of_worker[session->worker];
    if (GROW(v->ids, v->n, v->size) != 0) {
        killing->kill->no_memory = true;
        return;
    }
    atomic_fetch_or_explicit(&session->flags, SESSION_KILLED, memory_order_acq_rel);
    v->ids[v->n++] = session->id;
    killing->kill->killed++;
}

static void kill_all(struct server *server, struct kill *kill)
{
    struct killing killing = {.kill = kill, .now_ms = clock_ms()};
    killing.of_worker = calloc(server->threads.nworkers, sizeof(struct victims));
    if (!killing.of_worker) {
        kill->no_memory = true;
        return;
    }
    sessions_each(server->clients.sessions, kill_one, &killing);
    for (unsigned i = 0; i < server->threads.nworkers; i++) {
        struct victims *v = &killing.of_worker[i];
        if (v->n)
            kill->until[i] = host_close(server, i, v->ids, v->n, kill->self);
    }
    free(killing.of_worker);
}

/* Replies when all victims are closed, so that their subscriptions count no more. */
static void run_client_kill(struct command_job *job)
{
    struct server *server = job->server;
    struct kill *kill = job->data;
    if (!kill->posted)
        kill_all(server, kill);
    kill->posted = true;
    for (unsigned i = 0; i < server->threads.nworkers; i++) {
        if (!host_closed(server, i, kill->until[i])) {
            job->again = true;
            return;
        }
    }
    if (kill->no_memory)
        reply_error(&job->reply, "ERR out of memory");
    else if (!kill->old_form)
        reply_integer(&job->reply, kill->killed);
    else if (kill->killed)
        reply_status(&job->reply, "OK");
    else
        reply_error(&job->reply, "ERR No such client");
}

/* Copies an address; one that is too long matches no client. */
static void kill_addr(char *place, size_t size, struct slice addr)
{
    if (addr.len == 0 || addr.len >= size || memchr(addr.ptr, '\0', addr.len))
        addr = (struct slice){"-", 1};
    memcpy(place, addr.ptr, addr.len);
    place[addr.len] = '\0';
}

/* Reads an option and its value. False: an error has been replied. */
static bool kill_option(struct command_ctx *ctx, struct kill *kill, struct slice *user_out, struct slice option,
                        struct slice value)
{
    int64_t number;
    if (slice_is(option, "ID")) {
        if (!slice_to_int64(value, &number) || number < 1)
            return reply_error(ctx->reply, "ERR client-id should be greater than 0");
        kill->id = (uint64_t)number;
    } else if (slice_is(option, "MAXAGE")) {
        if (!slice_to_int64(value, &kill->age_s))
            return reply_error(ctx->reply, "ERR maxage is not an integer or out of range");
        if (kill->age_s <= 0)
            return reply_error(ctx->reply, "ERR maxage should be greater than 0");
    } else if (slice_is(option, "TYPE")) {
        return client_type(ctx, value, &kill->type);
    } else if (slice_is(option, "ADDR")) {
        kill_addr(kill->addr, sizeof(kill->addr), value);
    } else if (slice_is(option, "LADDR")) {
        kill_addr(kill->laddr, sizeof(kill->laddr), value);
    } else if (slice_is(option, "USER")) {
        struct acl_user *user = acl_get(ctx->server->acl, value);
        if (!user)
            return reply_errorf(ctx->reply, "ERR No such user '%.*s'", slice_shown(value), value.len ? value.ptr : "");
        acl_user_unref(user);
        *user_out = value;
    } else if (slice_is(option, "SKIPME") && (slice_is(value, "yes") || slice_is(value, "no"))) {
        kill->skip_self = slice_is(value, "yes");
    } else {
        return reply_error(ctx->reply, "ERR syntax error");
    }
    return true;
}

void cmd_client_kill(struct command_ctx *ctx)
{
    size_t argc = command_argc(ctx);
    struct kill kill = {.self = ctx->session->id, .skip_self = true};
    struct slice user = {NULL, 0};
    if (argc == 3) {
        kill.old_form = true;
        kill.skip_self = false;
        kill_addr(kill.addr, sizeof(kill.addr), command_arg(ctx, 2));
    } else {
        for (size_t i = 2; i < argc; i += 2) {
            if (i + 1 == argc) {
                reply_error(ctx->reply, "ERR syntax error");
                return;
            }
            if (!kill_option(ctx, &kill, &user, command_arg(ctx, i), command_arg(ctx, i + 1)))
                return;
        }
    }
    size_t size = sizeof(struct kill) + ctx->server->threads.nworkers * sizeof(kill.until[0]);
    struct kill *copy = calloc(1, size + user.len + 1);
    if (!copy) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    *copy = kill;
    if (user.ptr)
        copy->user = memcpy((char *)copy + size, user.ptr, user.len);
    command_defer(ctx, run_client_kill, copy);
}
