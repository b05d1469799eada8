/* The cost of the parser and the reply writer in process, beside yardsticks measured in the same run: copying the
 * same bytes, and a plain parser of the same requests (memchr for the line end, strtol for the number, no state, no
 * limits). The yardsticks matter: a virtual machine's speed differs from minute to minute, ratios do not.
 *
 * bench_proto [round-factor]: medians over interleaved rounds, nanoseconds per command (per reply). */
#include "../bench.h"
#include "clock.h"
#include "reply.h"
#include "resp_parse.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small enough for the second-level cache, which has the bytes just received; too long for a branch predictor to
 * learn in a few rounds. */
#define BUFFER_SIZE ((size_t)512 * 1024)
#define COMMAND_MAX ((size_t)32 * 1024)
#define ROUNDS      31

static const struct resp_limits limits = {RESP_MAX_ARGS_DEFAULT, RESP_MAX_BULK_DEFAULT, RESP_MAX_INLINE_DEFAULT};

struct load {
    const char *name;
    char *bytes;
    size_t len, commands, args;
};

struct result {
    double copy, plain, parser, pieces;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_proto: %s\n", what);
    exit(1);
}

/* ---- loads ---- */

/* As many commands of `items` items as fit; lengths of items run from `min` to `max`, in no order that a branch
 * predictor could learn. */
static struct load make_load(const char *name, const char *command, const char *filter, size_t items, size_t min,
                             size_t max)
{
    struct load load = {.name = name, .bytes = malloc(BUFFER_SIZE)};
    uint64_t random = 88172645463325252u;

    if (load.bytes == NULL)
        fail("out of memory");
    for (;;) {
        char text[COMMAND_MAX];
        size_t len = (size_t)sprintf(text, "*%zu\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", items + 2, strlen(command), command,
                                     strlen(filter), filter);
        for (size_t i = 0; i < items; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            size_t item = min + (size_t)(random % (max - min + 1));
            len += (size_t)sprintf(text + len, "$%zu\r\n%0*d\r\n", item, (int)item, 7);
        }
        if (load.len + len > BUFFER_SIZE)
            return load;
        memcpy(load.bytes + load.len, text, len);
        load.len += len;
        load.commands++;
        load.args += items + 2;
    }
}

/* ---- contestants: each processes the load once and returns a value that depends on all of it ---- */

static size_t copy_bytes(const struct load *load)
{
    static char target[BUFFER_SIZE];

    memcpy(target, load->bytes, load->len);
    __asm__ volatile("" : : "r"(target) : "memory");
    return load->len;
}

static size_t parse_plainly(const struct load *load)
{
    static struct resp_span spans[2048];
    const char *p = load->bytes, *end = p + load->len;
    size_t sum = 0;

    while (p < end) {
        const char *line_end = memchr(p, '\r', (size_t)(end - p));
        long argc = strtol(p + 1, NULL, 10);
        p = line_end + 2;
        for (long i = 0; i < argc; i++) {
            line_end = memchr(p, '\r', (size_t)(end - p));
            long len = strtol(p + 1, NULL, 10);
            p = line_end + 2;
            spans[i] = (struct resp_span){(uint32_t)(p - load->bytes), (uint32_t)len};
            p += len + 2;
        }
        __asm__ volatile("" : : "r"(spans) : "memory");
        sum += (size_t)argc;
    }
    return sum;
}

static struct resp_args args;

/* In pieces of `piece` bytes, each call with all bytes so far, as in a connection's buffer. */
static size_t parse_in_pieces(const struct load *load, size_t piece)
{
    struct resp_parser parser;
    struct resp_command cmd;
    size_t sum = 0, at = 0, consumed;

    resp_parser_init(&parser);
    for (size_t have = 0; have < load->len;) {
        have = have + piece < load->len ? have + piece : load->len;
        while (resp_parser_next(&parser, &args, &limits, 0, load->bytes + at, have - at, &consumed, &cmd) ==
               RESP_COMMAND) {
            at += consumed;
            sum += cmd.argc;
        }
    }
    resp_parser_deinit(&parser);
    return sum;
}

static size_t parse(const struct load *load)
{
    return parse_in_pieces(load, SIZE_MAX / 2);
}

static size_t parse_1460(const struct load *load)
{
    return parse_in_pieces(load, 1460); /* a TCP segment */
}

/* ---- measurement ---- */

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), by_value);
    return values[ROUNDS / 2];
}

