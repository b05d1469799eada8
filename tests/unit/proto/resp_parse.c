/* The parser's results for a stream, with any cuts. Each stream of the table is parsed whole, byte by byte, cut in two
 * at every place and cut at random; resp_transcript.h names further checks. The expectations of the table are Redis's
 * answers (recorded from Redis 8.0.2, or tried on 7.0.15), except where resp_parse.h states others. */
#include "resp_parse.h"
#include "resp_transcript.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct resp_limits default_limits = {RESP_MAX_ARGS_DEFAULT, RESP_MAX_BULK_DEFAULT,
                                                  RESP_MAX_INLINE_DEFAULT};

/* ---- cuts ---- */

static uint64_t rng_state;

static uint64_t rng_next(void) /* splitmix64 */
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t rng_below(size_t n)
{
    return (size_t)(rng_next() % n);
}

/* BLOOMERY_TEST_SEED repeats a run; the seed is in every failure's message. */
static uint64_t seed_rng(void)
{
    const char *given = getenv("BLOOMERY_TEST_SEED");

    rng_state = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 1000003u;
    return rng_state;
}

static size_t one_byte(void *ctx, size_t arrived)
{
    (void)ctx;
    (void)arrived;
    return 1;
}

static size_t first_then_rest(void *ctx, size_t arrived)
{
    size_t *first = ctx;

    return arrived == 0 ? *first : TRANSCRIPT_STREAM_MAX;
}

static size_t random_piece(void *ctx, size_t arrived)
{
    size_t *largest = ctx;

    (void)arrived;
    return 1 + rng_below(*largest);
}

/* ---- the table ---- */

struct vector {
    const char *stream;
    size_t len;
    const char *expected;
    size_t expected_len;
};

#define V(stream, expected)                                        \
    {                                                              \
        stream, sizeof(stream) - 1, expected, sizeof(expected) - 1 \
    }
#define MALFORMED(stream, error) V(stream, "malformed, Protocol error: " error "\n")
#define INLINE(line, expected)   V(line "\r\n", expected "need more, 0 pending\n")
#define NOTHING                  "need more, 0 pending\n"
#define X40                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X120                     X40 X40 X40
#define PING                     "command 1\n4:PING\n"

