#include "log_waits.h"

#include "conn.h"
#include "journal.h"
#include "sleep.h"
#include "worker.h"

void log_waits_init(struct worker *worker)
{
    conn_list_init(&worker->log.for_ticket);
    conn_list_init(&worker->log.for_room);
}

bool log_waits_look(struct worker *worker)
{
    struct journal *journal = server_journal(worker->server);
    bool records = journal && journal_records(journal);
    worker->log.ring = records ? journal_ring(journal, worker->index) : NULL;
    return records && journal_is_full(journal, worker->index);
}

/* The worker sets `sleeps` and then reads `durable`; this thread does it in the opposite order. */
void log_waits_post_durable(struct worker *worker, uint64_t ticket)
{
    atomic_store(&worker->log.durable, ticket);
    if (atomic_load(&worker->log.sleeps))
        mailbox_wake(&worker->mailbox);
}

void log_waits_post_room(struct worker *worker)
{
    atomic_store(&worker->log.has_room, true);
    mailbox_wake(&worker->mailbox);
}

#define FOR_EACH_WITH_REPLIES(worker, link) \
    for (struct conn_link *link = (worker)->delivery.conns.next; link != &(worker)->delivery.conns; link = link->next)

/* All replies of an iteration share a ticket. It is taken before any reply leaves, so that the disk works while replies
 * of earlier tickets leave. */
void log_waits_hold_replies(struct worker *worker)
{
    struct journal *journal = server_journal(worker->server);
    size_t replies = 0;
    FOR_EACH_WITH_REPLIES(worker, link)
    replies += CONN_OF(link, with_replies)->output.wrote;
    if (replies == 0)
        return;
    uint64_t ticket = journal ? journal_ticket(journal, worker->index, replies) : 0;
    bool wait = ticket > atomic_load_explicit(&worker->log.durable, memory_order_acquire);
    FOR_EACH_WITH_REPLIES(worker, link)
    {
        struct conn *conn = CONN_OF(link, with_replies);
        if (conn->output.wrote && wait) {
            conn->output.ticket = ticket;
            conn_wait(conn, CONN_WAITS_DURABLE, &worker->log.for_ticket);
        }
        conn->output.wrote = false;
    }
}

void log_waits_release_durable(struct worker *worker)
{
    uint64_t done = atomic_load(&worker->log.durable);
    sleepers_look_at_log(worker, done);
    while (!conn_list_empty(&worker->log.for_ticket)) {
        struct conn *conn = CONN_OF(worker->log.for_ticket.next, durable);
        if (conn->output.ticket > done)
            break;
        worker_enter(worker);
        conn_ready(conn, CONN_WAITS_DURABLE);
    }
}

void log_waits_release_room(struct worker *worker)
{
    if (!atomic_exchange(&worker->log.has_room, false) || conn_list_empty(&worker->log.for_room))
        return;
    worker_enter(worker);
    conn_all_ready(&worker->log.for_room, CONN_WAITS_ROOM);
}
