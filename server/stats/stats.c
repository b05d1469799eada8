/* A gauge is the mean rate over the last STATS_SAMPLES samples, as Redis computes its instantaneous_* fields. A single
 * sample of a tenth of a second varies too much. */
#include "stats.h"

#include <stdbool.h>
#include <stddef.h>

void stats_sum(struct stats *sum, const struct stats *from)
{
#define STATS_SUM_FIELD(name, doc) stats_add(&sum->name, stats_get(&from->name));
    STATS_COUNTERS(STATS_SUM_FIELD)
#undef STATS_SUM_FIELD
    for (int i = 0; i < STATS_MAX_COMMANDS; i++) {
        stats_add(&sum->calls[i], stats_get(&from->calls[i]));
        stats_add(&sum->rejected[i], stats_get(&from->rejected[i]));
        stats_add(&sum->failed[i], stats_get(&from->failed[i]));
        stats_add(&sum->time_ns[i], stats_get(&from->time_ns[i]));
    }
}

void stats_subtract(struct stats *sum, const struct stats *base)
{
#define STATS_SUBTRACT_FIELD(name, doc) \
    atomic_fetch_sub_explicit(&sum->name, stats_get(&base->name), memory_order_relaxed);
    STATS_COUNTERS(STATS_SUBTRACT_FIELD)
#undef STATS_SUBTRACT_FIELD
    for (int i = 0; i < STATS_MAX_COMMANDS; i++) {
        atomic_fetch_sub_explicit(&sum->calls[i], stats_get(&base->calls[i]), memory_order_relaxed);
        atomic_fetch_sub_explicit(&sum->rejected[i], stats_get(&base->rejected[i]), memory_order_relaxed);
        atomic_fetch_sub_explicit(&sum->failed[i], stats_get(&base->failed[i]), memory_order_relaxed);
        atomic_fetch_sub_explicit(&sum->time_ns[i], stats_get(&base->time_ns[i]), memory_order_relaxed);
    }
}

static void rate_sample(struct stats_rate *rate, unsigned slot, uint64_t value, int64_t elapsed_ms,
                        _Atomic uint64_t *gauge)
{
    uint64_t sum = 0;

    /* A counter that fell was reset in between: only its count since then is known. */
    uint64_t grown = value >= rate->last ? value - rate->last : value;

    rate->samples[slot] = grown * 1000 / (uint64_t)elapsed_ms;
    rate->last = value;
    for (int i = 0; i < STATS_SAMPLES; i++)
        sum += rate->samples[i];
    atomic_store_explicit(gauge, sum / STATS_SAMPLES, memory_order_relaxed);
}

void stats_sampler_update(struct stats_sampler *sampler, const struct stats *sum, struct stats *gauges, int64_t now_ms)
{
    const struct {
        struct stats_rate *rate;
        const _Atomic uint64_t *counter;
        _Atomic uint64_t *gauge;
    } rates[] = {
        {&sampler->commands, &sum->commands_processed, &gauges->commands_per_sec},
        {&sampler->input, &sum->net_input_bytes, &gauges->input_bytes_per_sec},
        {&sampler->output, &sum->net_output_bytes, &gauges->output_bytes_per_sec},
        {&sampler->cycles, &sum->loop_cycles, &gauges->loop_cycles_per_sec},
        {&sampler->loop, &sum->loop_ns, &gauges->loop_ns_per_sec},
    };
    int64_t elapsed_ms = now_ms - sampler->last_ms;
    bool first = sampler->last_ms == 0;

    if (elapsed_ms <= 0)
        return;
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        if (first)
            rates[i].rate->last = stats_get(rates[i].counter);
        else
            rate_sample(rates[i].rate, sampler->next, stats_get(rates[i].counter), elapsed_ms, rates[i].gauge);
    }
    if (!first)
        sampler->next = (sampler->next + 1) % STATS_SAMPLES;
    sampler->last_ms = now_ms;
}
