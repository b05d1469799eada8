#include "reply.h"
#include "alloc_fault.h"
#include "resp_reader.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Two writers with the same content, one for each version, and a comparison of their output. */
static struct buf bufs[2];
static struct reply replies[2] = {{&bufs[0], 2}, {&bufs[1], 3}};

static void begin(void)
{
    for (int i = 0; i < 2; i++) {
        buf_deinit(&bufs[i]);
        buf_init(&bufs[i], SIZE_MAX);
    }
}

static void end(void)
{
    for (int i = 0; i < 2; i++)
        buf_deinit(&bufs[i]);
}

static void assert_written(const char *resp2, size_t len2, const char *resp3, size_t len3)
{
    const char *expected[2] = {resp2, resp3};
    size_t lens[2] = {len2, len3};

    for (int i = 0; i < 2; i++) {
        cr_assert(!buf_failed(&bufs[i]));
        cr_assert(buf_len(&bufs[i]) == lens[i] &&
                      (lens[i] == 0 || memcmp(buf_head(&bufs[i]), expected[i], lens[i]) == 0),
                  "RESP%d: expected %s, got %.*s", i + 2, expected[i], (int)buf_len(&bufs[i]), buf_head(&bufs[i]));
    }
    begin();
}

#define WRITES(call, resp2, resp3)                                          \
    do {                                                                    \
        for (int v_ = 0; v_ < 2; v_++) {                                    \
            struct reply *r = &replies[v_];                                 \
            call;                                                           \
        }                                                                   \
        assert_written(resp2, sizeof(resp2) - 1, resp3, sizeof(resp3) - 1); \
    } while (0)
#define WRITES_SAME(call, both) WRITES(call, both, both)

TestSuite(reply, .init = begin, .fini = end);

Test(reply, each_kind_has_the_form_of_its_version)
{
    WRITES_SAME(reply_status(r, "OK"), "+OK\r\n");
    WRITES_SAME(reply_status(r, ""), "+\r\n");
    WRITES_SAME(reply_error(r, "ERR no"), "-ERR no\r\n");
    WRITES_SAME(reply_errorf(r, "ERR %s of %d%%", "half", 50), "-ERR half of 50%\r\n");
    WRITES_SAME(reply_errorf(r, "%s", ""), "-\r\n");
    WRITES(reply_bool(r, true), ":1\r\n", "#t\r\n");
    WRITES(reply_bool(r, false), ":0\r\n", "#f\r\n");
    WRITES(reply_bools(r, 1, 1), ":1\r\n", "#t\r\n");
    WRITES(reply_bools(r, 0xfffffff6, 4), ":0\r\n:1\r\n:1\r\n:0\r\n", "#f\r\n#t\r\n#t\r\n#f\r\n");
    WRITES(reply_null(r), "$-1\r\n", "_\r\n");
    WRITES(reply_null_array(r), "*-1\r\n", "_\r\n");
    WRITES_SAME(reply_bulk(r, "a\r\nb\0", 5), "$5\r\na\r\nb\0\r\n");
    WRITES_SAME(reply_bulk(r, NULL, 0), "$0\r\n\r\n");
    WRITES_SAME(reply_bulk_str(r, "0123456789"), "$10\r\n0123456789\r\n");
    WRITES(reply_verbatim(r, "txt", "a\nb", 3), "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n");
    WRITES(reply_verbatim(r, "mkd", NULL, 0), "$0\r\n\r\n", "=4\r\nmkd:\r\n");
    WRITES_SAME(reply_array(r, 0), "*0\r\n");
    WRITES_SAME(reply_array(r, 12), "*12\r\n");
    WRITES(reply_map(r, 3), "*6\r\n", "%3\r\n");
    WRITES(reply_set(r, 3), "*3\r\n", "~3\r\n");
    WRITES(reply_push(r, 3), "*3\r\n", ">3\r\n");
    WRITES_SAME(reply_array(r, SIZE_MAX), "*18446744073709551615\r\n");
}