static const struct vector vectors[] = {
    V("", NOTHING),
    /* arrays */
    V("*1\r\n$4\r\nPING\r\n", PING NOTHING),
    V("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n",
      PING PING "command 2\n4:ECHO\n2:hi\n" NOTHING),
    V("*3\r\n$9\r\nBF.EXISTS\r\n$6\r\nfilter\r\n$16\r\n0123456789abcdef\r\n",
      "command 3\n9:BF.EXISTS\n6:filter\n16:0123456789abcdef\n" NOTHING),
    V("*1\r\n$0\r\n\r\n", "command 1\n0:\n" NOTHING),
    V("*2\r\n$0\r\n\r\n$1\r\na\r\n", "command 2\n0:\n1:a\n" NOTHING),
    V("*2\r\n$4\r\nECHO\r\n$6\r\n\r\n$1\r\n\r\n", "command 2\n4:ECHO\n6:\r\n$1\r\n\n" NOTHING),
    V("*2\r\n$4\r\nECHO\r\n$4\r\n\0\xff\r\n\r\n", "command 2\n4:ECHO\n4:\0\xff\r\n\n" NOTHING),
    V("*2\r\n$4\r\nECHO\r\n$102\r\n"
      "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789ab\r\n",
      "command 2\n4:ECHO\n102:"
      "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789ab"
      "\n" NOTHING),
    V("*12\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n$1\r\nf\r\n"
      "$1\r\ng\r\n$1\r\nh\r\n$1\r\ni\r\n$1\r\nj\r\n$1\r\nk\r\n$1\r\nl\r\n",
      "command 12\n1:a\n1:b\n1:c\n1:d\n1:e\n1:f\n1:g\n1:h\n1:i\n1:j\n1:k\n1:l\n" NOTHING),
    /* empty requests */
    V("*0\r\n", NOTHING),
    V("*0\r\n*1\r\n$4\r\nPING\r\n", PING NOTHING),
    V("*-1\r\n*1\r\n$4\r\nPING\r\n*0\r\n", PING NOTHING),
    V("*-5\r\n*0\r\n\r\n  \t \r\n\n", NOTHING),
    V("*-9223372036854775808\r\nPING\n", PING NOTHING),
    V("*0\r\n*1\r\n$4\r\nPI", "need more, 10 pending\n"),
    /* line ends are skipped, not checked */
    V("*1\r\n$4\r\nPINGXX*1\r\n$4\r\nPING\r\n", PING PING NOTHING),
    V("*1\r\n$4\r\nPING\n\n*1\r\n$4\r\nPING\r\n", PING PING NOTHING),
    V("*1\rX$4\rYPINGZZ", PING NOTHING),
    V("*12\rX$10\rY0123456789ZZ", "need more, 22 pending\n"),
    V("*1\r\n$3\r\nPING\r\n*1\r\n$4\r\nPING\r\n", "command 1\n3:PIN\n" PING NOTHING),
    V("*1\r\n$5\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
      "command 1\n5:PING\r\ncommand 1\n1:1\ncommand 1\n2:$4\n" PING NOTHING),
    /* not finished */
    V("*", "need more, 1 pending\n"),
    V("*1\r", "need more, 3 pending\n"),
    V("*1\n$4\nPING\n", "need more, 11 pending\n"),
    V("*1\r\n$4\r\nPING\r", "need more, 13 pending\n"),
    V("*2147483\n7", "need more, 10 pending\n"),
    V("*2\r\n$6\r\nBF.ADD\r\n$536870912\r\n", "need more, 28 pending\n"),
    V("*1048576\r\n$4\r\nPING\r\n", "need more, 20 pending\n"),
    V("PING", "need more, 4 pending\n"),
    V("PING\r", "need more, 5 pending\n"),
    /* counts */
    MALFORMED("*+1\r\n$4\r\nPING\r\n", "invalid multibulk length"),
    MALFORMED("*01\r\n$4\r\nPING\r\n", "invalid multibulk length"),
    MALFORMED("*00\r\n", "invalid multibulk length"),
    MALFORMED("*-0\r\n", "invalid multibulk length"),
    MALFORMED("*-\r\n", "invalid multibulk length"),
    MALFORMED("*--1\r\n", "invalid multibulk length"),
    MALFORMED("*-01\r\n", "invalid multibulk length"),
    MALFORMED("*\r\n$4\r\nPING\r\n", "invalid multibulk length"),
    MALFORMED("*abc\r\n", "invalid multibulk length"),
    MALFORMED("*1x\r\n$4\r\nPING\r\n", "invalid multibulk length"),
    MALFORMED("*x1\r\n", "invalid multibulk length"),
    MALFORMED("* 1\r\n$4\r\nPING\r\n", "invalid multibulk length"),
    MALFORMED("*1 \r\n$4\r\nPING\r\n", "invalid multibulk length"),
    MALFORMED("*1\0\r\n", "invalid multibulk length"),
    MALFORMED("*:\r\n", "invalid multibulk length"),
    MALFORMED("*/\r\n", "invalid multibulk length"),
    MALFORMED("*1048577\r\n", "invalid multibulk length"),
    MALFORMED("*2147483648\r\n", "invalid multibulk length"),
    MALFORMED("*4294967297\r\n", "invalid multibulk length"), /* 1 modulo 2^32 */
    MALFORMED("*9223372036854775807\r\n", "invalid multibulk length"),
    MALFORMED("*9223372036854775808\r\n", "invalid multibulk length"),
    MALFORMED("*-9223372036854775809\r\n", "invalid multibulk length"),
    MALFORMED("*18446744073709551617\r\n", "invalid multibulk length"), /* 1 modulo 2^64 */
    MALFORMED("*-18446744073709551617\r\n", "invalid multibulk length"),
    MALFORMED("*1\n\r\n", "invalid multibulk length"),
    /* lengths */
    MALFORMED("*1\r\n$\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$00\r\n\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$-1\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$-0\r\n\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$+4\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$abc\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$4x\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$x4\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$:\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$1:\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$:1\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$1/\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$ 4\r\nPING\r\n", "invalid bulk length"),
    /* with enough bytes after them for any wrong reading */
    MALFORMED("*1\r\n$:0\r\n" X120, "invalid bulk length"),
    MALFORMED("*1\r\n$1:\r\n" X120, "invalid bulk length"),
    MALFORMED("*1\r\n$0:\r\n" X120, "invalid bulk length"),
    MALFORMED("*1\r\n$10:\r\n" X120, "invalid bulk length"),
    MALFORMED("*1\r\n$1:0\r\n" X120 X120, "invalid bulk length"),
    MALFORMED("*1\r\n$10/\r\n" X120, "invalid bulk length"),
    MALFORMED("*1\r\n$012\r\n" X120, "invalid bulk length"),
    MALFORMED("*1\r\n$12 \r\n" X120, "invalid bulk length"),
    MALFORMED("*1\r\n$536870913\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$2147483648\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$4294967300\r\nPING\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
    MALFORMED("*1\r\n$18446744073709551620\r\nPING\r\n", "invalid bulk length"),
    /* the error shows a wrong '$' so that it cannot be mistaken for framing */
    MALFORMED("*1\r\nPING\r\n", "expected '$', got 'P'"),
    MALFORMED("*1\r\n:4\r\nPING\r\n", "expected '$', got ':'"),
    MALFORMED("*2\r\n$4\r\nECHO\r\n*1\r\n", "expected '$', got '*'"),
    MALFORMED("*1\r\n \r\n", "expected '$', got ' '"),
    MALFORMED("*1\r\n~", "expected '$', got '~'"),
    MALFORMED("*1\r\n\r\n", "expected '$', got '\\x0d'"),
    MALFORMED("*1\r\n\n", "expected '$', got '\\x0a'"),
    MALFORMED("*1\r\n\0", "expected '$', got '\\x00'"),
    MALFORMED("*1\r\n\x1b", "expected '$', got '\\x1b'"),
    MALFORMED("*1\r\n\x7f", "expected '$', got '\\x7f'"),
    MALFORMED("*1\r\n\xff", "expected '$', got '\\xff'"),
    V("*1\r\n$4\r\nPING\r\n*1\r\n:4\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
      PING "malformed, Protocol error: expected '$', got ':'\n"),
    /* inline commands */
    V("PING\nPING\r\n", PING PING NOTHING),
    V("\r\n\r\n\r\nPING\r\n", PING NOTHING),
    INLINE("  BF.EXISTS \t  f    a   ", "command 3\n9:BF.EXISTS\n1:f\n1:a\n"),
    INLINE("BF.ADD f \"quoted item\"", "command 3\n6:BF.ADD\n1:f\n11:quoted item\n"),
    INLINE("BF.ADD f 'quoted item'", "command 3\n6:BF.ADD\n1:f\n11:quoted item\n"),
    INLINE("\"\\x00\\x01\" \"\\xfF\\xAb\" \"\\x4\" \"\\xg0\" \"\\x\"",
           "command 5\n2:\0\1\n2:\xff\xab\n2:x4\n3:xg0\n1:x\n"),
    INLINE("\"\\x09\\x90\\xa0\\x0F\\x/0\\x:0\\x`0\\xG0\\x0@\"", "command 1\n19:\x09\x90\xa0\x0fx/0x:0x`0xG0x0@\n"),
    INLINE("\"\\n\\r\\t\\b\\a\\\\\\\"\\q\"", "command 1\n8:\n\r\t\b\a\\\"q\n"),
    INLINE("'\\n\\x41\\\\n' 'it\\'s' '\"' \"'\"", "command 4\n9:\\n\\x41\\\\n\n4:it's\n1:\"\n1:'\n"),
    INLINE("'' \"\"", "command 2\n0:\n0:\n"),
    INLINE("a\"b c\" d'e f'", "command 2\n4:ab c\n4:de f\n"),
    INLINE("a\rb \v\f c\vd\f", "command 3\n1:a\n1:b\n4:c\vd\f\n"),
    INLINE("\"a\"\r \"a\"\vb \"a\rb\"", "command 4\n1:a\n1:a\n1:b\n3:a\rb\n"),
    INLINE("\\x41 \\n", "command 2\n4:\\x41\n2:\\n\n"),
    INLINE("$4", "command 1\n2:$4\n"),
    INLINE(" *1", "command 1\n2:*1\n"),
    INLINE("\xc3\xa9 \xff", "command 2\n2:\xc3\xa9\n1:\xff\n"),
    V("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "command 3\n3:GET\n1:/\n8:HTTP/1.1\ncommand 2\n5:Host:\n1:x\n" NOTHING),
    V("PING\r\n*1\r\n$4\r\nPING\r\nPING\r\n", PING PING PING NOTHING),
    MALFORMED("BF.ADD f \"unbalanced\r\n", "unbalanced quotes in request"),
    MALFORMED("BF.ADD f 'unbalanced\r\n", "unbalanced quotes in request"),
    MALFORMED("BF.ADD f \"x\"y\r\n", "unbalanced quotes in request"),
    MALFORMED("BF.ADD f 'x'y\r\n", "unbalanced quotes in request"),
    MALFORMED("'x''y'\r\n", "unbalanced quotes in request"),
    MALFORMED("\"\\\"\r\n", "unbalanced quotes in request"),
    MALFORMED("\"\\\r\n", "unbalanced quotes in request"),
    MALFORMED("'\\'\r\n", "unbalanced quotes in request"),
    MALFORMED("'\\\r\n", "unbalanced quotes in request"),
    MALFORMED("\"\\x4\n", "unbalanced quotes in request"),
    MALFORMED("\"\n", "unbalanced quotes in request"),
    MALFORMED("BF.ADD f \0\r\n", "NUL byte in inline request"),
    MALFORMED("\x16\x03\x01\x02\0", "NUL byte in inline request"),
    MALFORMED("\0", "NUL byte in inline request"),
    V("PING\r\n\0", PING "malformed, Protocol error: NUL byte in inline request\n"),
};

static void assert_parses_to(const char *stream, size_t len, const struct transcript_options *options,
                             const struct transcript *expected, const char *how, size_t detail)
{
    struct transcript_options both = *options;

    for (int warm = 0; warm < 2; warm++) {
        both.warm = warm;
        struct transcript got = transcript_parse(stream, len, &both);
        cr_assert(transcript_equal(expected, &got),
                  "%s (%zu), %s, stream of %zu bytes:\n%s\n---- expected\n%s\n---- got\n%s", how, detail,
                  warm ? "warm" : "cold", len, stream, expected->text, got.text);
        transcript_deinit(&got);
    }
}

static void assert_parses_however_cut(const char *stream, size_t len, struct transcript_options options,
                                      const struct transcript *expected)
{
    size_t size;

    assert_parses_to(stream, len, &options, expected, "whole", 0);
    options.next_piece = one_byte;
    assert_parses_to(stream, len, &options, expected, "byte by byte", 0);
    options.next_piece = first_then_rest;
    options.ctx = &size;
    for (size_t cut = 1; cut < len && cut < 1000; cut++) {
        size = cut;
        assert_parses_to(stream, len, &options, expected, "cut in two", cut);
    }
    options.next_piece = random_piece;
    for (int i = 0; i < 20; i++) {
        uint64_t seed = rng_state;
        size = 1 + rng_below(len + 1);
        assert_parses_to(stream, len, &options, expected, "cut at random, seed", (size_t)seed);
    }
}

Test(resp_parse, streams_of_the_table_mean_what_it_says_however_they_are_cut)
{
    struct transcript_options options = {.limits = default_limits};

    seed_rng();
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        struct transcript expected = {(char *)(uintptr_t)vectors[i].expected, vectors[i].expected_len};
        assert_parses_however_cut(vectors[i].stream, vectors[i].len, options, &expected);
    }
}

/* Without this test the random streams below would only show that two mistakes agree. */
Test(resp_parse, model_agrees_with_the_table)
{
    struct transcript_options options = {.limits = default_limits};

    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        struct transcript expected = {(char *)(uintptr_t)vectors[i].expected, vectors[i].expected_len};
        struct transcript got = transcript_model(vectors[i].stream, vectors[i].len, &options);
        cr_assert(transcript_equal(&expected, &got), "stream:\n%s\n---- expected\n%s\n---- model\n%s",
                  vectors[i].stream, expected.text, got.text);
        transcript_deinit(&got);
    }
}

