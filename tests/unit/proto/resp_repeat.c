/* A stream of requests has the same result by the parser alone and with the recogniser of repeated requests before
 * it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resp_repeat.h"
#include "rng.h"

static const struct resp_limits limits = {.max_args = 100, .max_bulk = 500, .max_inline = 1000};

/* The result of a stream: the arguments of all commands, each with its length in front. */
struct outcome {
    char text[65536];
    size_t len;
    enum resp_status status; /* the last one */
    unsigned commands, repeated;
    unsigned longest; /* the most that were recognised at once */
};

#define MAX_RUN 32

static void add_slice(struct outcome *outcome, struct slice arg)
{
    outcome->len += (size_t)snprintf(outcome->text + outcome->len, 32, "%zu:", arg.len);
    memcpy(outcome->text + outcome->len, arg.ptr, arg.len);
    outcome->len += arg.len;
}

static void add_command(struct outcome *outcome, const struct resp_command *cmd)
{
    for (size_t i = 0; i < cmd->argc; i++)
        add_slice(outcome, resp_arg(cmd, i));
    outcome->text[outcome->len++] = '\n';
    outcome->commands++;
}

/* Runs data[0..len), of which only `cut` bytes are there at first, and recognises at most `max` at once; 0: none. */
static void take(struct outcome *outcome, const char *data, size_t len, size_t cut, size_t max)
{
    char *copy = malloc(len + 1); /* inline commands are changed in place */
    struct resp_parser parser;
    struct resp_args args = {0};
    struct resp_repeat repeat = {0};
    struct resp_command noted = {0};
    struct slice noted_args[8];
    size_t done = 0, have = cut;

    memcpy(copy, data, len);
    *outcome = (struct outcome){.status = RESP_NEED_MORE};
    resp_parser_init(&parser);
    for (;;) {
        struct slice last[MAX_RUN];
        size_t n = 0, used;
        if (max && resp_parser_idle(&parser))
            n = resp_repeat_match(&repeat, copy + done, have - done, limits.max_bulk, last, max, &used);
        if (n) {
            done += used;
            for (size_t r = 0; r < n; r++) {
                for (size_t i = 0; i + 1 < noted.argc; i++)
                    add_slice(outcome, noted_args[i]);
                add_slice(outcome, last[r]);
                outcome->text[outcome->len++] = '\n';
            }
            outcome->commands += (unsigned)n;
            outcome->repeated += (unsigned)n;
            outcome->longest = n > outcome->longest ? (unsigned)n : outcome->longest;
            continue;
        }
        struct resp_command cmd;
        size_t consumed;
        outcome->status = resp_parser_next(&parser, &args, &limits, 0, copy + done, have - done, &consumed, &cmd);
        done += consumed;
        if (outcome->status == RESP_COMMAND) {
            add_command(outcome, &cmd);
            if (cmd.argc <= 8 && resp_repeat_note(&repeat, &cmd)) { /* otherwise the last note still holds */
                noted = cmd;
                for (size_t i = 0; i < cmd.argc; i++)
                    noted_args[i] = resp_arg(&cmd, i);
            }
        } else if (outcome->status == RESP_NEED_MORE && have < len) {
            have = len;
        } else {
            break;
        }
    }
    resp_parser_deinit(&parser);
    resp_args_deinit(&args);
    free(copy);
}

static void compare(const char *data, size_t len, size_t cut, size_t max, struct outcome *total)
{
    static struct outcome plain, with;
    take(&plain, data, len, cut, 0);
    take(&with, data, len, cut, max);
    cr_assert(plain.status == with.status && plain.commands == with.commands && plain.len == with.len &&
                  memcmp(plain.text, with.text, plain.len) == 0,
              "%.*s\n%u commands, status %d; with the recogniser %u, status %d", (int)len, data, plain.commands,
              (int)plain.status, with.commands, (int)with.status);
    total->repeated += with.repeated;
    total->longest = with.longest > total->longest ? with.longest : total->longest;
}

static size_t random_request(struct rng *rng, char *out)
{
    static const char *const odd[] = {
        "PING\r\n",
        "\r\n",
        "BF.ADD f \"x y\"\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$003\r\nabc\r\n",
        "*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$3\r\nabcXY",
        "*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$0\r\n\r\n",
        "*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$3\rZabc\r\n",
        "*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "*3\r\n$6\r\nBF.ADD\r\n$01\r\nf\r\n$1\r\na\r\n",
    };
    if (rng_below(rng, 10) == 0)
        return (size_t)sprintf(out, "%s", odd[rng_below(rng, sizeof(odd) / sizeof(*odd))]);
    static const char *const names[] = {"f", "filter", "f2"};
    static const char *const commands[] = {"$6\r\nBF.ADD", "$6\r\nbf.add", "$9\r\nBF.EXISTS"};
    const char *name = names[rng_below(rng, 8) ? 0 : rng_below(rng, 3)];
    const char *command = commands[rng_below(rng, 8) ? 0 : rng_below(rng, 3)];
    size_t item = rng_below(rng, 10) ? 1 + rng_below(rng, 40) : rng_below(rng, 520);
    size_t len = (size_t)sprintf(out, "*3\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n", command, strlen(name), name, item);
    for (size_t i = 0; i < item; i++)
        out[len++] = "\r\n$*3ab"[rng_below(rng, 7)];
    out[len++] = '\r';
    out[len++] = '\n';
    return len;
}

