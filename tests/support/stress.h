/* stress: assertions and threads of the stress programs. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* If the condition does not hold, prints a message like printf and ends the program with status 1. Any thread. */
#define EXPECT(condition, ...)                                              \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fputc('\n', stderr);                                            \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

/* Runs each function in its own thread, with its number (from 1) as the argument, until all have returned. At most
 * 16. */
static inline void run_threads(void *(*const *fns)(void *), size_t n)
{
    pthread_t threads[16];

    for (size_t i = 0; i < n; i++)
        EXPECT(pthread_create(&threads[i], NULL, fns[i], (void *)(uintptr_t)(i + 1)) == 0, "no thread");
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}
