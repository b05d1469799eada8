/* Records of a command's time: sums, histograms, slow log; with a worker that has no loop. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "server.h"
#include "slowlog.h"
#include "command_timing.h"
#include "worker.h"

static struct server server;
static struct worker *worker, *workers[1];
static struct config cfg;
static struct session session = {.id = 1, .origin.addr = "1.2.3.4:5"};

static void set(const char *name, const char *value)
{
    struct slice n = {name, strlen(name)}, v = {value, strlen(value)};

    cr_assert_eq(config_set(&cfg, n, v, CONFIG_FILE, NULL), CONFIG_OK);
    timing_refresh(&worker->runner.io.timing, &cfg);
}

static void init(void)
{
    cr_assert_eq(config_init(&cfg), 0);
    cr_assert_eq(monitors_init(&server.stats, 1), 0);
    cr_assert_eq(posix_memalign((void **)&worker, 64, sizeof(*worker)), 0);
    memset((void *)worker, 0, sizeof(*worker));
    worker->runner.io.server = &server;
    timing_init(&worker->runner.io.timing, &worker->runner.io.stats, server.stats.slowlog);
    counters_add(server.stats.counters, &worker->runner.io.stats, &worker->runner.io.timing);
    workers[0] = worker;
    server.threads.workers = workers;
    server.threads.nworkers = 1;
    timing_refresh(&worker->runner.io.timing, &cfg);
}

static void deinit(void)
{
    timing_deinit(&worker->runner.io.timing);
    monitors_deinit(&server.stats);
    config_deinit(&cfg);
    free(worker);
}

TestSuite(timing, .init = init, .fini = deinit);

static const struct command *row_of(const char *name)
{
    return command_find_full(slice_of(name));
}

static uint64_t time_of(const struct command *row)
{
    return stats_get(&worker->runner.io.stats.time_ns[command_index(row)]);
}

/* The words of a command, one after the other. */
struct words {
    char bytes[256];
    struct resp_span spans[8];
    struct resp_command cmd;
};

static const struct resp_command *make_words(struct words *words, const char *const *text)
{
    size_t n = 0, used = 0;

    for (; text[n] != NULL; n++) {
        size_t len = strlen(text[n]);
        memcpy(words->bytes + used, text[n], len);
        words->spans[n] = (struct resp_span){(uint32_t)used, (uint32_t)len};
        used += len;
    }
    words->cmd = (struct resp_command){.base = words->bytes, .spans = words->spans, .argc = n};
    return &words->cmd;
}

#define WORDS(words, ...) make_words((words), (const char *const[]){__VA_ARGS__, NULL})

/* Exactly at the limit a command is slow; one nanosecond before it is not. Every call is in the sums. */
Test(timing, the_limit_of_the_slow_log_is_exact)
{
    const struct command *row = row_of("bf.madd");
    struct words words;
    const struct resp_command *cmd = WORDS(&words, "BF.MADD", "f", "a");

    set("slowlog-log-slower-than", "500");
    timing_command(&worker->runner.io.timing, row, cmd, &session, 499999);
    cr_assert_eq(slowlog_len(server.stats.slowlog), 0);
    timing_command(&worker->runner.io.timing, row, cmd, &session, 500000);
    cr_assert_eq(slowlog_len(server.stats.slowlog), 1);
    set("slowlog-log-slower-than", "-1");
    timing_command(&worker->runner.io.timing, row, cmd, &session, UINT64_C(5000000000));
    cr_assert_eq(slowlog_len(server.stats.slowlog), 1, "-1: nothing is slow");
    set("slowlog-log-slower-than", "0");
    set("slowlog-max-len", "0");
    timing_command(&worker->runner.io.timing, row, cmd, &session, 1000);
    cr_assert_eq(slowlog_len(server.stats.slowlog), 1, "a length of 0: nothing is made");
    cr_assert_eq(time_of(row), 499999 + 500000 + UINT64_C(5000000000) + 1000);
    struct histogram histogram;
    cr_assert(counters_histogram(server.stats.counters, command_index(row), &histogram));
    cr_assert_eq(histogram_count(&histogram), 4);
}