Test(resp_repeat, streams_are_the_same_with_and_without_it)
{
    static char stream[32768];
    struct rng rng;
    static struct outcome total;

    rng_init(&rng, 1);
    for (unsigned round = 0; round < 3000; round++) {
        size_t len = 0;
        while (len < 2000)
            len += random_request(&rng, stream + len);
        compare(stream, len, rng_below(&rng, len + 1), 1 + rng_below(&rng, MAX_RUN), &total);
    }
    cr_assert_gt(total.repeated, 20000, "%u", total.repeated); /* otherwise the test has no repetitions */
    cr_assert_geq(total.longest, 10);
}

/* Pipelines of about the length of a run, with items of all lengths that matter to the recogniser, cut at every
 * byte. */
Test(resp_repeat, every_cut_of_a_pipeline)
{
    static const size_t sizes[] = {1, 3, 9, 10, 16, 16, 16, 16, 99, 100, 16};
    static char stream[8192];
    static struct outcome total;
    for (unsigned n = 2; n <= 2 * MAX_RUN + 2; n += n == 4 ? MAX_RUN - 6 : n == MAX_RUN + 2 ? MAX_RUN - 4 : 1) {
        size_t len = 0;
        for (unsigned i = 0; i < n; i++) {
            size_t item = sizes[(i + n) % (sizeof(sizes) / sizeof(*sizes))];
            len += (size_t)sprintf(stream + len, "*3\r\n$9\r\nBF.EXISTS\r\n$6\r\nfilter\r\n$%zu\r\n", item);
            memset(stream + len, 'a' + (int)(i % 26), item);
            memcpy(stream + len + item, "\r\n", 2);
            len += item + 2;
        }
        for (size_t cut = 0; cut <= len; cut++)
            compare(stream, len, cut, MAX_RUN, &total);
    }
    cr_assert_eq(total.longest, MAX_RUN);
}

/* A note is a copy: it stays after its bytes are gone and after other commands. */
Test(resp_repeat, is_remembered_when_the_bytes_are_gone)
{
    char request[] = "*3\r\n$9\r\nBF.EXISTS\r\n$6\r\nfilter\r\n$3\r\nabc\r\n";
    const struct resp_span spans[] = {{8, 9}, {23, 6}, {35, 3}};
    struct resp_repeat repeat = {0};
    struct slice last[2];
    size_t used;
    cr_assert_eq(resp_repeat_match(&repeat, request, sizeof(request) - 1, 100, last, 2, &used), 0);
    cr_assert(resp_repeat_note(&repeat, &(struct resp_command){request, spans, 3}));
    memset(request, 'x', 8);
    cr_assert_eq(resp_repeat_match(&repeat, request, sizeof(request) - 1, 100, last, 2, &used), 0);
    memcpy(request, "*3\r\n$9\r\n", 8);
    memcpy(request + 35, "def", 3);
    cr_assert_eq(resp_repeat_match(&repeat, request, sizeof(request) - 1, 100, last, 2, &used), 1);
    cr_assert_eq(used, sizeof(request) - 1);
    cr_assert(last[0].len == 3 && memcmp(last[0].ptr, "def", 3) == 0);
    request[0] = ' '; /* an inline command */
    cr_assert_not(resp_repeat_note(&repeat, &(struct resp_command){request, spans, 3}));
    request[0] = '*';
    cr_assert_eq(resp_repeat_match(&repeat, request, sizeof(request) - 1, 100, last, 2, &used), 1);
}

/* A repetition is never longer than the limit for an argument. */
Test(resp_repeat, keeps_the_limit)
{
    char stream[4096];
    static struct outcome total;
    for (size_t item = 495; item < 505; item++) {
        int len = sprintf(
            stream, "*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$1\r\na\r\n*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$%zu\r\n", item);
        memset(stream + len, 'x', item);
        memcpy(stream + len + item, "\r\n", 2);
        compare(stream, (size_t)len + item + 2, (size_t)len + item + 2, MAX_RUN, &total);
    }
    cr_assert_eq(total.repeated, 6);
}

/* The recogniser reads nothing beyond the given bytes: each stream is in memory of exactly its size. */
Test(resp_repeat, reads_nothing_beyond_the_end)
{
    static const char request[] = "*3\r\n$9\r\nBF.EXISTS\r\n$6\r\nfilter\r\n$3\r\nabc\r\n";
    struct resp_repeat repeat = {.len = sizeof(request) - 1 - 8};
    struct slice last[4];
    size_t used, whole = sizeof(request) - 1;
    memcpy(repeat.head, request, repeat.len);
    for (size_t len = 0; len <= 3 * whole; len++) {
        char *copy = malloc(len ? len : 1);
        for (size_t i = 0; i < len; i++)
            copy[i] = request[i % whole];
        cr_assert_eq(resp_repeat_match(&repeat, copy, len, 100, last, 4, &used), len / whole);
        cr_assert_eq(used, len / whole * whole);
        free(copy);
    }
}