/* Numbers with every number of digits: the smallest and the largest, both signs. */
Test(reply, integers_are_exact)
{
    uint64_t power = 1;

    for (int digits = 0; digits <= 19; digits++, power = digits < 19 ? power * 10 : UINT64_MAX) {
        for (uint64_t n = power - 2; n != power + 3; n++) {
            for (int sign = 0; sign < 2; sign++) {
                char expected[32];
                int64_t value = sign ? (int64_t)(0 - n) : (int64_t)n;
                size_t len = (size_t)sprintf(expected, ":%lld\r\n", (long long)value);
                reply_integer(&replies[0], value);
                reply_integer(&replies[1], value);
                assert_written(expected, len, expected, len);
            }
        }
    }
    for (int n = -1100; n < 1100; n++) {
        char expected[32];
        size_t len = (size_t)sprintf(expected, ":%d\r\n", n);
        reply_integer(&replies[0], n);
        reply_integer(&replies[1], n);
        assert_written(expected, len, expected, len);
    }
    WRITES_SAME(reply_integer(r, INT64_MAX), ":9223372036854775807\r\n");
    WRITES_SAME(reply_integer(r, INT64_MIN), ":-9223372036854775808\r\n");
}

Test(reply, doubles_are_the_shortest_that_read_back)
{
    WRITES(reply_double(r, 0), "$1\r\n0\r\n", ",0\r\n");
    WRITES(reply_double(r, -0.0), "$2\r\n-0\r\n", ",-0\r\n");
    WRITES(reply_double(r, 3), "$1\r\n3\r\n", ",3\r\n");
    WRITES(reply_double(r, 0.1), "$3\r\n0.1\r\n", ",0.1\r\n");
    WRITES(reply_double(r, 0.01), "$4\r\n0.01\r\n", ",0.01\r\n");
    WRITES(reply_double(r, 0.1 + 0.2), "$19\r\n0.30000000000000004\r\n", ",0.30000000000000004\r\n");
    WRITES(reply_double(r, -1.5), "$4\r\n-1.5\r\n", ",-1.5\r\n");
    WRITES(reply_double(r, 1e-7), "$5\r\n1e-07\r\n", ",1e-07\r\n");
    WRITES(reply_double(r, 5e-324), "$6\r\n5e-324\r\n", ",5e-324\r\n");
    WRITES(reply_double(r, -DBL_MAX), "$24\r\n-1.7976931348623157e+308\r\n", ",-1.7976931348623157e+308\r\n");
    WRITES(reply_double(r, -DBL_MIN), "$24\r\n-2.2250738585072014e-308\r\n", ",-2.2250738585072014e-308\r\n");
    WRITES(reply_double(r, INFINITY), "$3\r\ninf\r\n", ",inf\r\n");
    WRITES(reply_double(r, -INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
    WRITES(reply_double(r, NAN), "$3\r\nnan\r\n", ",nan\r\n");
    WRITES(reply_double(r, -NAN), "$3\r\nnan\r\n", ",nan\r\n");
}

Test(reply, random_doubles_read_back)
{
    srand(3);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = (uint64_t)rand() << 33 ^ (uint64_t)rand() << 13 ^ (uint64_t)rand();
        double value, read;
        memcpy(&value, &bits, sizeof(value));
        if (isnan(value))
            continue;
        reply_double(&replies[1], value);
        buf_append(&bufs[1], "", 1);
        read = strtod(buf_head(&bufs[1]) + 1, NULL);
        cr_assert_eq(memcmp(&read, &value, sizeof(read)), 0, "%a became %s", value, buf_head(&bufs[1]));
        begin();
    }
}

/* ---- framing of any text ---- */

Test(reply, control_characters_in_texts_become_spaces)
{
    WRITES_SAME(reply_error(r, "ERR a\r\nb\tc\x01\x1f\x7f"
                               "d"),
                "-ERR a  b c   d\r\n");
    WRITES_SAME(reply_errorf(r, "ERR unknown command '%s'", "x\r\n+OK\r\n"), "-ERR unknown command 'x  +OK  '\r\n");
    WRITES_SAME(reply_status(r, "a\r\nb\n"), "+a  b \r\n");
    WRITES_SAME(reply_error(r, "ERR \xc3\xa9\xff\x80"), "-ERR \xc3\xa9\xff\x80\r\n");
    for (int c = 1; c < 256; c++) {
        char text[] = {'x', (char)c, 'y', '\0'}, expected[] = {'-', 'x', (char)c, 'y', '\r', '\n'};
        if (c < 0x20 || c == 0x7f)
            expected[2] = ' ';
        reply_error(&replies[0], text);
        reply_errorf(&replies[1], "%s", text);
        assert_written(expected, 6, expected, 6);
    }
}

Test(reply, formatted_errors_are_cut_with_a_mark)
{
    static char text[REPLY_ERROR_MAX + 200];

    for (size_t len = REPLY_ERROR_MAX - 2; len <= REPLY_ERROR_MAX + 100; len += len == REPLY_ERROR_MAX + 2 ? 98 : 1) {
        char expected[REPLY_ERROR_MAX + 4];
        size_t shown = len < REPLY_ERROR_MAX ? len : REPLY_ERROR_MAX;
        memset(text, 'a', len);
        text[len] = '\0';
        snprintf(expected, sizeof(expected), "-%.*s\r\n", (int)shown, text);
        if (len > REPLY_ERROR_MAX)
            memcpy(expected + 1 + shown - 3, "...", 3);
        reply_errorf(&replies[0], "%s", text);
        reply_errorf(&replies[1], "%s", text);
        assert_written(expected, shown + 3, expected, shown + 3);
    }
}

/* ---- arrays of unknown length ---- */

Test(reply, array_length_may_come_afterwards)
{
    static const size_t counts[] = {0, 1, 9, 10, 11, 99, 100, 1000, 12345};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        reply_status(&replies[0], "before");
        reply_status(&replies[1], "before");
        size_t token = reply_array_begin(&replies[0]);
        for (size_t n = 0; n < counts[i]; n++)
            reply_integer(&replies[0], (int64_t)n);
        reply_array_end(&replies[0], token, counts[i]);

        reply_array(&replies[1], counts[i]);
        for (size_t n = 0; n < counts[i]; n++)
            reply_integer(&replies[1], (int64_t)n);
        cr_assert_eq(buf_len(&bufs[0]), buf_len(&bufs[1]), "%zu elements", counts[i]);
        cr_assert_arr_eq(buf_head(&bufs[0]), buf_head(&bufs[1]), buf_len(&bufs[0]));
        begin();
    }
}

