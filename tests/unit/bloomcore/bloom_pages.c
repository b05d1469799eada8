/* Runs of pages for layers of medium size. */
#include "bloom_pages.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "rng.h"

#define REGION  ((size_t)16 << 20)
#define BLOCK   ((size_t)2 << 20)
#define LONGEST (BLOOM_PAGES_MAX - 8)

static struct bloom_pages pages;

static void set_up(void)
{
    bloom_pages_init(&pages);
}

/* The destruction checks that everything was given back. */
static void tear_down(void)
{
    bloom_pages_deinit(&pages);
}

TestSuite(bloom_pages, .init = set_up, .fini = tear_down);

static bool is_zero(const char *bytes, size_t len)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

static char *take(size_t bytes, enum bloom_pages_kind kind)
{
    char *run = bloom_pages_alloc(&pages, bytes, kind);
    cr_assert_not_null(run);
    cr_assert_eq((uintptr_t)run % pages.page, 0);
    cr_assert_eq(bloom_pages_kind_of(run), kind);
    cr_assert(is_zero(run, bytes));
    return run;
}

static char *take_filled(size_t bytes, enum bloom_pages_kind kind)
{
    char *run = take(bytes, kind);
    memset(run, 0xa5, bytes);
    return run;
}

static void give(char *run, size_t bytes)
{
    bloom_pages_free(&pages, run, bytes);
}

/* Bytes of memory in use by these pages, which are mapped. */
static size_t resident(char *start, size_t len)
{
    static unsigned char in_memory[REGION / 4096];
    size_t n = 0;
    cr_assert_eq(mincore(start, len, in_memory), 0);
    for (size_t i = 0; i < len / pages.page; i++)
        n += in_memory[i] & 1;
    return n * pages.page;
}

/* ---- against a model ---- */

#define RUNS 150

struct run {
    char *start; /* NULL: none */
    size_t bytes;
    unsigned char mark;
};

/* The model: runs do not overlap, and the bytes that the owner wrote at both ends stay until the run is freed. */
static void check_apart(const struct run *runs, const struct run *one)
{
    for (const struct run *run = runs; run < runs + RUNS; run++) {
        if (run != one && run->start)
            cr_assert(run->start + run->bytes <= one->start || one->start + one->bytes <= run->start);
    }
}

static void make_run(struct run *runs, struct run *run, struct rng *rng)
{
    size_t most = rng_below(rng, 4) == 0 ? LONGEST : 4 * BLOOM_PAGES_MIN;
    run->bytes = BLOOM_PAGES_MIN + 8 * (size_t)rng_below(rng, (most - BLOOM_PAGES_MIN) / 8 + 1);
    run->start = take(run->bytes, rng_below(rng, 2) ? BLOOM_PAGES_DENSE : BLOOM_PAGES_LOOSE);
    run->mark = (unsigned char)(1 + rng_below(rng, 255));
    check_apart(runs, run);
    memset(run->start, run->mark, 100);
    memset(run->start + run->bytes - 100, run->mark, 100);
}

static void drop_run(struct run *run)
{
    for (size_t i = 0; i < 100; i++)
        cr_assert(run->start[i] == (char)run->mark && run->start[run->bytes - 1 - i] == (char)run->mark);
    cr_assert(is_zero(run->start + 100, run->bytes - 200));
    give(run->start, run->bytes);
    run->start = NULL;
}

/* Several regions of both kinds fill and empty in waves. */
Test(bloom_pages, runs_are_zero_and_apart_and_all_come_back)
{
    static struct run runs[RUNS];
    struct rng rng;
    rng_init(&rng, 77);
    for (unsigned step = 0; step < 4000; step++) {
        struct run *run = &runs[rng_below(&rng, RUNS)];
        bool grows = step / 500 % 2 == 0;
        if (run->start)
            drop_run(run);
        if (!run->start && rng_below(&rng, 10) < (grows ? 9 : 3))
            make_run(runs, run, &rng);
    }
    for (unsigned i = 0; i < RUNS; i++) {
        if (runs[i].start)
            drop_run(&runs[i]);
    }
    cr_expect_null(pages.first[BLOOM_PAGES_LOOSE]);
    cr_expect_null(pages.first[BLOOM_PAGES_DENSE]);
}

