#include "expirer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "rcu.h"
#include "registry.h"
#include "thread.h"

#define BATCH    64
#define PAUSE_NS 60000 /* three times the duration of a batch under the mutex */
#define AGE_MS   (INT64_C(24) * 60 * 60 * 1000)

struct expirer {
    struct registry *registry;
    void (*pace)(void *ctx);
    void *ctx;
    pthread_t thread;
};

static void *expirer_main(void *arg)
{
    struct expirer *expirer = arg;
    int64_t aged_ms = clock_ms();
    thread_begin_background("expirer");
    rcu_reader_begin();
    rcu_reader_offline();
    while (registry_expire_wait(expirer->registry)) {
        registry_expire_due(expirer->registry, BATCH, NULL);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        if (expirer->pace)
            expirer->pace(expirer->ctx);
        if (clock_ms() - aged_ms >= AGE_MS) {
            aged_ms = clock_ms();
            rcu_reader_online();
            registry_age(expirer->registry, aged_ms);
            rcu_reader_offline();
        }
    }
    rcu_reader_end();
    return NULL;
}

int expirer_create(struct expirer **expirer_out, struct registry *registry, void (*pace)(void *ctx), void *ctx)
{
    struct expirer *expirer = calloc(1, sizeof(*expirer));
    if (!expirer)
        return -ENOMEM;
    expirer->registry = registry;
    expirer->pace = pace;
    expirer->ctx = ctx;
    int err = pthread_create(&expirer->thread, NULL, expirer_main, expirer);
    if (err) {
        free(expirer);
        return -err;
    }
    *expirer_out = expirer;
    return 0;
}

void expirer_destroy(struct expirer *expirer)
{
    if (!expirer)
        return;
    registry_expire_stop(expirer->registry);
    pthread_join(expirer->thread, NULL);
    free(expirer);
}
