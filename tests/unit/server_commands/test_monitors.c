/* Parts of INFO, SLOWLOG and LATENCY: histograms, counts of errors, the slow log, the hash of passwords. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stats.h"
#include "histogram.h"
#include "slowlog.h"

static struct lock monitors_lock = LOCK_INITIALIZER(RANK_MONITORS);

/* ---- histogram ---- */

/* Every value is read back as at least itself and at most 1/32 more. */
Test(histogram, a_value_is_read_back_within_a_part)
{
    uint64_t previous = 0;

    for (double at = 1; at < 4e12; at *= 1.003) {
        static struct histogram histogram;
        uint64_t ns = (uint64_t)at, read;

        memset(&histogram, 0, sizeof(histogram));
        histogram_add(&histogram, ns, 1);
        read = histogram_percentile(&histogram, 50);
        cr_assert_geq(read, ns);
        cr_assert_leq(read - ns, ns / 32, "%llu read back as %llu", (unsigned long long)ns, (unsigned long long)read);
        cr_assert_geq(read, previous, "not monotonic at %llu", (unsigned long long)ns);
        previous = read;
    }
}

/* Durations beyond the longest bucket count as that long; 0 is a duration. */
Test(histogram, the_ends_hold)
{
    static struct histogram histogram;

    histogram_add(&histogram, 0, 3);
    cr_assert_eq(histogram_percentile(&histogram, 100), 0);
    histogram_add(&histogram, UINT64_MAX, 1);
    histogram_add(&histogram, UINT64_C(1) << HISTOGRAM_MAX_LOG2, 1);
    histogram_add(&histogram, (UINT64_C(1) << HISTOGRAM_MAX_LOG2) - 1, 1);
    cr_assert_eq(histogram_count(&histogram), 6);
    cr_assert_eq(histogram_percentile(&histogram, 100), (UINT64_C(1) << HISTOGRAM_MAX_LOG2) - 1);
    cr_assert_eq(histogram_percentile(&histogram, 50), 0);
}

/* The nearest-rank percentile of a known set, against a sorted array. */
Test(histogram, percentiles_are_those_of_the_sorted_values)
{
    static struct histogram histogram;
    uint64_t values[1000];
    static const double percentiles[] = {0, 0.1, 1, 50, 90, 99, 99.9, 100};

    for (size_t i = 0; i < 1000; i++) {
        values[i] = i * i * 37 + 5;
        histogram_add(&histogram, values[i], 1);
    }
    for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++) {
        double rank = ceil(percentiles[i] * 10);
        uint64_t value = values[rank < 1 ? 0 : (size_t)rank - 1],
                 read = histogram_percentile(&histogram, percentiles[i]);

        cr_assert_geq(read, value, "p%g", percentiles[i]);
        cr_assert_leq(read, value + value / 32, "p%g", percentiles[i]);
    }
}

/* Powers of two are borders of buckets, so counts below them are exact. */
Test(histogram, counts_below_powers_of_two_are_exact)
{
    static struct histogram histogram;

    for (unsigned log2 = 6; log2 < HISTOGRAM_MAX_LOG2; log2++) {
        histogram_add(&histogram, UINT64_C(1) << log2, 1);
        histogram_add(&histogram, (UINT64_C(1) << log2) - 1, 10);
    }
    for (unsigned log2 = 6; log2 < HISTOGRAM_MAX_LOG2; log2++)
        cr_assert_eq(histogram_count_upto(&histogram, (UINT64_C(1) << log2) - 1), 10 + 11 * (uint64_t)(log2 - 6),
                     "2^%u", log2);
}

/* At other bounds the part with the bound is left out: no longer duration is counted, and all that are 1/32 shorter
 * are. */
Test(histogram, counts_up_to_any_bound_miss_at_most_a_part)
{
    static const uint64_t steps[] = {100, 250, 500};
    for (uint64_t decade = 1; decade <= 100000000; decade *= 10) {
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
            static struct histogram histogram;
            uint64_t ns = steps[i] * decade;
            memset(&histogram, 0, sizeof(histogram));
            histogram_add(&histogram, ns + 1, 1);
            cr_assert_eq(histogram_count_upto(&histogram, ns), 0, "%" PRIu64, ns);
            histogram_add(&histogram, ns - ns / 32 - 1, 1);
            cr_assert_eq(histogram_count_upto(&histogram, ns), 1, "%" PRIu64, ns);
        }
    }
}

/* A reset subtracts the state at that time; sums of several threads are added. */
Test(histogram, sums_and_differences)
{
    static struct histogram a, b, sum, base;

    histogram_add(&a, 100, 5);
    histogram_sum(&base, &a);
    histogram_add(&a, 100, 2);
    histogram_add(&b, 5000, 1);
    histogram_sum(&sum, &a);
    histogram_sum(&sum, &b);
    histogram_subtract(&sum, &base);
    cr_assert_eq(histogram_count(&sum), 3);
    cr_assert_geq(histogram_percentile(&sum, 50), 100);
    cr_assert_lt(histogram_percentile(&sum, 50), 104);
    cr_assert_geq(histogram_percentile(&sum, 100), 5000);
}

/* ---- errorstats ---- */

static uint64_t errors_of(const struct errorstats *errors, const char *code)
{
    for (size_t i = 0; i < errors->used; i++) {
        if (strcmp(errors->rows[i].code, code) == 0)
            return errors->rows[i].count;
    }
    return 0;
}

static void count_error(struct errorstats *errors, const char *text)
{
    errorstats_count(errors, text, strlen(text));
}