/* A batch counts as its calls, each with the mean; one that is slow in the mean is recorded once, as its last
 * command. */
Test(timing, a_batch_is_shared_out)
{
    const struct command *row = row_of("bf.add");
    struct slice words[3] = {{"bf.add", 6}, {"f", 1}, {"item", 4}};
    struct histogram histogram;

    set("slowlog-log-slower-than", "100");
    cr_assert_not(worker->runner.io.timing.exact);
    timing_batch(&worker->runner.io.timing, row, 1000, 1000 * 99999, words, &session);
    cr_assert_eq(slowlog_len(server.stats.slowlog), 0);
    timing_batch(&worker->runner.io.timing, row, 3, 3 * 100000, words, &session);
    cr_assert_eq(slowlog_len(server.stats.slowlog), 1);
    cr_assert_eq(time_of(row), 1000 * 99999 + 3 * 100000);
    cr_assert(counters_histogram(server.stats.counters, command_index(row), &histogram));
    cr_assert_eq(histogram_count(&histogram), 1003);
    struct buf out;
    struct reply reply = {.buf = &out, .version = 2};
    buf_init(&out, SIZE_MAX);
    slowlog_reply(server.stats.slowlog, 1, &reply);
    buf_append(&out, "", 1);
    cr_assert_not_null(strstr(buf_head(&out), ":100\r\n*3\r\n$6\r\nbf.add\r\n$1\r\nf\r\n$4\r\nitem\r\n$9\r\n1.2.3.4:5"),
                       "%s", buf_head(&out));
    buf_deinit(&out);
    set("slowlog-log-slower-than", "100000");
    timing_batch(&worker->runner.io.timing, row, 100, UINT64_C(100) * 2000000, words, &session);
    cr_assert_eq(slowlog_len(server.stats.slowlog), 1, "slow together, but not each");
    set("slowlog-log-slower-than", "99");
    cr_assert(worker->runner.io.timing.exact, "below 100 us commands are run one by one");
    set("slowlog-log-slower-than", "-1");
    cr_assert_not(worker->runner.io.timing.exact);
}

/* A deferred command keeps its words, without passwords, and is recorded only if it was slow. */
Test(timing, a_deferred_command_is_timed_as_a_whole)
{
    struct timing_deferred deferred;
    struct words words;
    const struct resp_command *cmd = WORDS(&words, "KEYS", "*");

    set("slowlog-log-slower-than", "1000000");
    timing_defer(&deferred, &worker->runner.io.timing, row_of("keys"), cmd, &session);
    cr_assert_not_null(deferred.entry);
    memset(&words, 0, sizeof(words)); /* the input is gone by then */
    deferred.started_ns -= UINT64_C(2000000000);
    timing_deferred_done(&deferred, &worker->runner.io.timing);
    cr_assert_eq(slowlog_len(server.stats.slowlog), 1);
    cr_assert_geq(time_of(row_of("keys")), UINT64_C(2000000000));

    cmd = WORDS(&words, "KEYS", "*");
    timing_defer(&deferred, &worker->runner.io.timing, row_of("keys"), cmd, &session);
    timing_deferred_done(&deferred, &worker->runner.io.timing);
    cr_assert_eq(slowlog_len(server.stats.slowlog), 1, "it was fast");
    set("slowlog-log-slower-than", "-1");
    timing_defer(&deferred, &worker->runner.io.timing, row_of("keys"), cmd, &session);
    cr_assert_null(deferred.entry, "nothing is copied when nothing is slow");
    timing_deferred_done(&deferred, &worker->runner.io.timing);
}

/* Without histograms the sums continue. */
Test(timing, histograms_can_be_done_without)
{
    struct words words;
    struct histogram histogram;

    set("latency-tracking", "no");
    timing_command(&worker->runner.io.timing, row_of("ping"), WORDS(&words, "PING"), &session, 1000);
    cr_assert_not(counters_histogram(server.stats.counters, command_index(row_of("ping")), &histogram));
    cr_assert_eq(time_of(row_of("ping")), 1000);
}
