/* The parser's refusals and costs, and that it never looks back. The meaning of streams is in resp_parse.c. */
#include "alloc_fault.h"
#include "resp_parse.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct resp_limits default_limits = {RESP_MAX_ARGS_DEFAULT, RESP_MAX_BULK_DEFAULT,
                                                  RESP_MAX_INLINE_DEFAULT};

/* A parser with everything that a call needs, and the results of the last call. */
struct session {
    struct resp_parser parser;
    struct resp_args args;
    struct resp_limits limits;
    int noauth;
    struct resp_command cmd;
    size_t consumed;
};

static void session_init(struct session *s, struct resp_limits limits, int noauth)
{
    *s = (struct session){.limits = limits, .noauth = noauth};
    resp_parser_init(&s->parser);
}

static void session_deinit(struct session *s)
{
    resp_parser_deinit(&s->parser);
    resp_parser_deinit(&s->parser);
    resp_args_deinit(&s->args);
    resp_args_deinit(&s->args);
}

static enum resp_status next(struct session *s, char *bytes, size_t len)
{
    return resp_parser_next(&s->parser, &s->args, &s->limits, s->noauth, bytes, len, &s->consumed, &s->cmd);
}

/* A stream under construction, one at a time. */
#define AREA_SIZE ((size_t)4 * 1024 * 1024)
struct text {
    char *bytes;
    size_t len;
};

static void add(struct text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *fmt, ...)
{
    static char area[AREA_SIZE];
    va_list args;

    text->bytes = area;
    va_start(args, fmt);
    text->len += (size_t)vsnprintf(area + text->len, sizeof(area) - text->len, fmt, args);
    va_end(args);
    cr_assert_lt(text->len, sizeof(area));
}

static void add_filled(struct text *text, size_t len)
{
    add(text, "%s", "");
    cr_assert_lt(text->len + len, AREA_SIZE);
    memset(text->bytes + text->len, 'y', len);
    text->len += len;
}

static void add_args(struct text *text, size_t n, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        add(text, "$%zu\r\n", len);
        add_filled(text, len);
        add(text, "\r\n");
    }
}

/* `error` NULL: the stream is exactly one command. In one piece and byte by byte. */
static void assert_verdict(struct resp_limits limits, int noauth, const struct text *text, const char *error)
{
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        struct session s;
        enum resp_status status = RESP_NEED_MORE;
        char got[RESP_ERROR_TEXT_SIZE], expected[RESP_ERROR_TEXT_SIZE];

        char *copy = malloc(text->len); /* inline arguments are unescaped in place */
        cr_assert_not_null(copy);
        memcpy(copy, text->bytes, text->len);
        session_init(&s, limits, noauth);
        for (size_t len = bytewise ? 1 : text->len; len <= text->len && status == RESP_NEED_MORE; len++)
            status = next(&s, copy, len);
        resp_parser_error(&s.parser, got, sizeof(got));
        snprintf(expected, sizeof(expected), "Protocol error: %s", error != NULL ? error : "");
        if (error == NULL) {
            cr_assert_eq(status, RESP_COMMAND, "\"%.60s\" got status %d, %s", text->bytes, status, got);
            cr_assert_eq(s.consumed, text->len);
            cr_assert_str_eq(got, "");
        } else {
            cr_assert_eq(status, RESP_MALFORMED, "\"%.60s\" got status %d", text->bytes, status);
            cr_assert_str_eq(got, expected, "\"%.60s\" got %s, not %s", text->bytes, got, expected);
        }
        session_deinit(&s);
        free(copy);
    }
}

/* ---- limits ---- */

