/* stress: what programs of many threads have in common. */
#ifndef BLOOMERY_TEST_STRESS_H
#define BLOOMERY_TEST_STRESS_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Otherwise says what is wrong, as printf does, and ends the program with status 1. In any thread. */
#define EXPECT(condition, ...)                                              \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fputc('\n', stderr);                                            \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

/* Runs each function in its own thread, which is given its number from 1 on, until all have returned. At most 16.
 */
static inline void run_threads(void *(*const *fns)(void *), size_t n)
{
    pthread_t threads[16];

    for (size_t i = 0; i < n; i++)
        EXPECT(pthread_create(&threads[i], NULL, fns[i], (void *)(uintptr_t)(i + 1)) == 0, "no thread");
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

#endif