/* In another array, and in a buffer whose front has been consumed. */
Test(reply, arrays_of_unknown_length_nest)
{
    struct reply *r = &replies[0];

    reply_status(r, "gone");
    reply_status(r, "x");
    buf_consume(&bufs[0], 7);
    size_t outer = reply_array_begin(r);
    reply_bool(r, true);
    size_t inner = reply_array_begin(r);
    for (int i = 0; i < 12; i++)
        reply_integer(r, 7);
    reply_array_end(r, inner, 12);
    reply_array_end(r, outer, 2);
    const char expected[] =
        "+x\r\n*2\r\n:1\r\n*12\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n";
    assert_written(expected, sizeof(expected) - 1, "", 0);
}

/* ---- random trees ---- */

static char random_bytes[300];

static size_t random_string(void)
{
    size_t len = (size_t)rand() % (rand() % 5 ? 12 : sizeof(random_bytes));

    for (size_t i = 0; i < len; i++)
        random_bytes[i] = rand() % 3 ? (char)rand() : "\r\n*$:"[rand() % 5];
    return len;
}

/* Writes a text that may contain a client's bytes, and the text that must be left of it. */
static void write_random_text(struct reply *r, FILE *expected)
{
    size_t len = random_string();
    bool error = rand() % 2;

    for (size_t i = 0; i < len; i++)
        if (random_bytes[i] == '\0')
            random_bytes[i] = '\r';
    random_bytes[len < sizeof(random_bytes) ? len : len - 1] = '\0';
    if (error)
        reply_error(r, random_bytes);
    else
        reply_status(r, random_bytes);
    fputc(error ? '-' : '+', expected);
    for (const unsigned char *p = (const unsigned char *)random_bytes; *p != '\0'; p++)
        fputc(*p < 0x20 || *p == 0x7f ? ' ' : *p, expected);
}

