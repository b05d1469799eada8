#include "handshakes.h"

#include <stdlib.h>

#include "clock.h"

static void on_idle(uv_idle_t *handle)
{
    struct handshakes *handshakes = handle->data;
    uint64_t end_ns = clock_ns() + HANDSHAKES_NS;
    while (!conn_list_empty(&handshakes->waiting)) {
        struct conn_link *link = handshakes->waiting.next;
        conn_list_remove(link);
        handshakes->step(link);
        if (clock_ns() >= end_ns)
            break;
    }
    if (conn_list_empty(&handshakes->waiting))
        uv_idle_stop(handle);
}

void handshakes_init(struct handshakes *handshakes, void (*step)(struct conn_link *link))
{
    handshakes->step = step;
    conn_list_init(&handshakes->waiting);
    buf_init(&handshakes->sent, 2 * TLS_SEND_SIZE);
}

void handshakes_deinit(struct handshakes *handshakes)
{
    free(handshakes->received);
    buf_deinit(&handshakes->sent);
}

void handshakes_open(struct handshakes *handshakes, uv_loop_t *loop)
{
    uv_idle_init(loop, &handshakes->idle);
    handshakes->idle.data = handshakes;
}

void handshakes_close(struct handshakes *handshakes)
{
    uv_close((uv_handle_t *)&handshakes->idle, NULL);
}

bool handshakes_prepare(struct handshakes *handshakes)
{
    if (!handshakes->received)
        handshakes->received = malloc(TLS_READ_SIZE);
    return handshakes->received;
}

void handshakes_give(struct handshakes *handshakes, struct conn_link *link)
{
    if (conn_link_used(link))
        return;
    conn_list_append(&handshakes->waiting, link);
    if (!uv_is_active((uv_handle_t *)&handshakes->idle))
        uv_idle_start(&handshakes->idle, on_idle);
}
