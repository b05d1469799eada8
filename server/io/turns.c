#include "turns.h"

/* A connection with more input at the end of its turn gets another one in the next round, after the others and after
 * new input. */
static void on_idle(uv_idle_t *handle)
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

void turns_init(struct turns *turns, void (*take)(struct conn_link *link))
{
    turns->take = take;
    conn_list_init(&turns->waiting);
}

void turns_open(struct turns *turns, uv_loop_t *loop)
{
    uv_idle_init(loop, &turns->idle);
    turns->idle.data = turns;
}

void turns_close(struct turns *turns)
{
    uv_close((uv_handle_t *)&turns->idle, NULL);
}

void turns_give(struct turns *turns, struct conn_link *link)
{
    if (conn_link_used(link))
        return;
    conn_list_append(&turns->waiting, link);
    if (!uv_is_active((uv_handle_t *)&turns->idle))
        uv_idle_start(&turns->idle, on_idle);
}
