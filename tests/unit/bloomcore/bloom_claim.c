/* Claims: an item with its owner's mark. The answers to each owner, the places of both in layers and parts, and the
 * records of both. */
#include "redisbloom.h"
#include "window_log.h"

TestSuite(bloom_claim, .init = window_setup, .fini = teardown);

static unsigned pairs; /* add_both() so far */
static struct bloom_filter *watched;

static void on_both(void *ctx, uint64_t id, const struct bloom_hash hash[2], unsigned layer, uint64_t ordinal)
{
    cr_assert(!watched || !bloom_filter_query(watched, hash[1]), "the item is there before the log has it");
    pairs++;
    on_add(ctx, id, hash[0], layer, ordinal);
    on_add(ctx, id, hash[1], layer, ordinal + 1);
}

static const struct bloom_journal_ops both_ops = {.add = on_add, .turn = on_turn, .add_both = on_both};

static enum bloom_add claim_by(struct bloom_filter *filter, uint64_t owner, uint64_t item,
                               const struct bloom_journal *log)
{
    const uint64_t mark[2] = {owner + 1000, item};
    const struct bloom_hash hash[2] = {bloom_filter_hash(filter, mark, sizeof(mark)), hash_of(filter, item)};
    struct errbuf err = {""};

    return bloom_filter_claim(filter, hash, log, &err);
}

static struct bloom_filter *chain(uint64_t capacity, uint32_t expansion, bool redisbloom)
{
    struct bloom_params params = {.capacity = capacity, .error_rate = 1e-6, .expansion = expansion};

    params.redisbloom = redisbloom ? (uint8_t)(REDISBLOOM_DEFAULT | (expansion ? 0 : REDISBLOOM_NO_SCALING)) : 0;
    return filter_make(pool, &params, NULL);
}

/* The first owner wins, and wins whenever it asks; all others get nothing; an item without an owner is nobody's. */
static void expect_answers(struct bloom_filter *filter)
{
    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 0), NULL), BLOOM_ADDED);
    for (uint64_t item = 1; item < 500; item++)
        cr_assert_eq(claim_by(filter, item % 3, item, NULL), BLOOM_ADDED);
    for (uint64_t item = 0; item < 500; item++) {
        for (uint64_t owner = 0; owner < 3; owner++)
            cr_assert_eq(claim_by(filter, owner, item, NULL), item && owner == item % 3 ? BLOOM_OWN : BLOOM_PRESENT,
                         "item %d", (int)item);
        cr_assert_eq(bloom_filter_add(filter, hash_of(filter, item), NULL), BLOOM_PRESENT);
    }
    cr_assert_eq(bloom_filter_items(filter), 1 + 2 * 499);
    filter_free(filter);
}

Test(bloom_claim, one_owner_wins_and_stays)
{
    struct bloom_params window = window_of(2000, 10 * SECOND, 4, 0);

    window.error_rate = 1e-6;
    expect_answers(chain(1000, 2, false));
    expect_answers(chain(7, 2, false)); /* it grows */
    expect_answers(chain(1000, 2, true));
    expect_answers(chain(200, 2, true));
    expect_answers(chain(1, 2, false)); /* a layer of one stays empty */
    expect_answers(chain(999, 0, false));
    expect_answers(filter_make(pool, &window, NULL));
    window.capacity = 20;
    expect_answers(filter_make(pool, &window, NULL));
}

Test(bloom_claim, room_for_one_is_room_for_neither)
{
    struct bloom_filter *filter = chain(5, 0, false);

    for (uint64_t item = 0; item < 2; item++)
        cr_assert_eq(claim_by(filter, 1, item, NULL), BLOOM_ADDED);
    cr_assert_eq(claim_by(filter, 1, 2, NULL), BLOOM_FULL);
    cr_assert_eq(bloom_filter_items(filter), 4);
    cr_assert(!has(filter, 2));
    cr_assert_eq(claim_by(filter, 1, 1, NULL), BLOOM_OWN, "a full filter still answers");
    cr_assert_eq(bloom_filter_add(filter, hash_of(filter, 3), NULL), BLOOM_ADDED);
    filter_free(filter);
}

