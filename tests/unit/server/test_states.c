/* The tables of states: random events against models that count instead, and no row unknown to the models.
 *
 * BLOOMERY_MODEL_ROUNDS: number of events; 20,000 by default. BLOOMERY_SEED: the seed of a failed run. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "main_loop.h"
#include "rng.h"
#include "saver.h"

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

/* ---- the saver ---- */

/* Saves that are wanted and not started, a running save, and an end. */
struct saves {
    unsigned wanted;
    bool runs, ends;
};

static enum saver_state state_of(const struct saves *saves)
{
    if (saves->ends)
        return saves->runs ? SAVER_ENDING : SAVER_ENDED;
    if (saves->runs)
        return saves->wanted ? SAVER_RUNNING_AGAIN : SAVER_RUNNING;
    return saves->wanted == 0 ? SAVER_IDLE : saves->wanted == 1 ? SAVER_ASKED : SAVER_ASKED_TWICE;
}

/* False: impossible now. */
static bool happens(struct saves *saves, enum saver_event event)
{
    bool idle = !saves->wanted && !saves->runs && !saves->ends;
    switch (event) {
    case SAVER_ASK:
        saves->wanted += idle;
        return idle;
    case SAVER_SCHEDULE:
        saves->wanted += !saves->ends && saves->wanted < (saves->runs ? 1 : 2);
        return true;
    case SAVER_BEGIN:
        if (saves->runs || !saves->wanted)
            return false;
        saves->wanted--;
        return saves->runs = true;
    case SAVER_DONE:
        if (!saves->runs)
            return false;
        saves->runs = false;
        return true;
    case SAVER_STOP:
        if (saves->ends)
            return false;
        saves->wanted = 0;
        return saves->ends = true;
    }
    return false;
}

Test(states, the_saver_owes_each_promised_save)
{
    struct rng rng;
    struct saves saves = {0};
    enum saver_state state = SAVER_IDLE;
    begin(&rng);
    for (unsigned i = 0; i < rounds(); i++) {
        enum saver_event event = (enum saver_event)rng_below(&rng, SAVER_STOP + (rng_below(&rng, 20) == 0));
        bool may = happens(&saves, event);
        cr_assert_eq(may, HAS_ROW(saver_rows, state, event), "state %d, event %d", state, event);
        if (may)
            state = saver_next(state, event);
        cr_assert_eq(state, state_of(&saves), "after event %d: %d, not %d", event, state, state_of(&saves));
        if (state == SAVER_ENDED && rng_below(&rng, 4) == 0) {
            state = SAVER_IDLE;
            saves = (struct saves){0};
        }
    }
}

/* ---- the end of the daemon ---- */

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

/* ---- certificates ---- */

Test(states, a_reload_that_is_asked_for_begins_after_that)
{
    struct rng rng;
    enum reload_state state = RELOAD_NONE;
    unsigned asked = 0, begun = 0; /* the number of the last request; and the last one before the last reading began */
    begin(&rng);
    for (unsigned i = 0; i < rounds(); i++) {
        bool ask = state == RELOAD_NONE || rng_below(&rng, 3) == 0;
        asked += ask;
        state = (enum reload_state)STATE_NEXT(reload_rows, state, ask ? RELOAD_ASK : RELOAD_DONE);
        if (state == RELOAD_RUNS)
            begun = asked;
        cr_assert_eq(state == RELOAD_NONE || state == RELOAD_RUNS, begun == asked);
    }
}