/* The three values around each limit on arguments, before and after authentication, as array and inline. */
Test(resp_limits, max_args_is_exact)
{
    static const size_t maxima[] = {1, 2, 8, 9, 10, 11, 99, 100, 1000};

    for (size_t i = 0; i < COUNT(maxima); i++) {
        struct resp_limits limits = {maxima[i], 100, 10000};
        for (size_t n = maxima[i] > 1 ? maxima[i] - 1 : 1; n <= maxima[i] + 1; n++) {
            for (int noauth = 0; noauth < 2; noauth++) {
                const char *error = noauth ? "unauthenticated multibulk length" : "invalid multibulk length";
                struct text text = {0}, line = {0};
                add(&text, "*%zu\r\n", n);
                add_args(&text, n, 1);
                assert_verdict(limits, noauth, &text, n <= maxima[i] ? NULL : error);
                for (size_t j = 0; j < n; j++)
                    add(&line, "a ");
                add(&line, "\r\n");
                assert_verdict(limits, noauth, &line, n <= maxima[i] ? NULL : error);
            }
        }
    }
}

Test(resp_limits, max_bulk_is_exact)
{
    static const size_t maxima[] = {0, 1, 8, 9, 10, 98, 99, 100, 1000, RESP_MAX_BULK_NOAUTH};

    for (size_t i = 0; i < COUNT(maxima); i++) {
        struct resp_limits limits = {10, maxima[i], 100000};
        for (size_t n = maxima[i] > 0 ? maxima[i] - 1 : 0; n <= maxima[i] + 1; n++) {
            for (int noauth = 0; noauth < 2; noauth++) {
                const char *error = noauth ? "unauthenticated bulk length" : "invalid bulk length";
                struct text text = {0}, line = {0};
                add(&text, "*1\r\n$%zu\r\n", n);
                if (n <= maxima[i]) /* the error must not wait for the body */
                    add_filled(&text, n + 2);
                assert_verdict(limits, noauth, &text, n <= maxima[i] ? NULL : error);
                add(&line, "\"");
                add_filled(&line, n);
                add(&line, "\"\n");
                assert_verdict(limits, noauth, &line, n <= maxima[i] ? NULL : error);
            }
        }
    }
}

/* An inline command may be exactly as long as the limit, with either line end. */
Test(resp_limits, max_inline_is_exact)
{
    static const size_t maxima[] = {1, 2, 100, RESP_MAX_INLINE_DEFAULT};
    static const char *const ends[] = {"\n", "\r\n"};

    for (size_t i = 0; i < COUNT(maxima) * 2; i++) {
        size_t max = maxima[i / 2];
        for (size_t n = max > 1 ? max - 1 : 1; n <= max + 1; n++) {
            struct text text = {0};
            add(&text, "%0*d%s", (int)n, 7, ends[i % 2]);
            assert_verdict((struct resp_limits){10, 100000, max}, 0, &text, n <= max ? NULL : "too big inline request");
        }
    }

    struct text text = {0}; /* an endless line is refused at the first certain byte, */
    add(&text, "12345678901");
    assert_verdict((struct resp_limits){10, 100, 10}, 0, &text, "too big inline request");
    text = (struct text){0};
    add(&text, "1234567890\rx"); /* also if its apparent end is none */
    assert_verdict((struct resp_limits){10, 100, 10}, 0, &text, "too big inline request");
}

/* A header line without \r is refused when it is longer than max_inline, or 32 if that is more. */
Test(resp_limits, header_lines_are_bounded)
{
    static const size_t maxima[] = {0, 31, 32, 33, 100, RESP_MAX_INLINE_DEFAULT};

    for (size_t i = 0; i < COUNT(maxima); i++) {
        struct resp_limits limits = {10, 100, maxima[i]};
        int max = maxima[i] < 32 ? 32 : (int)maxima[i];
        for (int n = max - 1; n <= max + 1; n++) {
            struct text count = {0}, length = {0};
            add(&count, "*%0*d\r\n", n - 1, 7);
            assert_verdict(limits, 0, &count, n <= max ? "invalid multibulk length" : "too big mbulk count string");
            add(&length, "*1\r\n$%0*d\r\n", n - 1, 7);
            assert_verdict(limits, 0, &length, n <= max ? "invalid bulk length" : "too big bulk count string");
        }
    }
}

