#include "io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "config.h"
#include "conn.h"
#include "conn_tls.h"
#include "log_text.h"
#include "memory_use.h"

/* ---- the parts ---- */

static void take_turn(struct conn_link *link)
{
    struct conn *conn = CONN_OF(link, turn);
    io_enter(conn->io);
    conn_take_turn(conn);
}

static void step_handshake(struct conn_link *link)
{
    struct conn *conn = CONN_OF(link, waiter);
    io_enter(conn->io);
    conn_tls_step(conn);
}

static void close_largest(struct client_size *client, uint64_t all, uint64_t most)
{
    struct conn *conn = (struct conn *)(void *)((char *)client - offsetof(struct conn, size));
    struct server *server = conn->io->server;
    const struct session *session = &conn->session;
    log_limited(&server->log, &server->log.limits.client, conn->io->now_ms, LOG_LEVEL_WARNING,
                "client id=%" PRIu64 " addr=%s name=%s user=%s closed: it uses %s, more than any other, and the "
                "clients hold %s together; maxmemory-clients allows %s",
                session->id, session->origin.addr,
                session->texts.of[SESSION_NAME] ? session->texts.of[SESSION_NAME] : "",
                session->acl.user_name ? session->acl.user_name : "default", log_bytes(client->held).text,
                log_bytes(all).text, log_bytes(most).text);
    stats_add(&conn->io->stats.evicted_clients, 1);
    conn_close(conn);
}

static void look_at_clients(void *limit)
{
    client_limit_look(limit);
}

int conns_init(struct io *io, struct server *server, unsigned index, const struct io_calls *calls)
{
    io->server = server;
    io->index = index;
    io->calls = calls;
    mailbox_init(&io->mailbox);
    mailbox_expect(&io->mailbox, NOTICE_CLIENTS, look_at_clients, &io->client_limit);
    client_limit_init(&io->client_limit, server, index, close_largest);
    io->delivery.server = server;
    conn_list_init(&io->delivery.conns);
    turns_init(&io->turns, take_turn);
    handshakes_init(&io->handshakes, step_handshake);
    io->input.arena = malloc(INPUT_ARENA_SIZE);
    return io->input.arena ? 0 : -ENOMEM;
}

void conns_deinit(struct io *io)
{
    while (io->delivery.nspare)
        free(io->delivery.spare_bufs[--io->delivery.nspare]);
    resp_args_deinit(&io->input.args);
    free(io->input.arena);
    handshakes_deinit(&io->handshakes);
}

void conns_open(struct io *io)
{
    turns_open(&io->turns, &io->loop);
    handshakes_open(&io->handshakes, &io->loop);
}