Test(bloom_claim, layers_of_one_place_are_refused)
{
    struct bloom_params params = {.capacity = 1, .error_rate = 0.01, .expansion = 1};
    struct bloom_params by_items = window_of(4, 4, 4, BLOOM_WINDOW_ITEMS);
    struct bloom_filter *filter = filter_make(pool, &params, NULL), *window = filter_make(pool, &by_items, NULL);

    cr_assert_eq(claim_by(filter, 1, 1, NULL), BLOOM_NO_ROOM);
    cr_assert_eq(bloom_filter_nlayers(filter), 1);
    cr_assert_eq(claim_by(window, 1, 1, NULL), BLOOM_NO_ROOM);
    filter_free(filter);
    filter_free(window);
}

/* A mark that is there by chance, or was added by somebody who knows owner and item, is not added again. */
Test(bloom_claim, a_forged_mark_makes_double_work_only)
{
    const uint64_t mark[2] = {1001, 7};
    struct bloom_filter *filter = chain(100, 2, false);

    cr_assert_eq(bloom_filter_add(filter, bloom_filter_hash(filter, mark, sizeof(mark)), NULL), BLOOM_ADDED);
    cr_assert_eq(claim_by(filter, 2, 7, NULL), BLOOM_ADDED);
    cr_assert_eq(claim_by(filter, 1, 7, NULL), BLOOM_OWN);
    cr_assert_eq(claim_by(filter, 1, 8, NULL), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_items(filter), 5);
    filter_free(filter);
}

Test(bloom_claim, both_are_one_record)
{
    struct bloom_filter *filter = chain(1000, 0, false), *again = chain(1000, 0, false);

    journal.ops = &both_ops;
    watched = filter;
    pairs = 0;
    nrecords = 0;
    for (uint64_t item = 0; item < 300; item++)
        cr_assert_eq(claim_by(filter, 1, item, &journal), BLOOM_ADDED);
    for (uint64_t item = 0; item < 300; item++)
        cr_assert_neq(claim_by(filter, item % 2, item, &journal), BLOOM_ADDED);
    cr_assert_eq(pairs, 300);
    cr_assert_eq(nrecords, 600);
    for (size_t i = nrecords; i-- > 0;) {
        cr_assert_eq(records[i].item.ordinal, i + 1);
        bloom_filter_replay(again, records[i].layer, 0, &records[i].item, 1);
    }
    cr_assert_eq(bloom_filter_items(again), 600);
    for (uint64_t item = 0; item < 300; item++)
        cr_assert_eq(claim_by(again, 1, item, NULL), BLOOM_OWN);
    filter_free(filter);
    filter_free(again);
}

/* ---- windows ---- */

/* Item and mark expire at one moment, wherever in the part they were placed. */
static void expect_common_end(struct bloom_params params)
{
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    struct rng rng;

    rng_init(&rng, params.window);
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t item = i > 50 ? i - 1 - rng_below(&rng, 50) : i;

        now_us += SECOND / 50;
        bool there = has(filter, item);
        uint64_t owner = item % 5, other = (item + 1) % 5;
        if (i % 3 == 0)
            cr_assert(!there || claim_by(filter, other, item, NULL) == BLOOM_PRESENT, "%d", (int)i);
        cr_assert_eq(claim_by(filter, owner, item, NULL), there ? BLOOM_OWN : BLOOM_ADDED, "%d", (int)i);
    }
    filter_free(filter);
}

