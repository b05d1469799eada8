/* loops: threads of a stress program that represent event loops: they sleep until a hub wakes them. Include it in one
 * file of a program. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#define LOOPS 3

static struct loop {
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool wake;
} loops[LOOPS];

static inline void loops_init(void)
{
    for (unsigned i = 0; i < LOOPS; i++) {
        pthread_mutex_init(&loops[i].lock, NULL);
        pthread_cond_init(&loops[i].woken, NULL);
    }
}

/* Called like a hub's function. */
static inline void loop_wake(void *ctx, unsigned i)
{
    (void)ctx;
    pthread_mutex_lock(&loops[i].lock);
    loops[i].wake = true;
    pthread_cond_signal(&loops[i].woken);
    pthread_mutex_unlock(&loops[i].lock);
}

/* Returns at once if it was woken since the last call. */
static inline void loop_sleep(unsigned i)
{
    pthread_mutex_lock(&loops[i].lock);
    while (!loops[i].wake)
        pthread_cond_wait(&loops[i].woken, &loops[i].lock);
    loops[i].wake = false;
    pthread_mutex_unlock(&loops[i].lock);
}
