/* The memory of large layers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "bloom_words.h"

#define MB    (UINT64_C(1) << 20)
#define WORDS (9 * MB / 8 + 5000) /* four huge pages and a rest */

static struct bloom_maps maps;

static void set_up(void)
{
    bloom_maps_init(&maps);
}

static void tear_down(void)
{
    bloom_maps_deinit(&maps);
}

TestSuite(bloom_words, .init = set_up, .fini = tear_down);

/* Kilobytes of the mapping that holds `address`, by the field of /proc/self/smaps. */
static long kilobytes(const void *address, const char *field)
{
    FILE *in = fopen("/proc/self/smaps", "r");
    char line[512];
    bool here = false;
    long sum = 0;
    cr_assert_not_null(in);
    while (fgets(line, sizeof(line), in)) {
        unsigned long from, to;
        long value;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = (unsigned long)address < to && (unsigned long)address + WORDS * 8 > from;
        else if (here && strncmp(line, field, strlen(field)) == 0 && sscanf(line + strlen(field), ": %ld", &value) == 1)
            sum += value;
    }
    fclose(in);
    return sum;
}

/* Whether it can be done here, and be seen: emulators show no huge pages, and where small ones have 64 KiB 2 MiB is none. */
static bool collapse_works(void)
{
    char *raw = mmap(NULL, 4 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *page = raw + (-(uintptr_t)raw & (2 * MB - 1));
    madvise(page, 2 * MB, MADV_HUGEPAGE);
    bool works = madvise(page, 2 * MB, 25) == 0 && kilobytes(page, "AnonHugePages") >= 2048;
    munmap(raw, 4 * MB);
    return works;
}

/* Kernels before 5.14 have no such advice, and emulators may ignore it. */
static bool populate_works(void)
{
    void *raw = mmap(NULL, 2 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long before = kilobytes(raw, "Rss");
    bool works = madvise(raw, 2 * MB, 23) == 0 && kilobytes(raw, "Rss") >= before + 2048;
    munmap(raw, 2 * MB);
    return works;
}

Test(bloom_words, creating_and_the_first_touches_cost_small_pages_only)
{
    _Atomic uint64_t *words = bloom_words_alloc(&maps, WORDS, true);
    cr_assert_not_null(words);
    cr_expect_eq((uintptr_t)words % (2 * MB), BLOOM_ROOM_HEAD);
    cr_expect_leq(kilobytes((const void *)words, "Rss"), 64);
    for (unsigned i = 0; i < 10; i++)
        words[i * (WORDS / 10)] = 1;
    cr_expect_lt(kilobytes((const void *)words, "Rss"), 10 * 64 + 64);
    bloom_words_free(&maps, words, WORDS);
}

/* One small page here and there: a handful of items. */
static void touch_some(_Atomic uint64_t *words, unsigned pages)
{
    for (unsigned i = 0; i < pages; i++)
        words[i * (MB / 8 / 2)] = 1;
}

Test(bloom_words, a_mapping_that_is_hardly_used_is_left_alone)
{
    _Atomic uint64_t *words = bloom_words_alloc(&maps, WORDS, true);
    cr_expect_eq(bloom_maps_settle(&maps), BLOOM_SETTLED_NOTHING);
    cr_expect_leq(kilobytes((const void *)words, "Rss"), 64);
    touch_some(words, 3);
    cr_expect_eq(bloom_maps_settle(&maps), BLOOM_SETTLED_NOTHING);
    touch_some(words, 16);
    cr_expect_neq(bloom_maps_settle(&maps), BLOOM_SETTLED_NOTHING);
    bloom_words_free(&maps, words, WORDS);
    cr_expect_eq(bloom_maps_settle(&maps), BLOOM_SETTLED_NOTHING);
}

static unsigned settle_all(void)
{
    unsigned steps = 0;
    while (bloom_maps_settle(&maps) != BLOOM_SETTLED_NOTHING)
        cr_assert_lt(++steps, 100);
    return steps;
}

Test(bloom_words, settling_keeps_every_word_and_ends)
{
    _Atomic uint64_t *words = bloom_words_alloc(&maps, WORDS, true), *other = bloom_words_alloc(&maps, WORDS, true);
    for (uint64_t i = 0; i < WORDS; i += 997)
        words[i] = i + 1;
    cr_expect_geq(settle_all(), 4);
    for (uint64_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], i % 997 == 0 ? i + 1 : 0);
    if (collapse_works())
        cr_expect_geq(kilobytes((const void *)words, "AnonHugePages"), 8192);
    cr_expect_leq(kilobytes((const void *)other, "Rss"), 64);
    bloom_words_free(&maps, other, WORDS);
    bloom_words_free(&maps, words, WORDS);
}

Test(bloom_words, pages_of_which_nothing_is_touched_are_huge_afterwards_as_well)
{
    _Atomic uint64_t *words = bloom_words_alloc(&maps, WORDS, true);
    for (uint64_t i = 0; i < MB / 8; i += 512) /* of the first only */
        words[i] = i + 1;
    settle_all();
    if (collapse_works())
        cr_expect_geq(kilobytes((const void *)words, "AnonHugePages"), 8192);
    for (uint64_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], i < MB / 8 && i % 512 == 0 ? i + 1 : 0);
    bloom_words_free(&maps, words, WORDS);
}

Test(bloom_words, what_settling_needs_itself_is_given_back)
{
    _Atomic uint64_t *words = bloom_words_alloc(&maps, WORDS, true);
    touch_some(words, 16);
    settle_all();
    if (collapse_works())
        cr_expect_not_null(maps.spare);
    cr_expect_not(maps.has_spare);
    bloom_words_free(&maps, words, WORDS);
}

