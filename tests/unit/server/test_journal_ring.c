/* The ring of a worker: records come out in the order of their adds and under the same layer, wherever runs, chunks
 * and marks end. */
#include <criterion/criterion.h>

#include "fsops.h"
#include "journal_ring.h"
#include "rng.h"
#include "tmpdir.h"

#define ADDS 200000

static char dir[TMPDIR_SIZE];
static struct log_pending *pending;

static void setup(void)
{
    tmpdir_create(dir);
    const struct log_pending_options options = {
        .fs = fsops_posix(), .dir = dir, .process = 1, .salt = 4711, .nstreams = 2, .control = 1};
    cr_assert_eq(log_pending_create(&pending, &options), 0);
}

static void teardown(void)
{
    log_pending_destroy(pending, true);
    tmpdir_remove(dir);
}

TestSuite(journal_ring, .init = setup, .fini = teardown, .timeout = 3000);

/* The record with this number; runs are of one to a few thousand. */
static void record(uint64_t number, unsigned run_shift, uint64_t *id_out, unsigned *layer_out,
                   struct bloom_replay_item *item_out)
{
    uint64_t run = number >> run_shift;
    *id_out = 1 + run % 3;
    *layer_out = (unsigned)(run / 2 % BLOOM_MAX_LAYERS);
    *item_out = (struct bloom_replay_item){{number, ~number}, number * 7};
}

static uint64_t take(struct journal_ring *ring, const struct ring_mark *mark, uint64_t next, unsigned run_shift,
                     struct rng *rng)
{
    struct ring_place place = ring->written;
    struct ring_run run;
    while ((run = ring_next(ring, &place, mark)).n != 0) {
        for (size_t i = 0; i < run.n; i++, next++) {
            struct bloom_replay_item item;
            uint64_t id;
            unsigned layer;
            record(next, run_shift, &id, &layer, &item);
            cr_assert(run.id == id && run.layer == layer, "record %llu", (unsigned long long)next);
            cr_assert(run.items[i].hash.h1 == item.hash.h1 && run.items[i].hash.h2 == item.hash.h2);
            cr_assert_eq(run.items[i].ordinal & LOG_ORDINAL_MASK, item.ordinal);
        }
        if (rng_below(rng, 2))
            ring_written(ring, &place);
        if (rng_below(rng, 6) == 0) {
            ring->synced = ring->written;
            ring_release(ring);
        }
        if (rng_below(rng, 8) == 0) { /* a failure: all that is not synced comes again */
            ring_written(ring, &ring->synced);
            place = ring->written;
            next = place.count;
        }
    }
    ring_written(ring, &place);
    return next;
}

static void run_through(unsigned run_shift, uint64_t seed)
{
    struct rng rng = {.state = {seed, 5, 5, 5}};
    struct journal_ring *ring;
    uint64_t added = 0, taken = 0;

    cr_assert_eq(ring_create(&ring, pending, 0), 0);
    while (added < ADDS) {
        uint64_t n = 1 + rng_below(&rng, rng_below(&rng, 8) ? 100 : 9000);
        cr_assert_eq(ring_reserve(ring, (size_t)n), 0);
        struct ring_mark mark = ring_snapshot(ring);
        uint64_t marked = added;
        for (uint64_t i = 0; i < n; i++, added++) {
            struct bloom_replay_item item;
            uint64_t id;
            unsigned layer;
            record(added, run_shift, &id, &layer, &item);
            ring_add(ring, id, item.hash, layer, item.ordinal);
        }
        cr_assert_eq(ring_queued(ring), added - taken);
        taken = take(ring, &mark, taken, run_shift, &rng); /* records after the mark stay */
        cr_assert_eq(taken, marked);
        cr_assert_eq(ring_queued(ring), added - taken);
    }
    struct ring_mark end = ring_snapshot(ring);
    cr_assert_eq(take(ring, &end, taken, run_shift, &rng), added);
    cr_assert_eq(ring_queued(ring), 0);
    ring_destroy(ring);
}

Test(journal_ring, what_goes_in_comes_out)
{
    for (unsigned run_shift = 0; run_shift <= 12; run_shift++)
        run_through(run_shift, run_shift);
}

static size_t count_chunks(const struct pending_chunk *chunk)
{
    size_t count = 0;
    for (; chunk; chunk = atomic_load(&chunk->next))
        count++;
    return count;
}

/* The reserved chunks are enough for the largest need of the adds: each a run of its own. */
Test(journal_ring, a_reservation_is_enough)
{
    for (size_t before = 0; before < 10; before++) {
        struct journal_ring *ring;
        cr_assert_eq(ring_create(&ring, pending, 0), 0);
        cr_assert_eq(ring_reserve(ring, before), 0);
        for (size_t i = 0; i < before; i++)
            ring_add(ring, 1, (struct bloom_hash){0, 0}, 0, 1);
        cr_assert_eq(ring_reserve(ring, 5000), 0);
        size_t chunks = count_chunks(ring->first) + count_chunks(ring->spare.first);
        for (uint64_t i = 0; i < 5000; i++)
            ring_add(ring, 2 + i % 2, (struct bloom_hash){i, i}, 0, i);
        cr_assert_eq(count_chunks(ring->first) + count_chunks(ring->spare.first), chunks);
        cr_assert_eq(ring_queued(ring), before + 5000);
        ring_destroy(ring);
    }
}

/* Claims among adds, at every place of a chunk: both records come out in order, of one run, and a mark between them is
 * impossible; with another id and layer each time, too. */
Test(journal_ring, both_records_of_a_claim_stay_together)
{
    struct journal_ring *ring;
    struct rng rng = {.state = {9, 9, 9, 9}};
    uint64_t number = 0;

    cr_assert_eq(ring_create(&ring, pending, 0), 0);
    for (unsigned i = 0; i < 50000; i++) {
        uint64_t id = 1 + rng_below(&rng, 2), first = number;
        struct ring_run run;

        cr_assert_eq(ring_reserve(ring, 4), 0);
        if (rng_below(&rng, 3)) {
            const struct bloom_hash hash[2] = {{number, ~number}, {number + 1, ~(number + 1)}};
            ring_add_both(ring, id, hash, 3, i % 8 ? number + 1 : 0); /* 0: it has no place in the filter */
            number += 2;
        } else {
            ring_add(ring, id, (struct bloom_hash){number, ~number}, 3, number + 1);
            number++;
        }
        struct ring_mark mark = ring_snapshot(ring);
        cr_assert_eq(ring_queued(ring), number - first);
        struct ring_place place = ring->written;
        run = ring_next(ring, &place, &mark);
        cr_assert(run.id == id && run.layer == 3 && run.n == number - first);
        for (size_t k = 0; k < run.n; k++) {
            cr_assert_eq(run.items[k].hash.h1, first + k);
            uint64_t ordinal = run.n == 2 && i % 8 == 0 ? 0 : first + k + 1;
            cr_assert_eq(run.items[k].ordinal & LOG_ORDINAL_MASK, ordinal);
        }
        ring_written(ring, &place);
        ring->synced = place;
        ring_release(ring);
    }
    ring_destroy(ring);
}
