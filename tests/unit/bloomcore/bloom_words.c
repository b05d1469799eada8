/* The memory of large layers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "blocked.h"
#include "bloom_batch.h"
#include "bloom_merge.h"
#include "bloom_pool.h"
#include "bloom_shared.h"
#include "pool_rig.h"
#include "zero_page.h"

#define MB     (UINT64_C(1) << 20)
#define PAGES  5     /* huge pages, and a rest */
#define SPARSE PAGES /* items, one for each huge page: filters at rest with this many or more are moved */
#define FILLED 3000  /* items, one for each small page, and some more */

static const struct bloom_params params = {9000000, 0.01, 0}; /* 10.7 MB */

TestSuite(bloom_words, .init = setup, .fini = teardown);

struct mapping {
    long rss, huge; /* kB */
    unsigned n;     /* mappings of the kernel that it consists of */
};

/* The memory of a filter's words, from /proc/self/smaps. */
static struct mapping look(const struct bloom_filter *filter)
{
    struct bloom_layer_view view;
    struct mapping sum = {0};
    char line[512];
    bool here = false;
    FILE *in = fopen("/proc/self/smaps", "r");

    cr_assert_not_null(in);
    bloom_filter_layer(filter, 0, &view);
    while (fgets(line, sizeof(line), in)) {
        unsigned long from, to, start = (unsigned long)view.words;
        long value;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            here = from < start + view.shape.nwords * 8 && to > start;
            sum.n += here;
        } else if (here && sscanf(line, "Rss: %ld", &value) == 1) {
            sum.rss += value;
        } else if (here && sscanf(line, "AnonHugePages: %ld", &value) == 1) {
            sum.huge += value;
        }
    }
    fclose(in);
    return sum;
}

/* Whether huge pages exist here and are visible: emulators show none, and 2 MiB is no huge page where small pages have
 * 64 KiB. */
