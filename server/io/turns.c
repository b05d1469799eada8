#include "turns.h"

#include <stdlib.h>

/* Puts a connection at the end of a list, once, which `serve` works off while the loop has nothing else to do. */
static void wait_for_idle(struct conn_link *waiting, struct conn_link *link, uv_idle_t *idle, uv_idle_cb serve)
{
    if (conn_link_used(link))
        return;
    conn_list_append(waiting, link);
    if (!uv_is_active((uv_handle_t *)idle))
        uv_idle_start(idle, serve);
}

/* A connection with more input at the end of its turn gets another in the next round, after others and new input. */
static void take_turns(uv_idle_t *handle)
{
    struct turns *turns = handle->data;
    uint64_t end_ns = clock_ns() + ROUND_NS;
    struct conn_link now, later;
    conn_list_init(&now);
    conn_list_init(&later);
    conn_list_move(&now, &turns->waiting);
    while (!conn_list_empty(&now)) {
        struct conn_link *link = now.next;
        conn_list_remove(link);
        turns->take(link);
        if (turns->round.over || clock_ns() >= end_ns)
            conn_list_move(&later, &now);
    }
    conn_list_move(&later, &turns->waiting); /* connections without a turn in this round come first */
    conn_list_move(&turns->waiting, &later);
    if (conn_list_empty(&turns->waiting))
        uv_idle_stop(handle);
}

void turns_init(struct turns *turns, uv_loop_t *loop, void (*take)(struct conn_link *link))
{
    turns->take = take;
    conn_list_init(&turns->waiting);
    uv_idle_init(loop, &turns->idle);
    turns->idle.data = turns;
}

void turns_close(struct turns *turns)
{
    uv_close((uv_handle_t *)&turns->idle, NULL);
}

void turns_give(struct turns *turns, struct conn_link *link)
{
    wait_for_idle(&turns->waiting, link, &turns->idle, take_turns);
}

/* ---- handshakes ---- */

static void do_steps(uv_idle_t *handle)
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

void handshakes_init(struct handshakes *handshakes, uv_loop_t *loop, void (*step)(struct conn_link *link))
{
    handshakes->step = step;
    conn_list_init(&handshakes->waiting);
    buf_init(&handshakes->sent, 2 * TLS_SEND_SIZE);
    uv_idle_init(loop, &handshakes->idle);
    handshakes->idle.data = handshakes;
}

void handshakes_deinit(struct handshakes *handshakes)
{
    free(handshakes->received);
    buf_deinit(&handshakes->sent);
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
    wait_for_idle(&handshakes->waiting, link, &handshakes->idle, do_steps);
}