static void write_random_leaf(struct reply *r, FILE *expected)
{
    bool resp3 = r->version == 3, yes = rand() % 2;
    size_t len;

    switch (rand() % 7) {
    case 0:
        write_random_text(r, expected);
        break;
    case 1: {
        int64_t n = ((int64_t)rand() << 32 ^ rand()) >> rand() % 64;
        n = yes ? -n : n;
        reply_integer(r, n);
        fprintf(expected, ":%lld", (long long)n);
        break;
    }
    case 2:
        reply_bool(r, yes);
        fprintf(expected, resp3 ? (yes ? "#t" : "#f") : (yes ? ":1" : ":0"));
        break;
    case 3:
        (yes ? reply_null : reply_null_array)(r);
        fprintf(expected, resp3 ? "_" : (yes ? "nil" : "nil*"));
        break;
    case 4:
        reply_double(r, yes ? 0.25 : INFINITY);
        fprintf(expected, resp3 ? (yes ? ",0.25" : ",inf") : (yes ? "\"0.25\"" : "\"inf\""));
        break;
    case 5:
        len = random_string();
        reply_verbatim(r, "txt", random_bytes, len);
        fprintf(expected, resp3 ? "=txt:" : "");
        resp_write_quoted(expected, random_bytes, len);
        break;
    default:
        len = random_string();
        reply_bulk(r, random_bytes, len);
        resp_write_quoted(expected, random_bytes, len);
    }
}

static void write_random_tree(struct reply *r, FILE *expected, int depth)
{
    static const char *const opens[2][5] = {{"[", "[", "[", "[", "["}, {"[", "{", "~[", ">[", "["}};
    int kind = rand() % 8;

    if (depth == 0 || kind > 4) {
        write_random_leaf(r, expected);
        return;
    }

    size_t n = (size_t)(rand() % 10 ? rand() % 5 : rand() % 30), token = 0;
    void (*const writers[])(struct reply *, size_t) = {reply_array, reply_map, reply_set, reply_push};
    if (kind == 4)
        token = reply_array_begin(r);
    else
        writers[kind](r, n);
    fputs(opens[r->version - 2][kind], expected);
    for (size_t i = 0; i < (kind == 1 ? 2 * n : n); i++) {
        if (i > 0)
            fputc(' ', expected);
        write_random_tree(r, expected, depth - 1);
    }
    if (kind == 4)
        reply_array_end(r, token, n);
    fputc(kind == 1 && r->version == 3 ? '}' : ']', expected);
}

/* A strict reader reads the content back unchanged, and ends where the next reply begins. */
Test(reply, random_trees_read_back)
{
    unsigned seed = getenv("BLOOMERY_TEST_SEED") ? (unsigned)atoi(getenv("BLOOMERY_TEST_SEED")) : (unsigned)time(NULL);

    srand(seed);
    for (int i = 0; i < 3000; i++) {
        struct reply *r = &replies[i % 2];
        char *expected, *got;
        size_t expected_len, got_len, len;
        FILE *expected_out = open_memstream(&expected, &expected_len), *got_out = open_memstream(&got, &got_len);

        write_random_tree(r, expected_out, 4);
        len = buf_len(r->buf);
        reply_status(r, "next");
        cr_assert_eq(resp_read(buf_head(r->buf), buf_len(r->buf), r->version, got_out), len, "seed %u, tree %d", seed,
                     i);
        fclose(expected_out);
        fclose(got_out);
        cr_assert(expected_len == got_len && memcmp(expected, got, got_len) == 0,
                  "seed %u, tree %d\n---- expected\n%s\n---- got\n%s", seed, i, expected, got);
        free(expected);
        free(got);
        begin();
    }
}

