/* settler: moves large filters to huge pages (bloom_pool_settle()), in a thread of libuv's pool.
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_SETTLER_H
#define BLOOMERY_SETTLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

struct settler {
    uv_work_t work;
    uv_loop_t *loop;
    struct bloom_pool *pool;
    bool running;
    atomic_bool stop;
};

/* Starts a pass over the filters, unless the last one is still running. Called every 100 ms, but not during a replay,
 * which writes words without their filter's lock. */
void settler_tick(struct settler *settler);

/* Ends a running pass, within milliseconds, and runs the loop until then. No pass starts afterwards. */
void settler_stop(struct settler *settler);

#endif