void conns_close(struct io *io)
{
    mailbox_close(&io->mailbox);
    turns_close(&io->turns);
    handshakes_close(&io->handshakes);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void conns_refresh(struct io *io, const struct config *config)
{
    struct input *input = &io->input;
    input->limits = (struct resp_limits){
        .max_args = (size_t)config->clients.proto_max_args,
        .max_bulk = (size_t)config->clients.proto_max_bulk_len,
        .max_inline = (size_t)config->clients.proto_inline_max_size,
    };
    input->limits_noauth = (struct resp_limits){
        .max_args = least(input->limits.max_args, (size_t)config->clients.proto_max_args_noauth),
        .max_bulk = least(input->limits.max_bulk, (size_t)config->clients.proto_max_bulk_noauth),
        .max_inline = input->limits.max_inline,
    };
    io->delivery.high_water = (size_t)config->clients.reply_buffer_high_water;
    for (int i = 0; i < CONFIG_CLIENT_CLASSES; i++) {
        uint64_t hard = config->clients.client_output_buffer_limit.classes[i].hard;
        io->delivery.limits[i] =
            (size_t)(hard && hard < config->clients.reply_buffer_limit ? hard : config->clients.reply_buffer_limit);
    }
}

void conns_send(struct io *io)
{
    while (!conn_list_empty(&io->delivery.conns)) {
        struct conn *conn = CONN_OF(io->delivery.conns.next, with_replies);
        conn_list_remove(&conn->with_replies);
        conn_flush(conn);
    }
}

/* ---- ten times a second ---- */

/* Closes a client that has been over the soft limit of its class for too long (client-output-buffer-limit). True if it
 * was closed. */
static bool is_over_soft_limit(struct conn *conn)
{
    const struct config *config = server_config(conn->io->server);
    const struct config_output_limit *limit = &config->clients.client_output_buffer_limit.classes[conn_class(conn)];
    if (limit->soft == 0 || conn_unsent(conn) <= limit->soft) {
        conn->output.over_soft_ms = 0;
        return false;
    }
    if (conn->output.over_soft_ms == 0)
        conn->output.over_soft_ms = conn->io->now_ms;
    if (conn->io->now_ms - conn->output.over_soft_ms < limit->soft_seconds * 1000)
        return false;
    conn_close_over_output(conn, "its replies exceeded the soft client-output-buffer-limit for too long");
    return true;
}

/* Closes a waiting client that seems to be gone. True if it was closed. */
static bool is_over_half_closed(struct conn *conn)
{
    if (conn->input.eof_seen_ms == 0 || conn->io->now_ms - conn->input.eof_seen_ms <= CONN_HALF_CLOSED_MS)
        return false;
    conn_close(conn);
    return true;
}

/* Most libraries write a whole pipeline before they read a reply. They would deadlock with a server that stops reading
 * until its replies are read. So a client that has taken none since the last tick may have twice as many pending bytes,
 * up to reply-buffer-limit. */
static void allow_more_replies(struct conn *conn)
{
    size_t waiting = conn_unsent(conn);
    if (waiting <= conn->io->delivery.high_water) {
        conn->output.allowance = conn->output.seen = 0;
        return;
    }
    bool stuck = waiting == conn->output.seen && waiting > conn_high_water(conn) && !conn->waits;
    conn->output.seen = waiting;
    if (!stuck || conn_is_closing(conn))
        return;
    conn->output.allowance = waiting * 2;
    conn_update(conn);
}

void conns_tick(struct io *io)
{
    int64_t timeout_ms = server_config(io->server)->network.timeout * 1000;
    for (struct conn *conn = io->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn_has_command(conn))
            conn_count_memory(conn);
        bool listens = conn->session.pubsub.subscribed || session_monitors(&conn->session);
        if (timeout_ms > 0 && !conn->waits && !listens && io->now_ms - conn->session.meters.last_ms > timeout_ms)
            conn_close(conn);
        else if (!conn_tls_over_time(conn) && !is_over_half_closed(conn) && !is_over_soft_limit(conn) &&
                 (conn_unsent(conn) || conn->output.allowance))
            allow_more_replies(conn);
    }
    client_limit_look(&io->client_limit);
}

/* ---- the end ---- */

void conns_close_all(struct io *io)
{
    while (io->conns)
        conn_close(io->conns);
    while (!conn_list_empty(&io->turns.waiting)) { /* closed connections with subscriptions left */
        struct conn *conn = CONN_OF(io->turns.waiting.next, turn);
        conn_list_remove(&conn->turn);
        conn_take_turn(conn);
    }
}

char *delivery_buf_get(struct delivery *delivery)
{
    if (delivery->nspare)
        return delivery->spare_bufs[--delivery->nspare];
    char *mem = malloc(DELIVERY_BUF_SIZE);
    return mem || !memory_reserve_spend(delivery->server) ? mem : malloc(DELIVERY_BUF_SIZE);
}

void delivery_buf_put(struct delivery *delivery, char *mem)
{
    if (delivery->nspare < DELIVERY_SPARE_BUFS)
        delivery->spare_bufs[delivery->nspare++] = mem;
    else
        free(mem);
}
