/* A gauge is the mean rate over the last STATS_SAMPLES samples, as Redis computes its instantaneous_* fields. A single
 * sample of a tenth of a second varies too much. */
#include "stats.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "slowlog.h"

#define FIRST_COUNTER offsetof(struct stats, connections_received)
#define COUNTERS      ((offsetof(struct stats, commands_per_sec) - FIRST_COUNTER) / sizeof(_Atomic uint64_t))

void stats_sum(struct stats *sum, const struct stats *from, bool subtract)
{
    _Atomic uint64_t *to = (_Atomic uint64_t *)(void *)((char *)sum + FIRST_COUNTER);
    const _Atomic uint64_t *one = (const _Atomic uint64_t *)(const void *)((const char *)from + FIRST_COUNTER);
    for (size_t i = 0; i < COUNTERS; i++)
        stats_add(&to[i], subtract ? 0 - stats_get(&one[i]) : stats_get(&one[i]));
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

/* Replaces bytes that would break INFO's line "errorstat_CODE:count=n". */
static void copy_code(char *code_out, const char *text, size_t len)
{
    size_t n = 0;

    for (; n < len && n < ERRORSTATS_CODE - 1 && text[n] != ' ' && text[n] != '\r'; n++) {
        unsigned char c = (unsigned char)text[n];
        code_out[n] = c <= ' ' || c > '~' || c == ':' || c == '#' ? '_' : text[n];
    }
    code_out[n] = '\0';
}

/* The row of the code; the last row counts the codes without a row of their own. */
static struct errorstats_row *find_row(struct errorstats *errors, const char *code)
{
    size_t used = atomic_load_explicit(&errors->used, memory_order_acquire);

    for (size_t i = 0; i < used; i++)
        if (strcmp(errors->rows[i].code, code) == 0)
            return &errors->rows[i];
    if (used == ERRORSTATS_MAX)
        return &errors->rows[ERRORSTATS_MAX - 1];
    struct errorstats_row *row = &errors->rows[used];
    strcpy(row->code, used == ERRORSTATS_MAX - 1 ? ERRORSTATS_REST : code);
    atomic_store_explicit(&errors->used, used + 1, memory_order_release);
    return row;
}

static void add(struct errorstats *errors, const char *code, uint64_t n)
{
    struct errorstats_row *row = find_row(errors, code);
    uint64_t count = atomic_load_explicit(&row->count, memory_order_relaxed);
    atomic_store_explicit(&row->count, count + n, memory_order_relaxed);
}

void errorstats_count(struct errorstats *errors, const char *text, size_t len)
{
    char code[ERRORSTATS_CODE];

    copy_code(code, text, len);
    add(errors, code, 1);
}

void errorstats_sum(struct errorstats *sum, const struct errorstats *from, bool subtract)
{
    size_t used = atomic_load_explicit(&from->used, memory_order_acquire);

    for (size_t i = 0; i < used; i++) {
        uint64_t count = atomic_load_explicit(&from->rows[i].count, memory_order_relaxed);
        add(sum, from->rows[i].code, subtract ? 0 - count : count);
    }
}

void timing_init(struct timing *timing, struct stats *stats, struct slowlog *slowlog)
{
    *timing = (struct timing){.stats = stats, .slowlog = slowlog};
}

void timing_deinit(struct timing *timing)
{
    for (size_t i = 0; i < STATS_MAX_COMMANDS; i++) {
        free(atomic_load_explicit(&timing->histograms[i], memory_order_relaxed));
        atomic_store_explicit(&timing->histograms[i], NULL, memory_order_relaxed);
    }
}

void timing_refresh(struct timing *timing, const struct config *config)
{
    int64_t slow_usec = config->process.slowlog_log_slower_than;

    timing->slow_ns = slow_usec < 0 || config->process.slowlog_max_len == 0 ? UINT64_MAX : (uint64_t)slow_usec * 1000;
    timing->slowlog_len = (size_t)config->process.slowlog_max_len;
    timing->tracking = config->process.latency_tracking;
    timing->exact = timing->slow_ns < (uint64_t)TIMING_EXACT_USEC * 1000;
}

/* Without memory for the histogram its counts are lost; commandstats keeps its sums. */
static struct histogram *histogram_of(struct timing *timing, size_t counter)
{
    struct histogram *histogram = atomic_load_explicit(&timing->histograms[counter], memory_order_relaxed);

    if (!histogram) {
        histogram = calloc(1, sizeof(*histogram));
        atomic_store_explicit(&timing->histograms[counter], histogram, memory_order_release);
    }
    return histogram;
}

bool timing_record(struct timing *timing, size_t counter, uint64_t n, uint64_t ns)
{
    stats_add(&timing->stats->time_ns[counter], ns);
    struct histogram *histogram = timing->tracking ? histogram_of(timing, counter) : NULL;
    if (histogram)
        histogram_add(histogram, ns / n, n);
    return ns / n >= timing->slow_ns;
}

void timing_remember(struct timing *timing, struct slowlog_entry *entry, uint64_t ns)
{
    if (entry)
        slowlog_add(timing->slowlog, entry, clock_unix_ms() / 1000, (int64_t)(ns / 1000), timing->slowlog_len);
}