Test(bloom_claim, a_mark_expires_with_its_item)
{
    struct bloom_params params = window_of(100, 3 * SECOND, 4, 0);

    params.error_rate = 1e-9;
    expect_common_end(params);
    params.capacity = 16; /* parts grow */
    expect_common_end(params);
    params.window_flags = BLOOM_WINDOW_REFRESH;
    expect_common_end(params);
    params = window_of(96, 96, 4, BLOOM_WINDOW_ITEMS);
    params.error_rate = 1e-9;
    expect_common_end(params);
    params.window = 100; /* parts of 25: the last place of each stays free */
    params.capacity = 100;
    expect_common_end(params);
    params.expansion = 0;
    expect_common_end(params);
}

/* An owner that asks renews its claim in a window with REFRESH; another one does not, even when a part is full. */
Test(bloom_claim, only_its_owner_renews_a_claim)
{
    struct bloom_params params = window_of(100, 4 * SECOND, 4, BLOOM_WINDOW_REFRESH);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);

    cr_assert_eq(claim_by(filter, 1, 7, NULL), BLOOM_ADDED);
    cr_assert_eq(claim_by(filter, 1, 8, NULL), BLOOM_ADDED);
    for (unsigned i = 0; i < 10; i++) {
        now_us += SECOND;
        cr_assert_eq(claim_by(filter, 1, 7, NULL), BLOOM_OWN);
        cr_assert_eq(claim_by(filter, 2, 7, NULL), BLOOM_PRESENT);
        if (has(filter, 8))
            cr_assert_eq(claim_by(filter, 2, 8, NULL), BLOOM_PRESENT);
    }
    cr_assert(!has(filter, 8));
    filter_free(filter);
}

Test(bloom_claim, a_mark_counts_in_the_part_of_its_item_only)
{
    const uint64_t mark[2] = {1001, 7};
    struct bloom_params params = window_of(100, 4 * SECOND, 4, 0);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);

    bloom_filter_add(filter, bloom_filter_hash(filter, mark, sizeof(mark)), NULL);
    now_us += SECOND;
    cr_assert_eq(claim_by(filter, 2, 7, NULL), BLOOM_ADDED);
    cr_assert_eq(claim_by(filter, 1, 7, NULL), BLOOM_PRESENT);
    cr_assert_eq(claim_by(filter, 2, 7, NULL), BLOOM_OWN);
    filter_free(filter);
}

Test(bloom_claim, a_question_begins_no_part)
{
    struct bloom_params params = window_of(100, 8, 2, BLOOM_WINDOW_ITEMS);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    struct bloom_window_state state;

    cr_assert_eq(claim_by(filter, 1, 1, NULL), BLOOM_ADDED);
    cr_assert_eq(claim_by(filter, 1, 2, NULL), BLOOM_ADDED); /* a full part */
    for (unsigned i = 0; i < 10; i++) {
        cr_assert_eq(claim_by(filter, 1, 1, NULL), BLOOM_OWN);
        cr_assert_eq(claim_by(filter, 2, 1, NULL), BLOOM_PRESENT);
    }
    bloom_window_state(filter, &state);
    cr_assert_eq(state.turn, 1);
    filter_free(filter);
}

/* A window after a crash has both or neither, from any save and any order of its log. */
Test(bloom_claim, a_window_restarts_with_its_marks)
{
    static struct saved saved;
    struct bloom_params params = window_of(50, 5 * SECOND, 4, 0);
    struct bloom_filter *filter = filter_make(pool, &params, NULL);
    struct rng rng;

    rng_init(&rng, 3);
    journal.ops = &both_ops;
    watched = NULL;
    nrecords = 0;
    save(filter, &saved);
    for (uint64_t item = 0; item < 2000; item++) {
        now_us += SECOND / 20;
        enum bloom_add answer = claim_by(filter, 1, item, &journal);
        if (item % 97 == 0)
            save(filter, &saved);
        if (item % 50 == 0)
            filter = restart(filter, &params, &saved, &rng);
        cr_assert(answer == BLOOM_PRESENT || claim_by(filter, 1, item, &journal) == BLOOM_OWN, "item %d", (int)item);
    }
    filter_free(filter);
}
