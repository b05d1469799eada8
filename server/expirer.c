#include "expirer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "registry.h"

#define BATCH    64
#define PAUSE_NS 60000 /* three times as long as the mutex is held for a batch */

struct expirer {
    struct registry *registry;
    pthread_t thread;
};

static void *expirer_main(void *arg)
{
    struct expirer *expirer = arg;
    while (registry_expire_wait(expirer->registry)) {
        registry_expire_due(expirer->registry, BATCH, NULL);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return NULL;
}

int expirer_create(struct expirer **expirer_out, struct registry *registry)
{
    struct expirer *expirer = calloc(1, sizeof(*expirer));
    if (!expirer)
        return -ENOMEM;
    expirer->registry = registry;
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
