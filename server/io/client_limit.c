/* Keeps the memory of clients below maxmemory-clients: beyond it the client with most memory is closed.
 *
 * Each loop keeps the sum of its clients' memory, and how large its largest is: a client that grows raises that number
 * at once, a look ten times a second lowers it. So no loop takes a smaller client for the largest of all. A loop reads
 * the sums of all loops at its looks, and when its own clients have used more than an even share of the memory that was
 * free at the last look. So usually no loop reads another loop's numbers. If the clients hold too much, the loop with
 * the largest of them closes it; others notify that loop.
 *
 * Clients with CLIENT NO-EVICT ON are neither counted nor closed: otherwise others would be closed for their memory. */
#include <inttypes.h>

#include "conn.h"
#include "log_text.h"
#include "memory_use.h"

#define CLOSED_AT_ONCE 16 /* clients, before others of the loop get their turn */

static struct client_memory *memory_of(const struct io *io)
{
    return &io->server->memory.of_clients[io->index];
}

void client_limit_note(struct conn *conn, size_t held)
{
    struct client_memory *memory = memory_of(conn->io); /* its one writer is this thread */
    if (held == conn->held)
        return;
    uint64_t sum = atomic_load_explicit(&memory->held, memory_order_relaxed) + held - conn->held;
    atomic_store_explicit(&memory->held, sum, memory_order_relaxed);
    if (held > atomic_load_explicit(&memory->largest, memory_order_relaxed))
        atomic_store_explicit(&memory->largest, held, memory_order_relaxed);
    conn->held = held;
}

static struct conn *find_largest(struct io *io)
{
    struct conn *largest = NULL, *conn;
    size_t most = 0;
    LIST_FOREACH(conn, &io->conns, link)
    {
        if (conn->held > most) {
            largest = conn;
            most = conn->held;
        }
    }
    atomic_store_explicit(&memory_of(io)->largest, most, memory_order_relaxed);
    return largest;
}

/* The index of the loop with the largest client; -1: no client may be closed. */
static int loop_of_largest(const struct server *server)
{
    uint64_t largest = 0;
    int of = -1;
    for (unsigned i = 0; i < server->threads.max_workers; i++) {
        uint64_t bytes = atomic_load_explicit(&server->memory.of_clients[i].largest, memory_order_relaxed);
        if (bytes > largest) {
            largest = bytes;
            of = (int)i;
        }
    }
    return of;
}

static void close_largest(struct conn *conn, uint64_t all, uint64_t most)
{
    struct server *server = conn->io->server;
    const struct session *session = &conn->session;
    log_limited(&server->log, &server->log.limits.client, conn->io->now_ms, LOG_LEVEL_WARNING,
                "client id=%" PRIu64 " addr=%s name=%s user=%s closed: it uses %s, more than any other, and the "
                "clients hold %s together; maxmemory-clients allows %s",
                session->id, session->origin.addr,
                session->texts.of[SESSION_NAME] ? session->texts.of[SESSION_NAME] : "",
                session->acl.user_name ? session->acl.user_name : "default", log_bytes(conn->held).text,
                log_bytes(all).text, log_bytes(most).text);
    stats_add(&conn->io->stats.evicted_clients, 1);
    conn_close(conn);
}

void client_limit_look(void *arg)
{
    struct io *io = arg;
    struct server *server = io->server;
    uint64_t most = memory_clients_limit(server, server_config(server)), all = memory_of_clients(server);
    struct conn *largest = most ? find_largest(io) : NULL;
    int of_largest = loop_of_largest(server);
    for (int i = 0; i < CLOSED_AT_ONCE && most && all > most && of_largest == (int)io->index; i++) {
        close_largest(largest, all, most);
        all = memory_of_clients(server);
        largest = find_largest(io);
        of_largest = loop_of_largest(server);
    }
    bool over = most && all > most;
    if (over && of_largest >= 0)
        mailbox_notify(server->threads.mailboxes[of_largest], NOTICE_CLIENTS);
    uint64_t room = over ? 0 : most - all, own = atomic_load_explicit(&memory_of(io)->held, memory_order_relaxed);
    io->clients_look_at = most ? own + room / server->threads.max_workers : UINT64_MAX;
}

void client_limit_keep(struct io *io)
{
    if (atomic_load_explicit(&memory_of(io)->held, memory_order_relaxed) > io->clients_look_at)
        client_limit_look(io);
}
