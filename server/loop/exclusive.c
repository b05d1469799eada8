#include "exclusive.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "conn.h"
#include "job.h"
#include "rcu.h"
#include "worker.h"

enum state {
    IDLE,      /* nobody has asked */
    DRAINING,  /* somebody has; the gate is posted when the last job has ended */
    GATHERING, /* the gate is posted; until all have been through */
};

struct exclusive {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state;
    unsigned jobs;    /* that read or change filters, under way in the pool */
    unsigned arrived; /* workers at the gate */
    unsigned served;  /* of these, how many have had their turn */
    uint64_t round;   /* gates that have opened */
};

int exclusive_create(struct exclusive **exclusive_out)
{
    struct exclusive *ex = calloc(1, sizeof(*ex));
    if (!ex)
        return -ENOMEM;
    pthread_mutex_init(&ex->lock, NULL);
    pthread_cond_init(&ex->changed, NULL);
    *exclusive_out = ex;
    return 0;
}

void exclusive_destroy(struct exclusive *ex)
{
    if (!ex)
        return;
    pthread_cond_destroy(&ex->changed);
    pthread_mutex_destroy(&ex->lock);
    free(ex);
}

/* Gives a turn to each of the worker's connections that have asked so far. */
static void serve(struct worker *worker)
{
    struct conn_link now;
    conn_list_init(&now);
    conn_list_move(&now, &worker->exclusive_waiters);
    worker_enter(worker);
    worker->exclusive = true;
    while (!conn_list_empty(&now)) {
        struct conn *conn = CONN_OF(now.next, waiter);
        conn_list_remove(&conn->waiter);
        conn_ready(conn, CONN_WAITS_EXCLUSIVE);
        conn_list_remove(&conn->turn);
        conn_take_turn(conn);
    }
    window_flush(worker);
    worker->exclusive = false;
}

static void at_gate(struct worker *worker, struct worker_message *message)
{
    struct exclusive *ex = worker->server->exclusive;
    (void)message;
    if (worker->stopping) /* as all others: they have met the gate that ends them before this one */
        return;
    worker_finish(worker);
    pthread_mutex_lock(&ex->lock);
    uint64_t round = ex->round;
    ex->arrived++;
    pthread_cond_broadcast(&ex->changed);
    while (ex->arrived < worker->server->nworkers)
        pthread_cond_wait(&ex->changed, &ex->lock);
    serve(worker); /* under the lock: one worker at a time */
    if (++ex->served == worker->server->nworkers) {
        ex->arrived = ex->served = 0;
        ex->state = IDLE;
        ex->round++;
        pthread_cond_broadcast(&ex->changed);
    } else {
        worker_pause_reading(worker);
        while (ex->round == round)
            pthread_cond_wait(&ex->changed, &ex->lock);
    }
    pthread_mutex_unlock(&ex->lock);
    worker_enter(worker);
    job_start_held(worker);
}

/* Under the lock. */
static void gather(struct server *server)
{
    server->exclusive->state = GATHERING;
    for (unsigned i = 0; i < server->nworkers; i++) {
        server->workers[i]->gate_message.run = at_gate;
        worker_post_message(server->workers[i], &server->workers[i]->gate_message);
    }
}

bool exclusive_now(const struct worker *worker)
{
    struct exclusive *ex = worker->server->exclusive;
    if (worker->exclusive)
        return true;
    if (worker->server->nworkers > 1)
        return false;
    pthread_mutex_lock(&ex->lock); /* with one worker nobody but it can start a job */
    bool none = ex->jobs == 0;
    pthread_mutex_unlock(&ex->lock);
    return none;
}

void exclusive_request(struct conn *conn)
{
    struct worker *worker = conn->worker;
    struct exclusive *ex = worker->server->exclusive;
    conn_wait(conn, CONN_WAITS_EXCLUSIVE);
    conn_list_append(&worker->exclusive_waiters, &conn->waiter);
    pthread_mutex_lock(&ex->lock);
    if (ex->state == IDLE) {
        ex->state = DRAINING;
        if (ex->jobs == 0)
            gather(worker->server);
    }
    pthread_mutex_unlock(&ex->lock);
}

bool exclusive_job_begin(struct worker *worker)
{
    struct exclusive *ex = worker->server->exclusive;
    if (worker->exclusive) /* this thread has the lock */
        return false;
    pthread_mutex_lock(&ex->lock);
    bool may = ex->state == IDLE || worker->stopping;
    ex->jobs += may;
    pthread_mutex_unlock(&ex->lock);
    return may;
}

void exclusive_job_end(struct server *server)
{
    struct exclusive *ex = server->exclusive;
    pthread_mutex_lock(&ex->lock);
    if (--ex->jobs == 0 && ex->state == DRAINING)
        gather(server);
    pthread_mutex_unlock(&ex->lock);
}

void exclusive_order_lock(struct exclusive *ex)
{
    pthread_mutex_lock(&ex->lock);
}

void exclusive_order_unlock(struct exclusive *ex)
{
    pthread_mutex_unlock(&ex->lock);
}