static double time_once(size_t (*contestant)(const struct load *), const struct load *load, size_t times,
                        size_t expected)
{
    uint64_t begin = clock_ns();
    size_t sum = 0;

    for (size_t i = 0; i < times; i++)
        sum += contestant(load);
    if (sum != expected * times)
        fail("a contestant lost something");
    return (double)(clock_ns() - begin) / (double)(times * load->commands);
}

static void bench_load(struct load load, size_t factor)
{
    static double copy[ROUNDS], plain[ROUNDS], parser[ROUNDS], pieces[ROUNDS];
    size_t times = factor;

    for (int i = 0; i < ROUNDS; i++) {
        copy[i] = time_once(copy_bytes, &load, times, load.len);
        plain[i] = time_once(parse_plainly, &load, times, load.args);
        parser[i] = time_once(parse, &load, times, load.args);
        pieces[i] = time_once(parse_1460, &load, times, load.args);
    }

    struct result r = {median(copy), median(plain), median(parser), median(pieces)};
    double per = (double)load.args / (double)load.commands;
    printf("%-30s %5zu %8.1f %8.1f %8.1f %8.2f %7.2fx %10.1f\n", load.name, load.len / load.commands, r.copy, r.plain,
           r.parser, r.parser / per, r.plain / r.parser, r.pieces);
    free(load.bytes);
}

#define REPLIES 1000

static void bench_reply(const char *name, void (*write)(struct reply *, size_t), int version, size_t factor)
{
    static double rounds[ROUNDS];
    struct buf buf;
    struct reply reply = {&buf, version};

    buf_init(&buf, SIZE_MAX);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t begin = clock_ns();
        for (size_t j = 0; j < factor * 20; j++) {
            write(&reply, REPLIES);
            buf_consume(&buf, buf_len(&buf));
        }
        rounds[i] = (double)(clock_ns() - begin) / (double)(factor * 20 * REPLIES);
    }
    if (buf_failed(&buf))
        fail("the reply buffer failed");
    buf_deinit(&buf);
    printf("%-30s %8.2f\n", name, median(rounds));
}

static void write_bools(struct reply *reply, size_t n)
{
    for (size_t i = 0; i < n; i++)
        reply_bool(reply, i & 1);
}

static void write_small_integers(struct reply *reply, size_t n)
{
    for (size_t i = 0; i < n; i++)
        reply_integer(reply, (int64_t)(i & 1));
}

static void write_large_integers(struct reply *reply, size_t n)
{
    for (size_t i = 0; i < n; i++)
        reply_integer(reply, (int64_t)(i * 1234567));
}

static void write_bulks(struct reply *reply, size_t n)
{
    for (size_t i = 0; i < n; i++)
        reply_bulk(reply, "0123456789abcdef", 16);
}

static void write_errors(struct reply *reply, size_t n)
{
    for (size_t i = 0; i < n; i++)
        reply_error(reply, "ERR wrong number of arguments for 'bf.add' command");
}

int main(int argc, char **argv)
{
    size_t factor = argc > 1 ? strtoul(argv[1], NULL, 10) : 10;

    if (factor == 0)
        fail("the factor is a number, 1 or more");
    printf("%-30s %5s %8s %8s %8s %8s %8s %10s\n", "requests (ns per command)", "bytes", "memcpy", "plain", "parser",
           "per arg", "plain/", "by 1460 B");
    bench_load(make_load("BF.ADD f key16", "BF.ADD", "f", 1, 16, 16), factor);
    bench_load(make_load("BF.EXISTS filter key16", "BF.EXISTS", "filter", 1, 16, 16), factor);
    bench_load(make_load("BF.EXISTS filter key8..32", "BF.EXISTS", "filter", 1, 8, 32), factor);
    bench_load(make_load("BF.ADD urls url20..150", "BF.ADD", "urls", 1, 20, 150), factor);
    bench_load(make_load("BF.ADD urls url100..200", "BF.ADD", "urls", 1, 100, 200), factor);
    bench_load(make_load("BF.MEXISTS filter 100 key16", "BF.MEXISTS", "filter", 100, 16, 16), factor);
    bench_load(make_load("BF.MADD urls 100 url20..150", "BF.MADD", "urls", 100, 20, 150), factor);

    printf("\n%-30s %8s\n", "replies", "ns");
    bench_reply("boolean, RESP2", write_bools, 2, factor);
    bench_reply("boolean, RESP3", write_bools, 3, factor);
    bench_reply("integer 0, 1", write_small_integers, 2, factor);
    bench_reply("integer, up to 10 digits", write_large_integers, 2, factor);
    bench_reply("bulk of 16", write_bulks, 2, factor);
    bench_reply("error of 50", write_errors, 2, factor);
    resp_args_deinit(&args);
    return 0;
}