static bool huge_pages_work(void)
{
    unsigned long from, to;
    long value, found = 0;
    bool here = false;
    char line[512], *raw = mmap(NULL, 4 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *page = raw + (-(uintptr_t)raw & (2 * MB - 1));
    FILE *in;

    madvise(page, 2 * MB, MADV_HUGEPAGE);
    *(volatile char *)page = 1;
    in = fopen("/proc/self/smaps", "r");
    cr_assert_not_null(in);
    while (fgets(line, sizeof(line), in)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from <= (unsigned long)page && to > (unsigned long)page;
        else if (here && sscanf(line, "AnonHugePages: %ld", &value) == 1)
            found += value;
    }
    fclose(in);
    munmap(raw, 4 * MB);
    return found >= 2048;
}

static struct bloom_hash hash_of(uint64_t item)
{
    return murmur3_hash(&item, sizeof(item));
}

static void add(struct bloom_filter *filter, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        bloom_filter_add(filter, hash_of(i), NULL);
}

static uint64_t bits_of(const struct bloom_filter *filter)
{
    struct bloom_layer_view view;
    uint64_t bits = 0;
    bloom_filter_layer(filter, 0, &view);
    for (uint64_t i = 0; i < view.shape.nwords; i++)
        bits += (uint64_t)__builtin_popcountll(view.words[i]);
    return bits;
}

/* One look: it does not disturb a filling that continues. A second one finds the filter at rest. */
static void settle(void)
{
    bloom_pool_settle(pool, NULL, NULL);
}

static void expect_moved(const struct bloom_filter *filter, bool moved)
{
    struct mapping mapping = look(filter);
    if (!moved)
        cr_expect_eq(mapping.huge, 0);
    else if (huge_pages_work())
        cr_expect_eq(mapping.huge, PAGES * 2048);
    cr_expect_leq(mapping.n, 3);
    cr_expect_eq(pool->maps.n, moved ? 0 : 1);
}

Test(bloom_words, creating_costs_address_space_only)
{
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    struct bloom_layer_view view;
    bloom_filter_layer(filter, 0, &view);
    cr_expect_eq((uintptr_t)view.words % (2 * MB), BLOOM_ROOM_HEAD);
    cr_expect_leq(look(filter).rss, 64);
    filter_free(filter);
}

/* Queries read the kernel's page of zeros everywhere: it takes no memory, and does not count as use of the filter. */
Test(bloom_words, a_sparse_filter_stays_small_however_often_it_is_read)
{
    if (!zero_page_works())
        cr_skip_test("this kernel gives a page to each read of memory that was never written");
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    add(filter, 0, 1);
    for (unsigned i = 0; i < 20000; i++)
        bloom_filter_query(filter, hash_of(i + 1000));
    cr_expect_gt(bits_of(filter), 0);
    for (unsigned i = 0; i < 10; i++)
        settle();
    expect_moved(filter, false);
    cr_expect_leq(look(filter).rss, 16 * 64 + 64);
    filter_free(filter);
}

Test(bloom_words, a_filter_is_moved_when_its_first_filling_rests)
{
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    add(filter, 0, SPARSE - 1);
    settle();
    settle();
    expect_moved(filter, false);
    add(filter, SPARSE - 1, 1000);
    uint64_t bits = bits_of(filter);
    settle();
    expect_moved(filter, false);
    add(filter, 0, 1000); /* present already: the filter rests */
    settle();
    expect_moved(filter, true);
    cr_expect_eq(bits_of(filter), bits);
    filter_free(filter);
}

Test(bloom_words, a_filter_is_moved_when_its_first_filling_is_over)
{
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    add(filter, 0, FILLED);
    uint64_t bits = bits_of(filter);
    settle();
    expect_moved(filter, true);
    cr_expect_eq(bits_of(filter), bits);
    add(filter, FILLED, 2 * FILLED);
    cr_expect_eq(bloom_filter_items(filter), 2 * FILLED);
    for (unsigned i = 0; i < 2 * FILLED; i++)
        cr_assert(bloom_filter_query(filter, hash_of(i)));
    settle();
    filter_free(filter);
}

static bool go_on_for(void *ctx)
{
    unsigned *pages = ctx;
    return (*pages)-- > 0;
}

Test(bloom_words, a_move_can_be_interrupted_and_goes_on)
{
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    unsigned calls = 3; /* one before the mapping, two before pages */
    add(filter, 0, FILLED);
    uint64_t bits = bits_of(filter);
    bloom_pool_settle(pool, go_on_for, &calls);
    if (huge_pages_work())
        cr_expect_eq(look(filter).huge, 2 * 2048);
    cr_expect_eq(bits_of(filter), bits);
    settle();
    expect_moved(filter, true);
    cr_expect_eq(bits_of(filter), bits);
    filter_free(filter);
}

Test(bloom_words, a_filter_is_freed_or_filled_in_the_middle_of_its_move)
{
    for (unsigned i = 0; i < 2; i++) {
        struct bloom_filter *filter = filter_make(pool, &params, NULL);
        unsigned calls = 3;
        add(filter, 0, FILLED);
        uint64_t bits = bits_of(filter);
        bloom_pool_settle(pool, go_on_for, &calls);
        if (i == 1)
            bloom_filter_expect_fill(filter);
        cr_expect_eq(bits_of(filter), bits);
        settle();
        filter_free(filter);
        cr_expect_eq(pool->maps.n, 0);
    }
}

/* Atomic operations write them without the filter's lock: a move could lose a bit. */
Test(bloom_words, filters_that_are_being_merged_are_left_alone)
{
    struct bloom_filter *older = filter_make(pool, &params, NULL), *younger = filter_make(pool, &params, NULL);
    struct bloom_twins twins = {.older = older, .younger = younger};
    add(older, 0, FILLED);
    add(younger, 0, FILLED);
    cr_assert(bloom_twins_begin(pool, &twins));
    settle();
    cr_expect_eq(look(older).huge + look(younger).huge, 0);
    cr_expect_eq(pool->maps.n, 2);
    bloom_twins_end(pool, older);
    settle();
    cr_expect_eq(pool->maps.n, 0);
    for (unsigned i = 0; i < FILLED; i++)
        cr_assert(bloom_filter_query(older, hash_of(i)) && bloom_filter_query(younger, hash_of(i)));
    filter_free(older);
    filter_free(younger);
}

Test(bloom_words, what_is_to_be_filled_has_huge_pages_from_the_start)
{
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    bloom_filter_expect_fill(filter);
    bloom_filter_expect_fill(filter); /* again is allowed */
    cr_expect_eq(pool->maps.n, 0);
    add(filter, 0, FILLED);
    if (huge_pages_work())
        cr_expect_eq(look(filter).huge, PAGES * 2048);
    settle();
    filter_free(filter);
}

/* Two filters of 1.2 MB take two huge pages. Freeing one empties the second page; another filter allocates it again. */
Test(bloom_words, those_of_medium_size_share_huge_pages_when_they_are_filled)
{
    struct bloom_params medium = {1000000, 0.01, 0};
    struct bloom_filter *filter = filter_make(pool, &medium, NULL), *other = filter_make(pool, &medium, NULL);
    struct bloom_layer_view view;
    add(other, 0, 1);
    cr_expect_leq(look(other).rss, 64);
    cr_expect_eq(look(other).huge, 0);
    filter_free(other);
    other = filter_make(pool, &medium, NULL);
    bloom_filter_expect_fill(filter);
    bloom_filter_expect_fill(other);
    add(filter, 0, FILLED);
    add(other, 0, FILLED);
    bloom_filter_expect_fill(filter); /* again is allowed */
    bloom_filter_layer(filter, 0, &view);
    cr_expect_null(view.room);
    if (huge_pages_work())
        cr_expect_eq(look(filter).huge, 2 * 2048);
    filter_free(other);
    for (unsigned i = 0; i < FILLED; i++)
        cr_assert(bloom_filter_query(filter, hash_of(i)));
    if (huge_pages_work())
        cr_expect_eq(look(filter).huge, 2048);
    other = filter_make(pool, &medium, NULL);
    bloom_filter_expect_fill(other);
    add(other, 0, FILLED);
    if (huge_pages_work())
        cr_expect_eq(look(other).huge, 2 * 2048);
    filter_free(filter);
    filter_free(other);
}

Test(bloom_words, small_ones_and_null)
{
    _Atomic uint64_t *words = bloom_words_alloc(&pool->maps, NULL, NULL, 100);
    cr_assert_not_null(words);
    cr_expect_eq(bloom_words_fill(&pool->maps, words, 100), words);
    cr_expect_eq(words[99], 0);
    bloom_words_free(&pool->maps, words, 100);
    bloom_words_free(&pool->maps, NULL, 100);
    settle();
}

static char *given, *place;
static size_t shift;

static void *give_shifted(size_t bytes)
{
    given = calloc(1, bytes + 128);
    place = given + (-(uintptr_t)given & 63) + shift;
    return place;
}

static void take_back(void *memory)
{
    cr_expect_eq(memory, place);
    free(given);
}

/* Blocks are cache lines wherever the host's memory begins. */
Test(bloom_words, of_a_host_keep_blocks_on_lines)
{
    static const struct bloom_memory host = {give_shifted, take_back};
    const struct bloom_params blocks = {.capacity = 2000000, .error_rate = 0.01, .redisbloom = BLOOM_OPTION_BLOCKED};

    for (shift = 0; shift < 64; shift += 8) {
        struct bloom_filter *filter;
        struct bloom_layer_view view;
        struct bloom_pool *own;
        cr_assert_eq(bloom_pool_create_in(&host, &own), 0);
        cr_assert_eq(bloom_filter_create(own, &blocks, NULL, 1, &filter, NULL), 0);
        bloom_filter_layer(filter, 0, &view);
        cr_expect_eq((uintptr_t)(view.words + BLOCKED_LEAD) % 64, 0);
        add(filter, 0, FILLED);
        for (unsigned i = 0; i < FILLED; i++)
            cr_assert(bloom_filter_query(filter, hash_of(i)));
        bloom_filter_destroy(filter);
        bloom_pool_destroy(own);
    }
}

/* The first bits of a large layer each allocate a page: batches of adds are short, because others wait for their
 * end. */
Test(bloom_words, batches_of_adds_are_short_while_pages_are_made)
{
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    struct bloom_params other = {100000, 0.01, 0};
    struct bloom_filter *small = filter_make(pool, &other, NULL);
    cr_expect_eq(bloom_batch_adds(small), BLOOM_BATCH);
    cr_expect_lt(bloom_batch_adds(filter), BLOOM_BATCH / 2);
    add(filter, 0, FILLED);
    cr_expect_eq(bloom_batch_adds(filter), BLOOM_BATCH);
    filter_free(small);
    filter_free(filter);
}