/* Redis calls a length "invalid" even before authentication if no client may send it. */
Test(resp_limits, unauthenticated_wording_is_redis)
{
    static const struct {
        const char *stream, *error;
    } cases[] = {
        {"*11\r\n", "unauthenticated multibulk length"},
        {"*2147483647\r\n", "unauthenticated multibulk length"},
        {"*2147483648\r\n", "invalid multibulk length"},
        {"*x\r\n", "invalid multibulk length"},
        {"*1\r\n$16385\r\n", "unauthenticated bulk length"},
        {"*1\r\n$536870912\r\n", "unauthenticated bulk length"},
        {"*1\r\n$536870913\r\n", "invalid bulk length"},
        {"*1\r\n$-1\r\n", "invalid bulk length"},
        {"*1\r\nx", "expected '$', got 'x'"},
    };
    const struct resp_limits limits = {RESP_MAX_ARGS_NOAUTH, RESP_MAX_BULK_NOAUTH, RESP_MAX_INLINE_DEFAULT};

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct text text = {0};
        add(&text, "%s", cases[i].stream);
        assert_verdict(limits, 1, &text, cases[i].error);
    }
}

/* The limits of the call apply: after AUTH the higher ones hold for a request that has begun. */
Test(resp_limits, limits_may_change_within_a_request)
{
    struct session s;
    char stream[] = "*11\r\n$4\r\nPING\r\n";

    session_init(&s, (struct resp_limits){RESP_MAX_ARGS_NOAUTH, RESP_MAX_BULK_NOAUTH, 100}, 1);
    cr_assert_eq(next(&s, stream, 3), RESP_NEED_MORE);
    s.limits = default_limits;
    s.noauth = 0;
    cr_assert_eq(next(&s, stream, sizeof(stream) - 1), RESP_NEED_MORE);

    char line[] = "123456789012\n"; /* lower limits within a line */
    session_deinit(&s);
    session_init(&s, default_limits, 0);
    cr_assert_eq(next(&s, line, 12), RESP_NEED_MORE);
    s.limits.max_inline = 10;
    cr_assert_eq(next(&s, line, 13), RESP_MALFORMED);
    session_deinit(&s);
}

/* Spans have 32 bits. A request may end at 2^32 - 1 and not one byte later, with its arguments in the right places.
 * The bodies are never touched, so they use no memory. */
Test(resp_limits, requests_end_before_4_gib)
{
    const size_t room = (size_t)UINT32_MAX + 4096, first = 4000000000;
    char *stream = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    cr_assert_neq(stream, MAP_FAILED);
    size_t at = (size_t)sprintf(stream, "*2\r\n$%zu\r\n", first) + first + 2;
    for (size_t over = 0; over < 2; over++) {
        struct session s;
        size_t len = UINT32_MAX - 2 - (at + strlen("$294967260\r\n")) + over;
        size_t off = at + (size_t)sprintf(stream + at, "$%zu\r\n", len);

        cr_assert_eq(off, at + strlen("$294967260\r\n"));
        session_init(&s, (struct resp_limits){UINT32_MAX, UINT32_MAX, UINT32_MAX}, 0);
        enum resp_status status = next(&s, stream, room);
        if (over == 0) {
            cr_assert_eq(status, RESP_COMMAND);
            cr_assert_eq(s.consumed, UINT32_MAX);
            cr_assert_eq(resp_arg(&s.cmd, 1).ptr, stream + off);
            cr_assert_eq(resp_arg(&s.cmd, 1).len, len);
        } else {
            char text[RESP_ERROR_TEXT_SIZE];
            cr_assert_eq(status, RESP_MALFORMED);
            resp_parser_error(&s.parser, text, sizeof(text));
            cr_assert_str_eq(text, "Protocol error: too big request");
        }
        session_deinit(&s);
    }

    static const char *const bad[] = {"4294967294", "4294967295"};
    for (size_t i = 0; i < 2; i++) {
        struct text text = {0};
        add(&text, "*1\r\n$%s\r\n", bad[i]);
        assert_verdict((struct resp_limits){1, UINT32_MAX, 100}, 0, &text, "too big request");
    }
    munmap(stream, room);
}

/* ---- errors ---- */