/* ---- regions ---- */

Test(bloom_pages, a_region_is_filled_to_its_last_page_and_unmapped_when_it_is_empty)
{
    enum { N = REGION / BLOCK };
    char *runs[N], *other;
    for (unsigned i = 0; i < N; i++)
        runs[i] = take(LONGEST, BLOOM_PAGES_LOOSE);
    struct bloom_region *full = pages.first[BLOOM_PAGES_LOOSE];
    for (unsigned i = 0; i < N; i++)
        cr_expect_eq((uintptr_t)runs[i] / REGION, (uintptr_t)runs[0] / REGION);
    other = take(BLOOM_PAGES_MIN, BLOOM_PAGES_LOOSE);
    cr_expect_neq((uintptr_t)other / REGION, (uintptr_t)runs[0] / REGION);
    give(runs[N / 2], LONGEST);
    give(other, BLOOM_PAGES_MIN);
    cr_expect_eq(pages.first[BLOOM_PAGES_LOOSE], full);
    cr_expect_eq(take(LONGEST, BLOOM_PAGES_LOOSE), runs[N / 2], "a hole was not found again");
    for (unsigned i = 0; i < N; i++)
        give(runs[i], LONGEST);
    cr_expect_null(pages.first[BLOOM_PAGES_LOOSE]);
}

/* ---- memory ---- */

Test(bloom_pages, loose_runs_take_the_pages_that_are_written)
{
    char *run = take(LONGEST, BLOOM_PAGES_LOOSE), *next = take_filled(BLOOM_PAGES_MIN, BLOOM_PAGES_LOOSE);
    run[0] = run[LONGEST - 1] = 1;
    size_t full = (size_t)(next - run);
    /* is_zero() has read every page; the kernel's page of zeros counts as resident, the test means dirty memory */
    give(run, LONGEST);
    cr_expect_eq(resident(run, full), 0);
    run = take(LONGEST, BLOOM_PAGES_LOOSE);
    cr_expect_eq((size_t)(next - run), full);
    give(run, LONGEST);
    give(next, BLOOM_PAGES_MIN);
}

/* Blocks of 2 MiB with ten runs each. */
Test(bloom_pages, dense_memory_is_at_most_twice_the_runs)
{
    enum { PER = 10, BLOCKS = 4, N = PER * BLOCKS };
    size_t bytes = BLOCK / PER / pages.page * pages.page;
    char *runs[N];
    for (unsigned i = 0; i < N; i++)
        runs[i] = take_filled(bytes, BLOOM_PAGES_DENSE);
    cr_assert_eq((uintptr_t)runs[0] % REGION, 0);
    cr_expect_geq(resident(runs[0], N * bytes), N * bytes);
    for (unsigned i = 0; i < N; i += 4)
        give(runs[i], bytes); /* three quarters of each block stay in use: its huge page stays whole */
    cr_expect_geq(resident(runs[0], N * bytes), N * bytes);
    for (unsigned i = 0; i < N; i++) {
        if (i % 4 == 1 || i % 4 == 2)
            give(runs[i], bytes);
    }
    /* A quarter is left. Pages of the last run may share a block with later ones. */
    cr_expect_leq(resident(runs[0], N * bytes), N / 4 * bytes);
    for (unsigned i = 3; i < N; i += 4) {
        cr_expect(runs[i][0] == (char)0xa5 && memcmp(runs[i], runs[i] + 1, bytes - 1) == 0);
        give(runs[i], bytes);
    }
}

/* The kernel does not take back locked memory; it must still be zero. */
Test(bloom_pages, pages_that_the_kernel_keeps_are_zero)
{
    for (enum bloom_pages_kind kind = BLOOM_PAGES_LOOSE; kind <= BLOOM_PAGES_DENSE; kind++) {
        char *other = take(BLOOM_PAGES_MIN, kind), *run = take_filled(BLOOM_PAGES_MIN, kind);
        (void)mlock(run, pages.page); /* where mlock() is forbidden, the kernel takes the page */
        give(run, BLOOM_PAGES_MIN);
        cr_expect_eq(take(BLOOM_PAGES_MIN, kind), run);
        give(run, BLOOM_PAGES_MIN);
        give(other, BLOOM_PAGES_MIN);
    }
}