/* The code is the first word, with any end; bytes that would break a line of INFO are replaced. */
Test(errorstats, codes_are_first_words)
{
    static struct errorstats errors;

    count_error(&errors, "ERR unknown command\r\n");
    count_error(&errors, "ERR\r\n");
    count_error(&errors, "NOAUTH Authentication required.\r\n");
    count_error(&errors, "A:b#c\td x");
    count_error(&errors, "");
    count_error(&errors, "0123456789012345678901234567890123456789 long");
    cr_assert_eq(errors_of(&errors, "ERR"), 2);
    cr_assert_eq(errors_of(&errors, "NOAUTH"), 1);
    cr_assert_eq(errors_of(&errors, "A_b_c_d"), 1);
    cr_assert_eq(errors_of(&errors, ""), 1);
    cr_assert_eq(errors_of(&errors, "0123456789012345678901234567890"), 1);
}

/* Clients' words before errors cannot take more than the table. */
Test(errorstats, the_rest_is_counted_together)
{
    static struct errorstats errors, sum;
    char text[32];

    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "CODE%d x", i);
        count_error(&errors, text);
    }
    cr_assert_eq(errors.used, ERRORSTATS_MAX);
    cr_assert_eq(errors_of(&errors, "CODE0"), 1);
    cr_assert_eq(errors_of(&errors, ERRORSTATS_REST), 1000 - (ERRORSTATS_MAX - 1));

    errorstats_sum(&sum, &errors, false);
    errorstats_sum(&sum, &errors, false);
    errorstats_sum(&sum, &errors, true);
    cr_assert_eq(errors_of(&sum, "CODE5"), 1);
    cr_assert_eq(errors_of(&sum, ERRORSTATS_REST), 1000 - (ERRORSTATS_MAX - 1));
}

/* ---- slowlog ---- */

static struct session the_session = {.id = 1, .origin.addr = "1.2.3.4:5", .texts.of[SESSION_NAME] = (char *)"me"};

static const char *slowlog_text(struct slowlog *slowlog, size_t n)
{
    static char text[65536];
    struct buf out;
    struct reply reply = {.buf = &out, .version = 2};

    buf_init(&out, SIZE_MAX);
    slowlog_reply(slowlog, n, &reply);
    snprintf(text, sizeof(text), "%.*s", (int)buf_len(&out), buf_head(&out));
    buf_deinit(&out);
    return text;
}

static void add_slow(struct slowlog *slowlog, const char *word, size_t max_len)
{
    struct slice words[1] = {{word, strlen(word)}};

    slowlog_add(slowlog, slowlog_entry_create(words, 1, &the_session), 77, 12345, max_len);
}

/* The newest come first, with growing ids that a reset does not restart; the oldest are dropped. */
Test(slowlog, holds_the_newest)
{
    struct slowlog *slowlog;

    cr_assert_eq(slowlog_create(&slowlog, &monitors_lock), 0);
    cr_assert_str_eq(slowlog_text(slowlog, 10), "*0\r\n");
    add_slow(slowlog, "one", 2);
    add_slow(slowlog, "two", 2);
    add_slow(slowlog, "three", 2);
    cr_assert_eq(slowlog_len(slowlog), 2);
    cr_assert_str_eq(slowlog_text(slowlog, 1),
                     "*1\r\n*6\r\n:2\r\n:77\r\n:12345\r\n*1\r\n$5\r\nthree\r\n$9\r\n1.2.3.4:5\r\n$2\r\nme\r\n");
    cr_assert_not_null(strstr(slowlog_text(slowlog, 10), "*2\r\n*6\r\n:2\r\n"));
    cr_assert_not_null(strstr(slowlog_text(slowlog, 10), "*6\r\n:1\r\n"));
    slowlog_reset(slowlog);
    cr_assert_eq(slowlog_len(slowlog), 0);
    add_slow(slowlog, "four", 1);
    add_slow(slowlog, "five", 0);
    cr_assert_eq(slowlog_len(slowlog), 0, "a length of 0 holds nothing");
    add_slow(slowlog, "six", 1);
    cr_assert_not_null(strstr(slowlog_text(slowlog, 10), "*6\r\n:5\r\n"));
    slowlog_destroy(slowlog);
}

/* Many and long words are cut, with a note of the missing length, at exactly Redis's limits. */
Test(slowlog, words_are_cut_as_redis_does)
{
    static char bytes[200];
    struct slice words[SLOWLOG_MAX_ARGS];
    struct slowlog *slowlog;

    memset(bytes, 'x', sizeof(bytes));
    for (size_t i = 0; i < SLOWLOG_MAX_ARGS; i++)
        words[i] = (struct slice){"w", 1};
    words[0] = (struct slice){bytes, 128};
    words[1] = (struct slice){bytes, 129};
    words[2] = (struct slice){NULL, 0};
    cr_assert_eq(slowlog_create(&slowlog, &monitors_lock), 0);
    slowlog_add(slowlog, slowlog_entry_create(words, 32, &the_session), 1, 1, 10);
    const char *text = slowlog_text(slowlog, 1);
    cr_assert_not_null(strstr(text, "*32\r\n$128\r\nx"));
    cr_assert_not_null(strstr(text, "x... (1 more bytes)\r\n$0\r\n\r\n"));
    cr_assert_null(strstr(text, "more arguments"));
    slowlog_add(slowlog, slowlog_entry_create(words, 33, &the_session), 1, 1, 10);
    cr_assert_not_null(strstr(slowlog_text(slowlog, 1), "$1\r\nw\r\n$22\r\n... (2 more arguments)\r\n$9\r\n1.2.3.4:5"));
    slowlog_add(slowlog, slowlog_entry_create(words, 1000001, &the_session), 1, 1, 10);
    cr_assert_not_null(strstr(slowlog_text(slowlog, 1), "... (999970 more arguments)"));
    slowlog_destroy(slowlog);
}
