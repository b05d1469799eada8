#include "settler.h"

#include "bloom_settle.h"
#include "rcu.h"

/* Between two pages: a read section ends, as merges and the reclaimer wait for that. */
static bool go_on(void *ctx)
{
    struct settler *settler = ctx;
    rcu_reader_offline();
    rcu_reader_online();
    return !atomic_load_explicit(&settler->stop, memory_order_relaxed);
}

static void settle(uv_work_t *work)
{
    struct settler *settler = work->data;
    rcu_reader_begin();
    bloom_pool_settle(settler->pool, go_on, settler);
    rcu_reader_end();
}

static void settled(uv_work_t *work, int status)
{
    struct settler *settler = work->data;
    (void)status;
    settler->running = false;
}

void settler_tick(struct settler *settler)
{
    if (settler->running || settler->stop || bloom_pool_is_settled(settler->pool))
        return;
    settler->running = true;
    settler->work.data = settler;
    uv_queue_work(settler->loop, &settler->work, settle, settled);
}

void settler_stop(struct settler *settler)
{
    atomic_store(&settler->stop, true);
    while (settler->running)
        uv_run(settler->loop, UV_RUN_ONCE);
}