/* ---- random streams ---- */

/* Lengths around the parser's limits are as likely as all others together. */
static size_t random_length(void)
{
    static const size_t edges[] = {0, 1, 9, 10, 11, 99, 100, 101, 255, 256, 999, 1000};

    return rng_below(2) ? edges[rng_below(sizeof(edges) / sizeof(edges[0]))] : rng_below(40);
}

static void write_random_array(FILE *out)
{
    size_t argc = rng_below(20) == 0 ? rng_below(200) : rng_below(12);

    fprintf(out, "*%zu\r\n", argc);
    for (size_t i = 0; i < argc; i++) {
        size_t len = rng_below(argc) < 12 ? random_length() : rng_below(12);
        fprintf(out, "$%zu\r\n", len);
        for (size_t j = 0; j < len; j++)
            fputc((int)(rng_below(4) ? rng_below(256) : (uint64_t) "\r\n$*"[rng_below(4)]), out);
        fputs(rng_below(50) ? "\r\n" : "xx", out);
    }
}

static void write_random_line(FILE *out)
{
    static const char *const words[] = {"PING", "a",  "\"q w\"", "'q w'",  "\"\\x41\\n\"", "'\\''",
                                        " ",    "\t", "\"\"",    "x\"y\"", "\\",           "\v"};

    for (size_t n = rng_below(8); n > 0; n--)
        fprintf(out, "%s%s", words[rng_below(sizeof(words) / sizeof(words[0]))], rng_below(20) ? " " : "");
    fputs(rng_below(2) ? "\r\n" : "\n", out);
}

