/* Each allocation of a scenario of libbloomery fails in turn: the call that needed it returns the error and leaves
 * everything unchanged, and the same call succeeds afterwards. The asan preset checks that no memory is lost. */
#include <bloomery.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_countdown.h"

static const char *file;
static char reason[BLOOMERY_TEXT];

#define TEXT reason, sizeof(reason)
#define DEMAND(condition)                                                                   \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "fault.c:%d: not so: %s (%s)\n", __LINE__, #condition, reason); \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* A call that may fail for memory, once in a scenario; then it is repeated. */
static unsigned failures;
#define CALL(call)                                                                               \
    do {                                                                                         \
        int status_of_call = (call);                                                             \
        if (status_of_call != BLOOMERY_OK) {                                                     \
            DEMAND(status_of_call == BLOOMERY_NO_MEMORY && reason[0] && alloc_countdown_stop()); \
            failures++;                                                                          \
            DEMAND((call) == BLOOMERY_OK);                                                       \
        }                                                                                        \
    } while (0)

/* Layers of three kinds: after the header, on shared pages, mapped. */
static void run(const char *layout, uint64_t capacity)
{
    bloomery_filter *filter = NULL, *other = NULL, *opened = NULL;

    CALL(bloomery_create(0.01, capacity, layout, &filter, TEXT));
    CALL(bloomery_add(filter, "a", 1, NULL, TEXT));
    size_t size = (size_t)bloomery_bytes(filter);
    alloc_countdown_spare(true);
    unsigned char *bytes = malloc(2 * size);
    alloc_countdown_spare(false);
    DEMAND(bytes);
    CALL(bloomery_write(filter, bytes, size, TEXT));
    memcpy(bytes + size, bytes, size);
    if (layout[0] == 'r') { /* a filter that grows */
        bytes[12] = bytes[size + 12] = 5;
        bytes[16] = bytes[size + 16] = 2;
    }
    CALL(bloomery_read(bytes, 2 * size, layout, 2, &other, TEXT));
    DEMAND(bloomery_has(other, "a", 1) && !bloomery_has(other, "b", 1) && bloomery_layers(other) == 2);
    CALL(bloomery_save(other, file, TEXT));
    CALL(bloomery_open(file, layout, &opened, TEXT));
    CALL(bloomery_add(opened, "b", 1, NULL, TEXT));
    CALL(bloomery_merge(opened, other, TEXT));
    DEMAND(bloomery_has(opened, "a", 1) && bloomery_has(opened, "b", 1));
    bloomery_free(opened);
    bloomery_free(other);
    bloomery_free(filter);
    free(bytes);
}

int main(int argc, char **argv)
{
    static const char *const layouts[] = {"na", "ka", "redisbloom"};
    static const uint64_t capacities[] = {10, 20000, 3000000};

    if (argc < 2)
        return 2;
    file = argv[1];
    for (int i = 0; i < 9; i++) {
        unsigned failed = 0;
        size_t at = 0;
        for (bool fails = true; fails; at++) {
            failures = 0;
            alloc_countdown_start(at);
            run(layouts[i % 3], capacities[i / 3]);
            fails = alloc_countdown_stop();
            DEMAND(failures <= fails);
            failed += failures;
        }
        DEMAND(failed > 10); /* the other allocations have a fallback: huge pages */
        printf("%s, %llu items: %zu allocations, %u failures\n", layouts[i % 3], (unsigned long long)capacities[i / 3],
               at - 1, failed);
    }
    remove(file);
    return 0;
}
