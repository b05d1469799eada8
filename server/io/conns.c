#include "conns.h"

#include <inttypes.h>

#include "conn.h"
#include "conn_tls.h"
#include "log_text.h"

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
    delivery_init(&io->delivery, server);
    turns_init(&io->turns, take_turn);
    handshakes_init(&io->handshakes, step_handshake);
    return input_init(&io->input);
}

void conns_deinit(struct io *io)
{
    delivery_deinit(&io->delivery);
    input_deinit(&io->input);
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

void conns_refresh(struct io *io, const struct config *config)
{
    input_refresh(&io->input, config);
    delivery_refresh(&io->delivery, config);
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
