/* The schedule of an open loop: the start of each request's time, for requests sent late. */
#include <criterion/criterion.h>

#include "schedule.h"

#define START 1000000u
#define US    1000u

static struct hdr lateness;
static struct schedule schedule;

static void start(void)
{
    lateness = (struct hdr){0};
    schedule_init(&schedule, START, 10000, UINT64_MAX); /* one per 100 us */
}

TestSuite(schedule, .init = start);

static void look(uint64_t now, uint64_t left_out)
{
    cr_expect_eq(schedule_look(&schedule, now, &lateness), left_out);
}

/* Nothing is handed out before its time. */
Test(schedule, hands_out_what_is_due)
{
    look(START - 1, 0);
    cr_expect(!schedule_waits(&schedule));
    cr_expect_eq(schedule_next_due(&schedule), START);
    look(START, 0);
    cr_assert(schedule_waits(&schedule));
    cr_expect_eq(schedule_take(&schedule), START);
    cr_expect(!schedule_waits(&schedule));
    cr_expect_eq(schedule_next_due(&schedule), START + 100 * US);
    cr_expect_eq(lateness.total, 1);
    cr_expect_eq(lateness.max, 0);
}

/* Requests that the generator notices late count from then on, and their lateness is recorded. */
Test(schedule, its_own_lateness_is_not_charged)
{
    look(START + 250 * US, 0); /* three were due: 250, 150 and 50 us ago */
    for (int i = 0; i < 3; i++)
        cr_expect_eq(schedule_take(&schedule), START + 250 * US);
    cr_expect(!schedule_waits(&schedule));
    cr_expect_eq(lateness.total, 3);
    cr_expect_eq(lateness.max, 250 * US);
}

/* Requests due while others wait for the server also wait for the server, however late the generator looks. */
Test(schedule, what_comes_behind_a_stall_is_charged_from_when_it_was_due)
{
    look(START, 0);
    look(START + 520 * US, 0);
    for (unsigned i = 0; i <= 5; i++)
        cr_expect_eq(schedule_take(&schedule), START + i * 100 * US);
    cr_expect(!schedule_waits(&schedule));
    cr_expect_eq(lateness.total, 1, "nobody can tell whether the others would have been noticed in time");

    look(START + 640 * US, 0);
    cr_expect_eq(schedule_take(&schedule), START + 640 * US);
}

/* After a long pause a generator with this option does not send all due requests at once. */
Test(schedule, leaves_out_what_it_notices_too_late)
{
    schedule_init(&schedule, START, 10000, 100 * US);
    look(START + 250 * US, 2);
    cr_expect_eq(schedule_take(&schedule), START + 250 * US);
    cr_expect(!schedule_waits(&schedule));
    cr_expect_eq(lateness.total, 3);

    look(START + 300 * US, 0); /* not taken yet: later ones wait for the server, and are not left out */
    look(START + 900 * US, 0);
    for (unsigned i = 3; i <= 9; i++)
        cr_expect_eq(schedule_take(&schedule), START + i * 100 * US);
    cr_expect(!schedule_waits(&schedule));
}
