/* PUBLISH and SUBSCRIBE in all their forms, PUBSUB, MONITOR. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "handlers.h"
#include "host.h"
#include "pubsub.h"
#include "server.h"
#include "subscriptions.h"

/* ---- subscribing ---- */

/* Channels and patterns are counted together, shard channels by themselves. */
static int64_t subscriptions(const struct session *session, enum pubsub_kind kind)
{
    const struct pubsub_client *client = session->pubsub.client;

    if (client == NULL)
        return 0;
    if (kind == PUBSUB_SHARD)
        return (int64_t)pubsub_client_count(client, PUBSUB_SHARD);
    return (int64_t)(pubsub_client_count(client, PUBSUB_CHANNEL) + pubsub_client_count(client, PUBSUB_PATTERN));
}

/* The reply for one channel; `name` NULL when there was none to unsubscribe from. */
static void reply_subscription(struct command_ctx *ctx, enum pubsub_kind kind, const char *word,
                               const struct slice *name)
{
    reply_push(ctx->pushes, 3);
    reply_bulk_str(ctx->pushes, word);
    if (name != NULL)
        reply_bulk(ctx->pushes, name->ptr, name->len);
    else
        reply_null(ctx->pushes);
    reply_integer(ctx->pushes, subscriptions(ctx->session, kind));
}

/* A channel that cannot be subscribed to is answered with an error in its place; the others are subscribed to. */
static void subscribe(struct command_ctx *ctx, enum pubsub_kind kind, const char *word)
{
    size_t max_bytes = (size_t)server_config(ctx->server)->clients.client_subscriptions_limit;
    size_t max_name = kind == PUBSUB_PATTERN ? PUBSUB_MAX_PATTERN : PUBSUB_MAX_NAME;
    struct pubsub_client *client = subscriber_of(ctx->session, ctx->server->pubsub);

    size_t first, names = command_slice(ctx, command_argc(ctx) - 1, &first);

    ctx->session->pushed = true;
    for (size_t i = first + 1; i <= first + names; i++) {
        struct slice name = command_arg(ctx, i);
        int status = -ENOMEM;

        if (name.len > max_name) {
            reply_errorf(ctx->pushes, "ERR %s is longer than %zu bytes", kind == PUBSUB_PATTERN ? "pattern" : "channel",
                         max_name);
            continue;
        }
        if (client != NULL)
            status = pubsub_subscribe(client, kind, name, max_bytes);
        if (status == -ENOMEM)
            reply_error(ctx->pushes, "ERR out of memory");
        else if (status == PUBSUB_LIMIT)
            reply_errorf(ctx->pushes,
                         "ERR the subscriptions of this client would take more than client-subscriptions-limit (%zu "
                         "bytes)",
                         max_bytes);
        else
            reply_subscription(ctx, kind, word, &name);
    }
    subscriptions_changed(ctx->session);
}

struct unsubscribe_all {
    struct command_ctx *ctx;
    enum pubsub_kind kind;
    const char *word;
};

static void reply_unsubscribed(void *arg, struct slice name)
{
    const struct unsubscribe_all *all = arg;

    reply_subscription(all->ctx, all->kind, all->word, &name);
}

#define UNSUBSCRIBE_AT_ONCE 1000

/* Unsubscribes from all names of the kind, some at a time. */
static void unsubscribe_all(struct command_ctx *ctx, enum pubsub_kind kind, const char *word)
{
    struct pubsub_client *client = ctx->session->pubsub.client;
    struct unsubscribe_all all = {ctx, kind, word};
    bool in_exec = ctx->session->multi.in_exec;

    if (client == NULL || pubsub_client_count(client, kind) == 0)
        reply_subscription(ctx, kind, word, NULL);
    else
        for (int i = 0;
             (in_exec || i < UNSUBSCRIBE_AT_ONCE) && pubsub_unsubscribe_next(client, kind, reply_unsubscribed, &all);)
            i++;
    ctx->later = client != NULL && pubsub_client_count(client, kind) > 0;
}