static char *random_stream(size_t *len_out)
{
    char *stream = NULL;
    FILE *out = open_memstream(&stream, len_out);

    cr_assert_not_null(out);
    for (size_t n = 1 + rng_below(12); n > 0; n--) {
        switch (rng_below(8)) {
        case 0:
            write_random_line(out);
            break;
        case 1:
            fputs(rng_below(2) ? "*0\r\n" : "*-1\r\n", out);
            break;
        default:
            write_random_array(out);
        }
    }
    fclose(out);
    return stream;
}

/* Damage as by hostile or broken clients; often near the front, where headers are. */
static void damage(char *stream, size_t *len)
{
    static const char bytes[] = "*$\r\n-+0123456789 \"'\\\0\xff";

    for (size_t n = rng_below(3); n > 0 && *len > 1; n--) {
        size_t at = rng_below(rng_below(2) ? *len : (*len < 40 ? *len : 40));
        switch (rng_below(3)) {
        case 0:
            stream[at] = bytes[rng_below(sizeof(bytes))];
            break;
        case 1:
            memmove(stream + at, stream + at + 1, --*len - at);
            break;
        default:
            *len = at + 1;
        }
    }
}

static struct transcript_options random_options(void)
{
    static const struct resp_limits choices[] = {
        {RESP_MAX_ARGS_DEFAULT, RESP_MAX_BULK_DEFAULT, RESP_MAX_INLINE_DEFAULT},
        {RESP_MAX_ARGS_NOAUTH, 300, 64},
        {3, 9, 8},
        {150, 100, 33},
    };

    return (struct transcript_options){.limits = choices[rng_below(3) ? 0 : rng_below(4)], .noauth = !rng_below(4)};
}

/* Thousands of streams, sound and damaged, each cut at random. */
Test(resp_parse, random_streams_equal_the_model)
{
    uint64_t seed = seed_rng();

    for (int i = 0; i < 6000; i++) {
        size_t len, largest = 1 + rng_below(rng_below(2) ? 8 : 2000);
        char *stream = random_stream(&len);
        struct transcript_options options = random_options();
        if (i % 2)
            damage(stream, &len);

        struct transcript expected = transcript_model(stream, len, &options);
        assert_parses_to(stream, len, &options, &expected, "whole, seed", (size_t)seed);
        options.next_piece = random_piece;
        options.ctx = &largest;
        for (int j = 0; j < 3; j++)
            assert_parses_to(stream, len, &options, &expected, "cut at random, seed", (size_t)seed);
        transcript_deinit(&expected);
        free(stream);
    }
}
