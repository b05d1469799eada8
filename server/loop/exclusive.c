#include "exclusive.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "conn.h"
#include "job.h"
#include "worker.h"

enum state {
    IDLE,      /* no request */
    DRAINING,  /* requested; the gate is posted when the last job has ended */
    GATHERING, /* the gate is posted; until all workers have passed it */
};

/* A call of exclusive_visit(). */
struct visit {
    struct visit *next;
    void (*run)(void *ctx);
    void *ctx;
    bool done;
};

struct exclusive {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state;
    unsigned jobs;      /* running jobs of the pool that read or change filters */
    unsigned arrived;   /* workers at the gate */
    unsigned served;    /* of these, workers that have had their turn */
    uint64_t round;     /* gates that have opened */
    uint64_t closed_ns; /* time at which the last worker arrived */
    struct visit *visits;
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

#define GATE_NS UINT64_C(4000000) /* all workers stand still: no new turn begins after this time */

/* Gives a turn to each of the worker's connections with a request, unless the gate has been closed too long. */
static void serve(struct worker *worker, uint64_t closed_ns)
{
    struct conn_link now;
    conn_list_init(&now);
    conn_list_move(&now, &worker->section.waiters);
    worker_enter(worker);
    worker->section.inside = true;
    while (!conn_list_empty(&now) && clock_ns() - closed_ns < GATE_NS) {
        struct conn *conn = CONN_OF(now.next, waiter);
        conn_ready(conn, CONN_WAITS_EXCLUSIVE);
        conn_list_remove(&conn->turn);
        conn_take_turn(conn);
    }
    window_flush(worker);
    conn_list_move(&worker->section.waiters, &now); /* these have asked for the next gate */
    worker->section.inside = false;
}

/* Under the lock, when all workers have arrived. */
static void run_visits(struct worker *worker)
{
    struct exclusive *ex = worker->server->exclusive;
    if (!ex->visits)
        return;
    worker_enter(worker);
    for (; ex->visits; ex->visits = ex->visits->next) {
        ex->visits->run(ex->visits->ctx);
        ex->visits->done = true;
    }
    pthread_cond_broadcast(&ex->changed);
}

static void ask(struct server *server);

static void at_gate(struct worker *worker, struct worker_message *message)
{
    struct exclusive *ex = worker->server->exclusive;
    (void)message;
    if (worker->stopping) /* so are all others: the gate that ends them came before this one */
        return;
    worker_finish(worker);
    pthread_mutex_lock(&ex->lock);
    uint64_t round = ex->round;
    ex->arrived++;
    pthread_cond_broadcast(&ex->changed);
    while (ex->arrived < worker->server->nworkers)
        pthread_cond_wait(&ex->changed, &ex->lock);
    if (ex->served == 0) {
        ex->closed_ns = clock_ns();
        run_visits(worker);
    }
    serve(worker, ex->closed_ns); /* under the lock: one worker at a time */
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
    if (!conn_list_empty(&worker->section.waiters))
        ask(worker->server);
}

/* Under the lock. */
static void gather(struct server *server)
{
    server->exclusive->state = GATHERING;
    for (unsigned i = 0; i < server->nworkers; i++) {
        server->workers[i]->section.message.run = at_gate;
        worker_post_message(server->workers[i], &server->workers[i]->section.message);
    }
}

bool exclusive_now(const struct worker *worker)
{
    struct exclusive *ex = worker->server->exclusive;
    if (worker->section.inside)
        return true;
    if (worker->server->nworkers > 1)
        return false;
    pthread_mutex_lock(&ex->lock); /* with one worker only this thread can start a job */
    bool none = ex->jobs == 0;
    pthread_mutex_unlock(&ex->lock);
    return none;
}

/* Under the lock. */
static void ask_locked(struct server *server)
{
    struct exclusive *ex = server->exclusive;
    if (ex->state != IDLE)
        return;
    ex->state = DRAINING;
    if (ex->jobs == 0)
        gather(server);
}

static void ask(struct server *server)
{
    pthread_mutex_lock(&server->exclusive->lock);
    ask_locked(server);
    pthread_mutex_unlock(&server->exclusive->lock);
}

#define VISIT_S 10

bool exclusive_visit(struct server *server, void (*run)(void *ctx), void *ctx)
{
    struct exclusive *ex = server->exclusive;
    struct visit visit = {.run = run, .ctx = ctx}, **link;
    struct timespec end;
    int status = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += VISIT_S;
    pthread_mutex_lock(&ex->lock);
    visit.next = ex->visits;
    ex->visits = &visit;
    while (!visit.done && status == 0) {
        ask_locked(server); /* again when the gate before has opened without this visit */
        status = pthread_cond_timedwait(&ex->changed, &ex->lock, &end);
    }
    for (link = &ex->visits; !visit.done && *link; link = &(*link)->next) {
        if (*link == &visit) {
            *link = visit.next;
            break;
        }
    }
    pthread_mutex_unlock(&ex->lock);
    return visit.done;
}

void exclusive_request(struct conn *conn)
{
    struct worker *worker = conn->worker;
    conn_wait(conn, CONN_WAITS_EXCLUSIVE, &worker->section.waiters);
    ask(worker->server);
}

bool exclusive_job_begin(struct worker *worker)
{
    struct exclusive *ex = worker->server->exclusive;
    if (worker->section.inside) /* this thread has the lock */
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