Test(resp_limits, malformed_is_sticky_until_init)
{
    struct session s;
    char bad[] = "*2\r\n$4\r\nECHO\r\n:1\r\n", good[] = "PING\r\n", text[RESP_ERROR_TEXT_SIZE];

    session_init(&s, default_limits, 0);
    cr_assert_eq(next(&s, bad, sizeof(bad) - 1), RESP_MALFORMED);
    for (int i = 0; i < 3; i++) {
        s.consumed = 99;
        cr_assert_eq(next(&s, good, sizeof(good) - 1), RESP_MALFORMED);
        cr_assert_eq(s.consumed, 0);
        resp_parser_error(&s.parser, text, sizeof(text));
        cr_assert_str_eq(text, "Protocol error: expected '$', got ':'");
    }
    resp_parser_deinit(&s.parser);
    resp_parser_init(&s.parser);
    cr_assert_eq(next(&s, good, sizeof(good) - 1), RESP_COMMAND);
    session_deinit(&s);
}

Test(resp_limits, error_text_is_cut_to_the_room_there_is)
{
    struct session s;
    char bad[] = "*x\r\n", text[8] = "abcdefg";

    session_init(&s, default_limits, 0);
    resp_parser_error(&s.parser, text, sizeof(text));
    cr_assert_str_eq(text, "", "no error, no text");
    cr_assert_eq(next(&s, bad, sizeof(bad) - 1), RESP_MALFORMED);
    resp_parser_error(&s.parser, text, sizeof(text));
    cr_assert_str_eq(text, "Protoco");
    text[0] = 'x';
    resp_parser_error(&s.parser, text, 0);
    cr_assert_eq(text[0], 'x');
    resp_parser_error(&s.parser, text, 1);
    cr_assert_str_eq(text, "");
    session_deinit(&s);
}

/* ---- progress ---- */

/* After the consumed bytes are dropped, the first byte of the incomplete request is in front. */
Test(resp_limits, empty_requests_are_consumed_before_an_incomplete_one)
{
    struct session s;
    char stream[] = "*0\r\n\r\n*-1\r\n*1\r\n$4\r\nPING\r\n";

    session_init(&s, default_limits, 0);
    cr_assert_eq(next(&s, stream, 22), RESP_NEED_MORE);
    cr_assert_eq(s.consumed, 11);
    cr_assert_eq(resp_parser_needs(&s.parser), 14, "4 + 4 + 6 bytes, from the '*' on");
    cr_assert_eq(next(&s, stream + 11, 14), RESP_COMMAND);
    cr_assert_eq(s.consumed, 14);
    cr_assert_eq(s.cmd.base, stream + 11);

    cr_assert_eq(next(&s, stream, 25), RESP_COMMAND);
    cr_assert_eq(s.consumed, 25);
    cr_assert_eq(s.cmd.base, stream + 11, "spans are relative to the request, not to what was skipped");
    cr_assert_arr_eq(resp_arg(&s.cmd, 0).ptr, "PING", 4);

    cr_assert_eq(next(&s, stream, 3), RESP_NEED_MORE);
    cr_assert_eq(s.consumed, 0);
    cr_assert_eq(next(&s, NULL, 0), RESP_NEED_MORE);
    session_deinit(&s);
}

/* A reader that provides exactly the needed bytes completes the command, never provides a byte beyond it, and gets a
 * large argument in one call. */
Test(resp_limits, needs_is_enough_and_never_too_much)
{
    struct text text = {0};
    struct session s;
    size_t have = 0, calls = 0;
    enum resp_status status = RESP_NEED_MORE;

    add(&text, "*5\r\n");
    add_args(&text, 1, 9);
    add_args(&text, 1, 1000000);
    add_args(&text, 1, 0);
    add_args(&text, 2, 123456);
    session_init(&s, default_limits, 0);
    while (status == RESP_NEED_MORE) {
        size_t needs = resp_parser_needs(&s.parser);
        cr_assert_gt(needs, have);
        cr_assert_leq(needs, text.len);
        have = needs;
        status = next(&s, text.bytes, have);
        calls++;
    }
    cr_assert_eq(status, RESP_COMMAND);
    cr_assert_eq(s.consumed, text.len);
    cr_assert_leq(calls, 4 + 5 * 11, "one call for each byte of a header, one for each body");
    session_deinit(&s);
}

