#include "handshakes.h"

#include <stdlib.h>

#include "clock.h"
#include "conn_tls.h"
#include "worker.h"

static void on_idle(uv_idle_t *handle)
{
    struct worker *worker = handle->data;
    struct conn_link *waiting = &worker->handshakes.waiting;
    worker_enter(worker);
    uint64_t end_ns = clock_ns() + HANDSHAKES_NS;
    while (!conn_list_empty(waiting)) {
        struct conn *conn = CONN_OF(waiting->next, waiter);
        conn_list_remove(&conn->waiter);
        conn_tls_step(conn);
        if (clock_ns() >= end_ns)
            break;
    }
    if (conn_list_empty(waiting))
        uv_idle_stop(handle);
}

void handshakes_init(struct worker *worker)
{
    conn_list_init(&worker->handshakes.waiting);
    buf_init(&worker->handshakes.sent, 2 * TLS_SEND_SIZE);
}

void handshakes_deinit(struct worker *worker)
{
    free(worker->handshakes.received);
    buf_deinit(&worker->handshakes.sent);
}

void handshakes_open(struct worker *worker)
{
    uv_idle_init(&worker->loop, &worker->handshakes.idle);
    worker->handshakes.idle.data = worker;
}

void handshakes_close(struct worker *worker)
{
    uv_close((uv_handle_t *)&worker->handshakes.idle, NULL);
}

bool handshakes_prepare(struct worker *worker)
{
    if (!worker->handshakes.received)
        worker->handshakes.received = malloc(TLS_READ_SIZE);
    return worker->handshakes.received;
}

void handshakes_give(struct worker *worker, struct conn *conn)
{
    if (conn_link_used(&conn->waiter) || worker->stopping)
        return;
    conn_list_append(&worker->handshakes.waiting, &conn->waiter);
    if (!uv_is_active((uv_handle_t *)&worker->handshakes.idle))
        uv_idle_start(&worker->handshakes.idle, on_idle);
}
