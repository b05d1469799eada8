/* Sums of counters, and rates from them. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "stats.h"

Test(stats, sums_add_every_counter_and_no_gauge)
{
    static struct stats a, b, sum;

    stats_add(&a.commands_processed, 5);
    stats_add(&a.commands_processed, 6);
    stats_add(&b.commands_processed, 100);
    stats_add(&b.changes, 7);
    stats_add(&a.calls[STATS_MAX_COMMANDS - 1], 1);
    stats_add(&b.calls[STATS_MAX_COMMANDS - 1], 2);
    stats_add(&a.rejected[0], 3);
    stats_add(&b.failed[1], 4);
    atomic_store(&a.commands_per_sec, 99);
    stats_sum(&sum, &a, false);
    stats_sum(&sum, &b, false);
    cr_expect_eq(stats_get(&sum.commands_processed), 111);
    cr_expect_eq(stats_get(&sum.changes), 7);
    cr_expect_eq(stats_get(&sum.calls[STATS_MAX_COMMANDS - 1]), 3);
    cr_expect_eq(stats_get(&sum.rejected[0]), 3);
    cr_expect_eq(stats_get(&sum.failed[1]), 4);
    cr_expect_eq(stats_get(&sum.commands_per_sec), 0);

    stats_sum(&sum, &a, true);
    cr_expect_eq(stats_get(&sum.commands_processed), 100);
    cr_expect_eq(stats_get(&sum.calls[STATS_MAX_COMMANDS - 1]), 2);
    cr_expect_eq(stats_get(&sum.rejected[0]), 0);
}

/* A steady rate is reported exactly once all samples have it, with any distance between samples. */
Test(stats, steady_rates_are_reported_exactly)
{
    static struct stats sum, gauges;
    struct stats_sampler sampler = {0};
    int64_t now_ms = 5000;

    stats_add(&sum.commands_processed, 1000000); /* counts before the first sample are ignored */
    stats_sampler_update(&sampler, &sum, &gauges, now_ms);
    for (int i = 0; i < STATS_SAMPLES; i++) {
        int64_t step_ms = i % 2 == 0 ? 100 : 150;

        now_ms += step_ms;
        stats_add(&sum.commands_processed, (uint64_t)(40 * step_ms));
        stats_add(&sum.net_input_bytes, (uint64_t)(3 * step_ms));
        stats_add(&sum.net_output_bytes, (uint64_t)(7 * step_ms));
        stats_add(&sum.loop_cycles, (uint64_t)(2 * step_ms));
        stats_add(&sum.loop_ns, (uint64_t)(500 * step_ms));
        stats_sampler_update(&sampler, &sum, &gauges, now_ms);
    }
    cr_expect_eq(stats_get(&gauges.commands_per_sec), 40000);
    cr_expect_eq(stats_get(&gauges.input_bytes_per_sec), 3000);
    cr_expect_eq(stats_get(&gauges.output_bytes_per_sec), 7000);
    cr_expect_eq(stats_get(&gauges.loop_cycles_per_sec), 2000);
    cr_expect_eq(stats_get(&gauges.loop_ns_per_sec), 500000);

    for (int i = 0; i < STATS_SAMPLES / 2; i++)
        stats_sampler_update(&sampler, &sum, &gauges, now_ms += 100);
    cr_expect_eq(stats_get(&gauges.commands_per_sec), 20000, "half of the samples saw nothing");
    for (int i = 0; i < STATS_SAMPLES / 2; i++)
        stats_sampler_update(&sampler, &sum, &gauges, now_ms += 100);
    cr_expect_eq(stats_get(&gauges.commands_per_sec), 0);
}

/* CONFIG RESETSTAT between two samples, and two samples in the same millisecond. */
Test(stats, rates_survive_a_reset_and_a_standing_clock)
{
    static struct stats sum, gauges;
    struct stats_sampler sampler = {0};

    stats_add(&sum.commands_processed, 5000);
    stats_sampler_update(&sampler, &sum, &gauges, 1000);
    atomic_store(&sum.commands_processed, 160);
    stats_sampler_update(&sampler, &sum, &gauges, 1000);
    stats_sampler_update(&sampler, &sum, &gauges, 1100);
    cr_expect_eq(stats_get(&gauges.commands_per_sec), 1600 / STATS_SAMPLES);
}
