/* Several threads query one filter of libbloomery, and read its numbers; each has its own filter next to it. The
 * tsan preset checks this. */
#include <bloomery.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4
#define ITEMS   20000

static bloomery_filter *shared;
static unsigned numbers[ITEMS];
static struct bloomery_item items[ITEMS];

static void demand(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "threads.c: not so: %s\n", what);
    exit(1);
}
#define DEMAND(condition) demand((condition) != 0, #condition)

static void *work(void *ctx)
{
    unsigned char *answers = malloc(ITEMS);
    bloomery_filter *own;

    (void)ctx;
    DEMAND(answers);
    for (int round = 0; round < 3; round++) {
        DEMAND(bloomery_create(0.01, ITEMS, "ka", &own, NULL, 0) == BLOOMERY_OK);
        DEMAND(bloomery_add_many(own, items, ITEMS, NULL, NULL, NULL, 0) == BLOOMERY_OK);
        bloomery_has_many(shared, items, ITEMS, answers);
        for (unsigned i = 0; i < ITEMS; i++)
            DEMAND(answers[i] && bloomery_has(shared, items[i].data, items[i].size));
        size_t size = (size_t)bloomery_bytes(shared);
        unsigned char *bytes = malloc(size);
        DEMAND(bytes && bloomery_write(shared, bytes, size, NULL, 0) == BLOOMERY_OK);
        DEMAND(bloomery_rate(shared) < 0.02 && bloomery_merge(own, own, NULL, 0) == BLOOMERY_OK);
        free(bytes);
        bloomery_free(own);
    }
    free(answers);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < ITEMS; i++) {
        numbers[i] = i;
        items[i] = (struct bloomery_item){&numbers[i], sizeof(numbers[i])};
    }
    DEMAND(bloomery_create(0.01, ITEMS, "na", &shared, NULL, 0) == BLOOMERY_OK);
    DEMAND(bloomery_add_many(shared, items, ITEMS, NULL, NULL, NULL, 0) == BLOOMERY_OK);
    for (int i = 0; i < THREADS; i++)
        DEMAND(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    bloomery_free(shared);
    return 0;
}
