/* The states of the end: random events against guarantees for clients and operators.
 *
 * BLOOMERY_MODEL_ROUNDS: number of events; 20,000 by default. BLOOMERY_SEED: the seed of a failed run. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "main_loop.h"
#include "rng.h"

static unsigned rounds(void)
{
    const char *text = getenv("BLOOMERY_MODEL_ROUNDS");
    return text ? (unsigned)strtoul(text, NULL, 10) : 20000;
}

static void begin(struct rng *rng)
{
    const char *text = getenv("BLOOMERY_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    fprintf(stderr, "BLOOMERY_SEED=%" PRIu64 "\n", seed);
    rng_init(rng, seed);
}

static bool has_row(const struct state_row *rows, size_t n, int state, int event)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += rows[i].state == state && rows[i].event == event;
    cr_assert_leq(found, 1, "state %d has event %d twice", state, event);
    return found == 1;
}
#define HAS_ROW(rows, state, event) has_row(rows, sizeof(rows) / sizeof((rows)[0]), (int)(state), (int)(event))

#define TIMEOUT_MS 10000

/* Guarantees for clients and operators, without any table. */
struct life {
    bool loading, disk_works;
    bool signalled, over, killed;
    int64_t now_ms, signalled_ms, tried_ms;
};

/* As ending_try() decides. */
static void attempt(struct ending *end, struct life *life, bool for_signal)
{
    if (for_signal)
        ending_attempt(end, life->now_ms);
    if (life->loading)
        ending_step(end, END_LEAVE);
    else if (life->disk_works || (for_signal && end->request.force))
        ending_step(end, END_AGREED);
    else if (for_signal)
        ending_step(end, END_REFUSED);
    if (for_signal)
        life->tried_ms = life->now_ms;
    life->over = life->loading || life->disk_works || (for_signal && life->now_ms >= life->signalled_ms + TIMEOUT_MS);
}

static void on_signal(struct ending *end, struct life *life)
{
    ending_step(end, END_SIGNAL);
    cr_assert_eq(end->state == END_KILLED, life->signalled && !life->over, "only the second signal kills");
    life->killed = end->state == END_KILLED;
    if (end->state != END_SIGNALLED)
        return;
    life->signalled = true;
    life->signalled_ms = life->now_ms;
    end->request.force = false;
    end->until_ms = life->now_ms + TIMEOUT_MS;
    attempt(end, life, true);
}

static void on_tick(struct ending *end, struct life *life)
{
    if (!ending_is_due(end, life->now_ms)) {
        cr_assert(!life->signalled || life->over || life->now_ms < life->tried_ms + END_RETRY_MS, "it is tried again");
        return;
    }
    cr_assert(life->signalled && !life->over && life->now_ms >= life->tried_ms + END_RETRY_MS);
    attempt(end, life, true);
}

static void on_event(struct ending *end, struct life *life, unsigned event)
{
    switch (event) {
    case 0:
        on_signal(end, life);
        break;
    case 1: /* SHUTDOWN */
        if (!ending_is_decided(end))
            attempt(end, life, false);
        break;
    case 2:
        life->disk_works = !life->disk_works;
        break;
    case 3:
        life->loading &= life->over; /* the load has ended; after an early end nobody looks */
        break;
    default:
        life->now_ms += event * 60;
        on_tick(end, life);
    }
}

Test(states, the_daemon_ends_when_it_may_and_when_it_must)
{
    struct rng rng;
    begin(&rng);
    for (unsigned i = 0; i < rounds() / 20; i++) {
        struct ending end = {.state = END_NONE};
        struct life life = {.loading = rng_below(&rng, 4) == 0, .disk_works = rng_below(&rng, 2)};
        for (unsigned step = 0; step < 400 && !life.killed; step++) {
            unsigned event = (unsigned)rng_below(&rng, 24);
            on_event(&end, &life, event < 3 && rng_below(&rng, 4) ? 23 : event);
            cr_assert_eq(ending_is_decided(&end), life.over, "round %u, step %u: state %d", i, step, end.state);
            cr_assert_eq(ending_is_signalled(&end), life.signalled && !life.over && !life.killed);
        }
        cr_assert(!life.signalled || life.killed || life.over ||
                  life.now_ms < life.signalled_ms + TIMEOUT_MS + 2 * 1440);
    }
}

Test(states, the_load_failing_after_the_end_changes_nothing)
{
    struct ending end = {.state = END_NONE};
    ending_step(&end, END_LEAVE);
    ending_step(&end, END_AGREED);
    ending_step(&end, END_AGREED);
    cr_assert_eq(end.state, END_DECIDED);
    cr_assert(!HAS_ROW(end_rows, END_DECIDED, END_REFUSED));
    cr_assert(!HAS_ROW(end_rows, END_NONE, END_REFUSED));
}