Test(bloom_words, small_ones_and_null)
{
    _Atomic uint64_t *words = bloom_words_alloc(&maps, 100, true);
    cr_assert_not_null(words);
    bloom_words_fill(&maps, words, 100);
    cr_expect_eq(words[99], 0);
    bloom_words_free(&maps, words, 100);
    bloom_words_free(&maps, NULL, WORDS);
    cr_expect_eq(bloom_maps_settle(&maps), BLOOM_SETTLED_NOTHING);
}

Test(bloom_words, what_is_to_be_filled_does_not_wait)
{
    _Atomic uint64_t *words = bloom_words_alloc(&maps, WORDS, true);
    bloom_words_fill(&maps, words, WORDS);
    words[0] = 1;
    cr_expect_eq(bloom_maps_settle(&maps), BLOOM_SETTLED_NOTHING);
    bloom_words_fill(&maps, words, WORDS); /* twice is fine */
    bloom_words_free(&maps, words, WORDS);
}

static unsigned wakes;

static void count_wake(void *ctx)
{
    cr_expect_eq(ctx, &wakes);
    wakes++;
}

/* Whoever uses it says so: the thread need not find out, and does it first. */
Test(bloom_words, what_is_said_to_be_in_use_is_settled_at_once)
{
    _Atomic uint64_t *other = bloom_words_alloc(&maps, WORDS, true), *words = bloom_words_alloc(&maps, WORDS, true);
    bloom_maps_set_ahead(&maps, 0, count_wake, &wakes);
    touch_some(other, 16);
    words[WORDS - 1] = 5;
    bloom_words_in_use(&maps, words);
    bloom_words_in_use(&maps, words);
    cr_expect_eq(wakes, 1);
    cr_expect_neq(bloom_maps_settle(&maps), BLOOM_SETTLED_NOTHING);
    if (populate_works())
        cr_expect_geq(kilobytes((const void *)words, "Rss"), 2048);
    settle_all();
    cr_expect_eq(words[WORDS - 1], 5);
    bloom_words_in_use(&maps, words); /* it is done: nobody is woken */
    bloom_words_fill(&maps, other, WORDS);
    bloom_words_in_use(&maps, other);
    cr_expect_eq(wakes, 1);
    bloom_words_free(&maps, words, WORDS);
    bloom_words_free(&maps, other, WORDS);
}

/* Populates whatever is to be populated ahead; returns how many steps that took. */
static unsigned settle_ahead(void)
{
    unsigned steps = 0;
    enum bloom_settled settled;
    while ((settled = bloom_maps_settle(&maps)) == BLOOM_SETTLED_AHEAD)
        steps++;
    cr_assert_eq(settled, BLOOM_SETTLED_NOTHING);
    return steps;
}

Test(bloom_words, new_ones_are_populated_ahead_of_their_use)
{
    bloom_maps_set_ahead(&maps, 40 * MB, count_wake, &wakes);
    _Atomic uint64_t *words = bloom_words_alloc(&maps, WORDS, true);
    cr_expect_eq(wakes, 1);
    cr_expect_eq(settle_ahead(), 5);
    if (populate_works())
        cr_expect_geq(kilobytes((const void *)words, "Rss"), WORDS * 8 / 1024);
    if (collapse_works())
        cr_expect_geq(kilobytes((const void *)words, "AnonHugePages"), 8192);
    for (uint64_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], 0);
    words[0] = 1;
    cr_expect_eq(settle_ahead(), 0);
    bloom_words_free(&maps, words, WORDS);
}

/* Somebody who creates many filters and uses none of them pays for a few. */
Test(bloom_words, what_is_populated_and_not_used_is_bounded)
{
    _Atomic uint64_t *words[6];
    bloom_maps_set_ahead(&maps, 20 * MB, NULL, NULL);
    for (unsigned i = 0; i < 4; i++)
        words[i] = bloom_words_alloc(&maps, WORDS, true);
    cr_expect_eq(settle_ahead(), 2 * 5);
    cr_expect_leq(kilobytes((const void *)words[2], "Rss"), 64);

    words[0][10] = 1; /* is used: makes room for another one */
    cr_expect_eq(settle_ahead(), 0);
    words[4] = bloom_words_alloc(&maps, WORDS, true);
    cr_expect_eq(settle_ahead(), 5);

    bloom_words_free(&maps, words[1], WORDS); /* so does one that goes unused */
    words[5] = bloom_words_alloc(&maps, WORDS, true);
    cr_expect_eq(settle_ahead(), 5);

    bloom_words_fill(&maps, words[5], WORDS); /* or that is filled */
    words[1] = bloom_words_alloc(&maps, WORDS, true);
    cr_expect_eq(settle_ahead(), 5);
    for (unsigned i = 0; i < 6; i++)
        bloom_words_free(&maps, words[i], WORDS);
    cr_expect_eq(maps.ahead, 0);
}

Test(bloom_words, what_is_too_large_or_used_at_once_is_not_populated_ahead)
{
    bloom_maps_set_ahead(&maps, 2 * WORDS * 8, count_wake, &wakes);
    _Atomic uint64_t *large = bloom_words_alloc(&maps, 2 * WORDS, true), *grown = bloom_words_alloc(&maps, WORDS / 2, false);
    cr_expect_eq(wakes, 0);
    cr_expect_eq(settle_ahead(), 0);
    cr_expect_leq(kilobytes((const void *)large, "Rss"), 64);
    cr_expect_leq(kilobytes((const void *)grown, "Rss"), 64);
    bloom_words_free(&maps, large, 2 * WORDS);
    bloom_words_free(&maps, grown, WORDS / 2);
}