/* Without a name: from all names of the kind. */
static void unsubscribe(struct command_ctx *ctx, enum pubsub_kind kind, const char *word)
{
    struct pubsub_client *client = ctx->session->pubsub.client;
    size_t first, names = command_slice(ctx, command_argc(ctx) - 1, &first);

    ctx->session->pushed = true;
    for (size_t i = first + 1; i <= first + names; i++) {
        struct slice name = command_arg(ctx, i);

        if (client != NULL)
            (void)pubsub_unsubscribe(client, kind, name); /* the reply is the same without a subscription */
        reply_subscription(ctx, kind, word, &name);
    }
    if (command_argc(ctx) == 1)
        unsubscribe_all(ctx, kind, word);
    subscriptions_changed(ctx->session);
}

void cmd_subscribe(struct command_ctx *ctx)
{
    subscribe(ctx, PUBSUB_CHANNEL, "subscribe");
}

void cmd_unsubscribe(struct command_ctx *ctx)
{
    unsubscribe(ctx, PUBSUB_CHANNEL, "unsubscribe");
}

void cmd_psubscribe(struct command_ctx *ctx)
{
    subscribe(ctx, PUBSUB_PATTERN, "psubscribe");
}

void cmd_punsubscribe(struct command_ctx *ctx)
{
    unsubscribe(ctx, PUBSUB_PATTERN, "punsubscribe");
}

