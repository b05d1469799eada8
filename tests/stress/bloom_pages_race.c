/* Threads take runs of pages and give them back, their own and those of others: each run is zero, and nobody else
 * writes to it. */
#include <stdatomic.h>
#include <stdint.h>

#include "bloom_pages.h"
#include "rng.h"
#include "stress.h"

#define SHELVES 40 /* runs at a time, of some 200 KB: less than a region, or more */
#define STEPS   1500
#define WORD    (BLOOM_PAGES_MIN / 8)

static struct bloom_pages pages;
static uint64_t *_Atomic shelves[SHELVES];

/* The first word of a run is its length. */
static void give(uint64_t *run)
{
    size_t bytes = (size_t)run[0];
    EXPECT(run[WORD - 1] == bytes && run[bytes / 8 - 1] == bytes, "another thread wrote to a run");
    bloom_pages_free(&pages, run, bytes);
}

static void *take_and_give(void *arg)
{
    struct rng rng;
    rng_init(&rng, (uint64_t)(uintptr_t)arg);
    for (unsigned i = 0; i < STEPS; i++) {
        size_t bytes = BLOOM_PAGES_MIN + 8 * (size_t)rng_below(&rng, 40000);
        uint64_t *run = bloom_pages_alloc(&pages, bytes, rng_below(&rng, 2) ? BLOOM_PAGES_DENSE : BLOOM_PAGES_LOOSE);
        EXPECT(run, "no memory");
        EXPECT((run[0] | run[WORD - 1] | run[bytes / 8 - 1]) == 0, "a run is not zero");
        run[0] = run[WORD - 1] = run[bytes / 8 - 1] = bytes;
        uint64_t *other = atomic_exchange(&shelves[rng_below(&rng, SHELVES)], run);
        if (other)
            give(other);
    }
    return NULL;
}

int main(void)
{
    static void *(*const fns[])(void *) = {take_and_give, take_and_give, take_and_give, take_and_give};
    bloom_pages_init(&pages);
    run_threads(fns, sizeof(fns) / sizeof(fns[0]));
    for (unsigned i = 0; i < SHELVES; i++) {
        uint64_t *run = atomic_load(&shelves[i]);
        if (run)
            give(run);
    }
    bloom_pages_deinit(&pages); /* checks that all has come back */
    return 0;
}
