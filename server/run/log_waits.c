#include "log_waits.h"

#include "conn.h"
#include "journal.h"
#include "registry_effect.h"
#include "server.h"

void log_waits_init(struct log_waits *log, struct io *io)
{
    log->io = io;
    conn_list_init(&log->for_ticket);
    conn_list_init(&log->for_room);
}

bool log_waits_look(struct log_waits *log)
{
    struct journal *journal = server_journal(log->io->server);
    bool records = journal && journal_records(journal);
    log->ring = records ? journal_ring(journal, log->io->index) : NULL;
    return records && journal_is_full(journal, log->io->index);
}

/* The worker sets `sleeps` and then reads `durable`; this thread does it in the opposite order. */
void log_waits_post_durable(struct log_waits *log, uint64_t ticket)
{
    atomic_store(&log->durable, ticket);
    if (atomic_load(&log->sleeps))
        mailbox_wake(&log->io->mailbox);
}

void log_waits_post_room(struct log_waits *log)
{
    atomic_store(&log->has_room, true);
    mailbox_wake(&log->io->mailbox);
}

#define FOR_EACH_WITH_REPLIES(list, link) for (struct conn_link *link = (list)->next; link != (list); link = link->next)

/* All replies of an iteration share a ticket. It is taken before any reply is sent, so the disk works while replies of
 * earlier tickets are sent. It is taken after the records of all changes that the iteration has seen: an add to a
 * filter is useless without the record of the filter's creation, which another loop may be about to write. */
void log_waits_hold_replies(struct log_waits *log)
{
    struct journal *journal = server_journal(log->io->server);
    const struct conn_link *with_replies = &log->io->delivery.conns;
    size_t replies = 0;
    FOR_EACH_WITH_REPLIES(with_replies, link)
    replies += CONN_OF(link, with_replies)->output.wrote;
    if (replies == 0)
        return;
    registry_await_records(log->io->server->registry);
    uint64_t ticket = journal ? journal_ticket(journal, log->io->index, replies) : 0;
    bool wait = ticket > atomic_load_explicit(&log->durable, memory_order_acquire);
    FOR_EACH_WITH_REPLIES(with_replies, link)
    {
        struct conn *conn = CONN_OF(link, with_replies);
        if (conn->output.wrote && wait) {
            conn->output.ticket = ticket;
            conn_wait(conn, CONN_WAITS_DURABLE, &log->for_ticket);
        }
        conn->output.wrote = false;
    }
}

void log_waits_release_durable(struct log_waits *log)
{
    uint64_t done = atomic_load(&log->durable);
    while (!conn_list_empty(&log->for_ticket)) {
        struct conn *conn = CONN_OF(log->for_ticket.next, unsynced);
        if (conn->output.ticket > done)
            break;
        io_enter(log->io);
        conn_ready(conn, CONN_WAITS_DURABLE);
    }
}

void log_waits_release_room(struct log_waits *log)
{
    if (!atomic_exchange(&log->has_room, false) || conn_list_empty(&log->for_room))
        return;
    io_enter(log->io);
    conn_all_ready(&log->for_room, CONN_WAITS_ROOM);
}