/* Outside of bodies one byte may complete the command. */
Test(resp_limits, needs_is_one_more_byte_outside_of_bodies)
{
    static const char *const streams[] = {"*1\r\n$4\r\n", "PING\r\n", "*-1\r\n"};

    for (size_t i = 0; i < COUNT(streams); i++) {
        struct session s;
        char bytes[16];
        size_t len = strlen(streams[i]);
        memcpy(bytes, streams[i], len);
        session_init(&s, default_limits, 0);
        cr_assert_eq(resp_parser_needs(&s.parser), 1);
        for (size_t have = 1; have < len; have++) {
            cr_assert_eq(next(&s, bytes, have), RESP_NEED_MORE);
            cr_assert_eq(resp_parser_needs(&s.parser), have + 1, "after %zu bytes of %s", have, streams[i]);
        }
        enum resp_status status = next(&s, bytes, len);
        cr_assert_eq(resp_parser_needs(&s.parser), i == 0 ? len + 6 : 1);
        cr_assert_eq(status, i == 1 ? RESP_COMMAND : RESP_NEED_MORE);
        session_deinit(&s);
    }
}

/* Every page passed is made unreadable before the next call: a parser that looked back would crash. One argument of 16
 * MB; then a million small ones, with headers across every kind of page boundary. */
static void assert_parses_without_looking_back(char *stream, size_t len, size_t argc)
{
    struct session s;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    enum resp_status status = RESP_NEED_MORE;

    session_init(&s, default_limits, 0);
    for (size_t have = 0; status == RESP_NEED_MORE && have < len;) {
        cr_assert(have == 0 || mprotect(stream, have, PROT_NONE) == 0);
        have = have + page < len ? have + page : len;
        status = next(&s, stream, have);
    }
    cr_assert_eq(status, RESP_COMMAND);
    cr_assert_eq(s.consumed, len);
    cr_assert_eq(s.cmd.argc, argc);
    cr_assert_eq(mprotect(stream, len, PROT_READ), 0);
    for (size_t i = 0; i < argc; i++) {
        struct slice arg = resp_arg(&s.cmd, i);
        cr_assert(arg.len > 0 && arg.ptr[0] == 'x' && arg.ptr[arg.len - 1] == 'x' && arg.ptr[arg.len] == '\r');
    }
    session_deinit(&s);
}

Test(resp_limits, no_byte_is_looked_at_twice)
{
    const size_t room = (size_t)17 << 20, large = (size_t)16 << 20;
    char *stream = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(stream, MAP_FAILED);
    size_t len = (size_t)sprintf(stream, "*1\r\n$%zu\r\n", large);
    memset(stream + len, 'x', large);
    memcpy(stream + len + large, "\r\n", 2);
    assert_parses_without_looking_back(stream, len + large + 2, 1);
    munmap(stream, room);

    stream = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(stream, MAP_FAILED);
    len = (size_t)sprintf(stream, "*%d\r\n", 1000000);
    for (size_t i = 0; i < 1000000; i++) {
        size_t arg = 1 + i % 11;
        len += (size_t)sprintf(stream + len, "$%zu\r\n%.*s\r\n", arg, (int)arg, "xxxxxxxxxxx");
    }
    cr_assert_leq(len, room);
    assert_parses_without_looking_back(stream, len, 1000000);
    munmap(stream, room);
}

/* ---- memory ---- */

Test(resp_limits, announced_arguments_cost_nothing_until_they_arrive)
{
    struct session s;
    char stream[] = "*1000000\r\n$1\r\na\r\n";

    session_init(&s, default_limits, 0);
    alloc_fault_at(-1);
    cr_assert_eq(next(&s, stream, 10), RESP_NEED_MORE);
    cr_assert_eq(alloc_calls(), 0);
    cr_assert_eq(resp_parser_memory(&s.parser), 0);
    cr_assert_eq(next(&s, stream, sizeof(stream) - 1), RESP_NEED_MORE);
    cr_assert_leq(resp_parser_memory(&s.parser), 128);
    session_deinit(&s);
    cr_assert_eq(alloc_live(), 0);
}