void cmd_ssubscribe(struct command_ctx *ctx)
{
    if (ctx->session->multi.in_exec) { /* as in Redis, which lets the older ones through */
        reply_error(ctx->reply, "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
        return;
    }
    subscribe(ctx, PUBSUB_SHARD, "ssubscribe");
}

void cmd_sunsubscribe(struct command_ctx *ctx)
{
    unsubscribe(ctx, PUBSUB_SHARD, "sunsubscribe");
}

/* ---- publishing ---- */

/* A message whose patterns take long to match: matched in a thread of the pool. */
static void run_publish(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct pubsub_receipt receipt;

    if (pubsub_publish(job->server->pubsub, PUBSUB_CHANNEL, args->argv[1], args->argv[2], &receipt) != 0)
        reply_error(&job->reply, "ERR out of memory");
    else
        reply_integer(&job->reply, (int64_t)receipt.receivers);
    job->slow_down = receipt.slow;
}

static void publish(struct command_ctx *ctx, enum pubsub_kind kind)
{
    struct pubsub *hub = ctx->server->pubsub;
    struct slice channel = command_arg(ctx, 1), payload = command_arg(ctx, 2);
    struct pubsub_receipt receipt;

    if (channel.len > PUBSUB_MAX_NAME) { /* it can have no subscriber, but a pattern could match */
        reply_errorf(ctx->reply, "ERR channel is longer than %d bytes", PUBSUB_MAX_NAME);
        return;
    }
    if (kind == PUBSUB_CHANNEL && pubsub_is_costly(hub, channel)) {
        command_defer_arguments(ctx, SIZE_MAX - 1, run_publish);
        return;
    }
    if (pubsub_publish(hub, kind, channel, payload, &receipt) != 0) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    reply_integer(ctx->reply, (int64_t)receipt.receivers);
    if (receipt.slow)
        command_slow_publisher(ctx);
}

void cmd_publish(struct command_ctx *ctx)
{
    publish(ctx, PUBSUB_CHANNEL);
}

void cmd_spublish(struct command_ctx *ctx)
{
    publish(ctx, PUBSUB_SHARD);
}

/* ---- PUBSUB ---- */

struct channels_reply {
    struct reply *reply;
    size_t n;
};

static void reply_channel(void *arg, struct slice name)
{
    struct channels_reply *channels = arg;

    reply_bulk(channels->reply, name.ptr, name.len);
    channels->n++;
}

static void list_channels(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct channels_reply channels = {&job->reply, 0};
    enum pubsub_kind kind = slice_is(args->argv[1], "SHARDCHANNELS") ? PUBSUB_SHARD : PUBSUB_CHANNEL;
    size_t token = reply_array_begin(&job->reply);

    if (pubsub_list(job->server->pubsub, kind, args->argc > 2 ? &args->argv[2] : NULL, reply_channel, &channels) != 0) {
        buf_truncate(job->reply.buf, 0);
        reply_error(&job->reply, "ERR out of memory");
        return;
    }
    reply_array_end(&job->reply, token, channels.n);
}

/* CHANNELS and SHARDCHANNELS. */
void cmd_pubsub_channels(struct command_ctx *ctx)
{
    if (command_argc(ctx) > 3)
        reply_wrong_subcommand(ctx);
    else if (command_argc(ctx) == 3 && command_arg(ctx, 2).len > PUBSUB_MAX_PATTERN)
        reply_errorf(ctx->reply, "ERR pattern is longer than %d bytes", PUBSUB_MAX_PATTERN);
    else
        command_defer_arguments(ctx, PUBSUB_MAX_PATTERN, list_channels);
}

/* NUMSUB and SHARDNUMSUB. */
void cmd_pubsub_numsub(struct command_ctx *ctx)
{
    enum pubsub_kind kind = slice_is(command_arg(ctx, 1), "SHARDNUMSUB") ? PUBSUB_SHARD : PUBSUB_CHANNEL;
    size_t argc = command_argc(ctx);

    reply_array(ctx->reply, 2 * (argc - 2));
    for (size_t i = 2; i < argc; i++) {
        struct slice name = command_arg(ctx, i);

        reply_bulk(ctx->reply, name.ptr, name.len);
        reply_integer(ctx->reply, (int64_t)pubsub_subscribers(ctx->server->pubsub, kind, name));
    }
}

void cmd_pubsub_numpat(struct command_ctx *ctx)
{
    struct pubsub_totals totals;

    pubsub_totals(ctx->server->pubsub, &totals);
    reply_integer(ctx->reply, (int64_t)totals.topics[PUBSUB_PATTERN]);
}

/* ---- MONITOR ---- */

void cmd_monitor(struct command_ctx *ctx)
{
    struct pubsub_client *client = subscriber_of(ctx->session, ctx->server->pubsub);
    struct slice none = {"", 0};

    if (ctx->session->multi.in_exec) {
        reply_error(ctx->reply, "ERR MONITOR isn't allowed for DENY BLOCKING client");
        return;
    }
    command_monitor_begins(ctx); /* earlier commands are for earlier monitors */
    if (client == NULL || pubsub_subscribe(client, PUBSUB_MONITOR, none, SIZE_MAX) < 0) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    subscriptions_changed(ctx->session);
    command_monitor_begun(ctx); /* the rest of this client's pipeline is for it */
    reply_status(ctx->reply, "OK");
}

/* ---- the end of subscriptions ---- */

struct pubsub_client *subscriber_of(struct session *session, struct pubsub *hub)
{
    if (!session->pubsub.client && pubsub_client_create(&session->pubsub.client, hub, session->worker, session) != 0)
        return NULL;
    return session->pubsub.client;
}

static uint32_t count(const struct session *session, enum pubsub_kind kind)
{
    return session->pubsub.client ? (uint32_t)pubsub_client_count(session->pubsub.client, kind) : 0;
}

void subscriptions_changed(struct session *session)
{
    uint32_t channels = count(session, PUBSUB_CHANNEL), patterns = count(session, PUBSUB_PATTERN);
    uint32_t shards = count(session, PUBSUB_SHARD);
    atomic_store_explicit(&session->pubsub.channels, channels, memory_order_relaxed);
    atomic_store_explicit(&session->pubsub.patterns, patterns, memory_order_relaxed);
    atomic_store_explicit(&session->pubsub.shards, shards, memory_order_relaxed);
    if (count(session, PUBSUB_MONITOR) > 0)
        atomic_fetch_or_explicit(&session->flags, SESSION_MONITOR, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&session->flags, ~(unsigned)SESSION_MONITOR, memory_order_relaxed);
    atomic_store_explicit(&session->pubsub.bytes,
                          session->pubsub.client ? pubsub_client_bytes(session->pubsub.client) : 0,
                          memory_order_relaxed);
    session->pubsub.subscribed = channels + patterns + shards > 0;
    session->modes =
        session->pubsub.subscribed ? session->modes | MODE_SUBSCRIBED : session->modes & ~(unsigned)MODE_SUBSCRIBED;
}

#define LEAVE_AT_ONCE 1000

bool subscriptions_end(struct session *session)
{
    int n = 0;
    if (!session->pubsub.client)
        return true;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++)
        while (n < LEAVE_AT_ONCE && pubsub_unsubscribe_next(session->pubsub.client, (enum pubsub_kind)kind, NULL, NULL))
            n++;
    if (n < LEAVE_AT_ONCE) {
        pubsub_client_destroy(session->pubsub.client);
        session->pubsub.client = NULL;
    }
    subscriptions_changed(session);
    return !session->pubsub.client;
}
