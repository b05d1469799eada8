#include "exclusive.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "conn.h"
#include "lock.h"

enum state {
    IDLE,      /* no request */
    DRAINING,  /* requested; the gate is posted when the last job has ended */
    GATHERING, /* the gate is posted; until all workers have passed it */
};

struct exclusive {
    struct lock lock;
    pthread_cond_t changed;
    enum state state;
    atomic_uint jobs;   /* running jobs of the pool that read or change filters; changed under the lock */
    unsigned arrived;   /* workers at the gate */
    unsigned served;    /* of these, workers that have had their turn */
    uint64_t round;     /* gates that have opened */
    uint64_t closed_ns; /* time at which the last worker arrived */
};

int exclusive_create(struct exclusive **exclusive_out)
{
    struct exclusive *ex = calloc(1, sizeof(*ex));
    if (!ex)
        return -ENOMEM;
    lock_init(&ex->lock, RANK_EXCLUSIVE);
    pthread_cond_init(&ex->changed, NULL);
    *exclusive_out = ex;
    return 0;
}

void exclusive_destroy(struct exclusive *ex)
{
    if (!ex)
        return;
    pthread_cond_destroy(&ex->changed);
    lock_deinit(&ex->lock);
    free(ex);
}

#define GATE_NS UINT64_C(4000000) /* all workers stand still: no new turn begins after this time */

/* Gives a turn to each of the loop's connections with a request, unless the gate has been closed too long. */
static void serve(struct section *section, uint64_t closed_ns)
{
    struct conn_link now;
    conn_list_init(&now);
    conn_list_move(&now, &section->waiters);
    io_enter(section->io);
    section->inside = true;
    while (!conn_list_empty(&now) && clock_ns() - closed_ns < GATE_NS) {
        struct conn *conn = CONN_OF(now.next, waiter);
        conn_ready(conn, CONN_WAITS_EXCLUSIVE);
        conn_list_remove(&conn->turn);
        conn_take_turn(conn);
    }
    io_settle(section->io);
    conn_list_move(&section->waiters, &now); /* these have asked for the next gate */
    section->inside = false;
}

static void ask(struct server *server);

/* When the daemon ends it is not called any more: the gate that ends the workers came before this one. */
static void at_gate(void *part)
{
    struct section *section = part;
    struct server *server = section->io->server;
    struct exclusive *ex = server->exclusive;
    section->io->calls->finish(section->io);
    lock_take(&ex->lock);
    uint64_t round = ex->round;
    ex->arrived++;
    pthread_cond_broadcast(&ex->changed);
    while (ex->arrived < server->threads.nworkers)
        lock_wait(&ex->changed, &ex->lock);
    if (ex->served == 0)
        ex->closed_ns = clock_ns();
    serve(section, ex->closed_ns); /* under the lock: one worker at a time */
    if (++ex->served == server->threads.nworkers) {
        ex->arrived = ex->served = 0;
        ex->state = IDLE;
        ex->round++;
        pthread_cond_broadcast(&ex->changed);
    } else {
        section->io->calls->pause(section->io);
        while (ex->round == round)
            lock_wait(&ex->changed, &ex->lock);
    }
    lock_give(&ex->lock);
    io_enter(section->io);
    section->opened(section);
    if (!conn_list_empty(&section->waiters))
        ask(server);
}

/* Under the lock. */
static void gather(struct server *server)
{
    server->exclusive->state = GATHERING;
    io_notify_all(server, NOTICE_GATE);
}

bool exclusive_now(const struct section *section)
{
    struct exclusive *ex = section->io->server->exclusive;
    if (section->inside)
        return true;
    if (section->io->server->threads.nworkers > 1)
        return false;
    return atomic_load(&ex->jobs) == 0; /* with one worker only this thread can start a job */
}

static void ask(struct server *server)
{
    struct exclusive *ex = server->exclusive;
    lock_take(&ex->lock);
    if (ex->state == IDLE) {
        ex->state = DRAINING;
        if (ex->jobs == 0)
            gather(server);
    }
    lock_give(&ex->lock);
}

void exclusive_request(struct section *section, struct conn *conn)
{
    conn_wait(conn, CONN_WAITS_EXCLUSIVE, &section->waiters);
    ask(section->io->server);
}

bool exclusive_job_begin(struct section *section)
{
    struct exclusive *ex = section->io->server->exclusive;
    if (section->inside) /* this thread has the lock */
        return false;
    lock_take(&ex->lock);
    bool may = ex->state == IDLE || section->io->stopping;
    ex->jobs += may;
    lock_give(&ex->lock);
    return may;
}

void exclusive_job_end(struct server *server)
{
    struct exclusive *ex = server->exclusive;
    lock_take(&ex->lock);
    if (--ex->jobs == 0 && ex->state == DRAINING)
        gather(server);
    lock_give(&ex->lock);
}

void exclusive_order_lock(struct exclusive *ex)
{
    lock_take(&ex->lock);
}

void exclusive_order_unlock(struct exclusive *ex)
{
    lock_give(&ex->lock);
}

void section_init(struct section *section, struct io *io, void (*opened)(struct section *section))
{
    section->io = io;
    section->opened = opened;
    conn_list_init(&section->waiters);
    mailbox_expect(&io->mailbox, NOTICE_GATE, at_gate, section);
}