/* The list that a large command extended stays with the thread. */
Test(resp_limits, incomplete_request_does_not_keep_a_large_list)
{
    struct text text = {0};
    struct session s;
    char small[] = "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n";

    add(&text, "*20000\r\n");
    add_args(&text, 20000, 1);
    session_init(&s, default_limits, 0);
    cr_assert_eq(next(&s, text.bytes, text.len), RESP_COMMAND);
    cr_assert_eq(s.cmd.argc, 20000);
    const struct resp_span *spans = s.args.spans;
    cr_assert_eq(next(&s, small, 20), RESP_NEED_MORE);
    cr_assert_leq(resp_parser_memory(&s.parser), 128);
    cr_assert_eq(next(&s, small, sizeof(small) - 1), RESP_COMMAND);
    cr_assert_eq(s.args.spans, spans);
    cr_assert_eq(resp_parser_memory(&s.parser), 0);
    cr_assert_eq(alloc_live(), 1, "the list of the thread alone");
    session_deinit(&s);
}

Test(resp_limits, commands_do_not_allocate)
{
    struct session s;
    char stream[] = "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\nPING 'a b'\r\n";
    size_t first = sizeof(stream) - 1 - 12;

    session_init(&s, default_limits, 0);
    cr_assert_eq(next(&s, stream, sizeof(stream) - 1), RESP_COMMAND);
    cr_assert_eq(s.consumed, first);
    alloc_fault_at(-1);
    for (int i = 0; i < 1000; i++) {
        char copy[sizeof(stream)];
        memcpy(copy, stream, sizeof(stream));
        cr_assert_eq(next(&s, copy, sizeof(stream) - 1), RESP_COMMAND);
        cr_assert_eq(next(&s, copy + first, sizeof(stream) - 1 - first), RESP_COMMAND);
        cr_assert_eq(s.cmd.argc, 2);
    }
    cr_assert_eq(alloc_calls(), 0);
    session_deinit(&s);
}

/* After a failure of any allocation the parser returns the error from then on, and gives its memory back. Commands in
 * one piece, in pieces, and inline, with more arguments than the first list holds. */
static size_t run_until_failure(struct session *s, struct text *text, size_t piece)
{
    size_t begin = 0, commands = 0;

    for (size_t have = 0; have < text->len;) {
        enum resp_status status;
        have = have + piece < text->len ? have + piece : text->len;
        do {
            status = next(s, text->bytes + begin, have - begin);
            cr_assert_neq(status, RESP_MALFORMED);
            if (status == RESP_NO_MEMORY) {
                cr_assert_eq(s->consumed, 0);
                return commands;
            }
            begin += s->consumed;
            commands += status == RESP_COMMAND;
        } while (status == RESP_COMMAND);
    }
    return commands;
}

Test(resp_limits, survives_every_allocation_failure)
{
    static const size_t pieces[] = {1, 7, 100, 1000000};
    size_t failures = 0;

    for (size_t i = 0; i < COUNT(pieces); i++) {
        for (int n = 0;; n++) {
            struct text text = {0};
            struct session s;
            char text_out[RESP_ERROR_TEXT_SIZE] = "x", ping[] = "PING\r\n";
            add(&text, "*40\r\n");
            add_args(&text, 40, 3);
            for (int j = 0; j < 100; j++)
                add(&text, "word%d ", j);
            add(&text, "\r\n*2\r\n");
            add_args(&text, 2, 200);
            session_init(&s, default_limits, 0);
            alloc_fault_at(n);
            size_t commands = run_until_failure(&s, &text, pieces[i]);
            if (commands < 3) {
                alloc_fault_at(-1); /* memory is back; the parser must still return the error */
                cr_assert_eq(next(&s, ping, 6), RESP_NO_MEMORY);
                cr_assert_eq(resp_parser_memory(&s.parser), 0);
                resp_parser_error(&s.parser, text_out, sizeof(text_out));
                cr_assert_str_eq(text_out, "");
                failures++;
            }
            session_deinit(&s);
            cr_assert_eq(alloc_live(), 0, "leak with pieces of %zu, failure at %d", pieces[i], n);
            if (commands == 3)
                break;
        }
    }
    cr_assert_geq(failures, 12, "the sweep met only %zu allocations", failures);
}
