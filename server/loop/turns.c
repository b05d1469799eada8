#include "turns.h"

#include "clock.h"
#include "conn.h"
#include "worker.h"

#define ROUND_NS (4 * TURN_NS) /* of turns, before new input is read again */

/* A connection with more input at the end of its turn gets another one in the next round, after the others and after
 * new input. */
static void on_idle(uv_idle_t *handle)
{
    struct worker *worker = handle->data;
    worker_enter(worker);
    uint64_t end_ns = clock_ns() + ROUND_NS;
    struct conn_link now, later;
    conn_list_init(&now);
    conn_list_init(&later);
    conn_list_move(&now, &worker->turns.waiting);
    while (!conn_list_empty(&now)) {
        struct conn *conn = CONN_OF(now.next, turn);
        conn_list_remove(&conn->turn);
        conn_take_turn(conn);
        if (clock_ns() >= end_ns)
            conn_list_move(&later, &now);
    }
    conn_list_move(&later, &worker->turns.waiting); /* connections without a turn in this round come first */
    conn_list_move(&worker->turns.waiting, &later);
    if (conn_list_empty(&worker->turns.waiting))
        uv_idle_stop(handle);
}

void turns_init(struct worker *worker)
{
    conn_list_init(&worker->turns.waiting);
}

void turns_open(struct worker *worker)
{
    uv_idle_init(&worker->loop, &worker->turns.idle);
    worker->turns.idle.data = worker;
}

void turns_close(struct worker *worker)
{
    uv_close((uv_handle_t *)&worker->turns.idle, NULL);
}

void turns_give(struct worker *worker, struct conn *conn)
{
    if (conn_link_used(&conn->turn) || worker->stopping)
        return;
    conn_list_append(&worker->turns.waiting, &conn->turn);
    if (!uv_is_active((uv_handle_t *)&worker->turns.idle))
        uv_idle_start(&worker->turns.idle, on_idle);
}