/* ---- failures ---- */

static void write_some_of_everything(struct reply *r)
{
    char text[500];

    memset(text, 'x', sizeof(text));
    reply_status(r, "OK");
    size_t token = reply_array_begin(r);
    for (int i = 0; i < 20; i++)
        reply_bulk(r, text, sizeof(text));
    reply_array_end(r, token, 20);
    reply_map(r, 1);
    reply_double(r, 0.5);
    reply_verbatim(r, "txt", text, sizeof(text));
    reply_errorf(r, "ERR %.*s", 400, text);
    reply_bool(r, true);
    reply_integer(r, INT64_MIN);
    reply_null(r);
}

/* After a failure of any allocation, and at any cap, the buffer is marked as failed and has whole elements only. */
Test(reply, failures_are_noted_in_the_buffer)
{
    struct reply *r = &replies[1];
    size_t whole;
    int failures = 0;

    write_some_of_everything(r);
    whole = buf_len(r->buf);
    for (int n = 0;; n++) {
        begin();
        alloc_fault_at(n);
        write_some_of_everything(r);
        alloc_fault_at(-1);
        if (!buf_failed(r->buf))
            break;
        failures++;
        cr_assert_lt(buf_len(r->buf), whole);
    }
    cr_assert_geq(failures, 4);
    cr_assert_eq(buf_len(r->buf), whole);

    for (size_t cap = 0; cap <= whole + 30; cap += cap < 80 || cap > whole - 80 ? 1 : 77) {
        begin();
        buf_init(r->buf, cap);
        write_some_of_everything(r);
        if (buf_failed(r->buf)) {
            size_t len = buf_len(r->buf);
            cr_assert_lt(cap, whole + 30);
            cr_assert(len == 0 || buf_head(r->buf)[len - 1] == '\n', "cap %zu", cap);
        } else {
            cr_assert_geq(cap, whole);
        }
    }
    cr_assert(!buf_failed(r->buf));
    end();
    cr_assert_eq(alloc_live(), 0);
}

/* Each writer reserves at least the length of its longest reply, in a buffer that ends where the reservation ends. */
static void write_longest(struct reply *r, int kind)
{
    size_t token;

    switch (kind) {
    case 0:
        reply_array(r, SIZE_MAX);
        break;
    case 1:
        reply_integer(r, INT64_MIN);
        break;
    case 2:
        reply_double(r, -DBL_MIN);
        break;
    case 3:
        reply_verbatim(r, "txt", "0123456789", 10);
        break;
    case 4:
        reply_error(r, "ERR 0123456789");
        break;
    default:
        token = reply_array_begin(r);
        for (int i = 0; i < 10; i++)
            reply_bool(r, true);
        reply_array_end(r, token, 10);
    }
}

Test(reply, longest_replies_stay_within_what_they_reserve)
{
    static const size_t exact[] = {23, 23, 27, 21, 17, 45};

    for (int kind = 0; kind < 6; kind++) {
        for (size_t cap = 1; cap < 80; cap++) {
            struct reply *r = &replies[1];
            begin();
            buf_init(r->buf, cap);
            write_longest(r, kind);
            cr_assert_leq(r->buf->end, r->buf->size, "kind %d, cap %zu", kind, cap);
            if (!buf_failed(r->buf))
                cr_assert_eq(buf_len(r->buf), exact[kind], "kind %d, cap %zu", kind, cap);
        }
        cr_assert(!buf_failed(&bufs[1]));
    }
}

/* A bulk whose length overflows an addition fails; it does not wrap. */
Test(reply, impossible_lengths_fail)
{
    bufs[0].cap = 1 << 30; /* otherwise the allocator would have to refuse, and a sanitizer's ends the test then */
    reply_bulk(&replies[0], "x", SIZE_MAX - 3);
    cr_assert(buf_failed(&bufs[0]));
    cr_assert_eq(buf_len(&bufs[0]), 0);
}
