/* The parser is a small state machine over one request. A request begins at feed.base; parser->pos counts the bytes
 * already parsed. Every state reads only from there on, so a cut in the input costs one call and nothing else.
 *
 *   START -> COUNT -> COUNT_END -> ARGUMENT -> LENGTH -> LENGTH_END -> BODY -> ARGUMENT ... -> whole
 *   START -> INLINE -> whole
 *
 * A fast path serves the form of nearly all requests: a count of one digit, lengths of one to three digits, all bytes
 * in the buffer. take_arguments() reads the arguments with local variables alone. It serves whole requests, which then
 * never enter the machine (resp_parser_next()), and runs of usual arguments in other requests (begin_argument()). It
 * leaves any other form to the machine, untouched. The daemon's instructions for a BF.EXISTS in pipelines of 64
 * (callgrind, user space, all of a command): 2,706 with the machine alone, 1,963 with this path, 452 with resp_repeat.h
 * before it. */
#include "resp_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "quoted.h"

#define HEADER_LINE_MIN 32 /* longer than any number: max_inline only limits lines that are no number */
#define ARGS_SIZE_MIN   16

enum state {
    STATE_START = 0,  /* before the first byte */
    STATE_COUNT,      /* in "*n" */
    STATE_COUNT_END,  /* after its \r */
    STATE_ARGUMENT,   /* a '$' is due */
    STATE_LENGTH,     /* in "$n" */
    STATE_LENGTH_END, /* after its \r */
    STATE_BODY,       /* `value` bytes and a line end are due */
    STATE_INLINE,     /* looking for \n */
    STATE_MALFORMED,  /* this and the next are final */
    STATE_NO_MEMORY,
};

/* State of the number in a header line. Redis accepts what it prints: no sign but '-', no leading zero, no space. */
enum number {
    NUMBER_EMPTY = 0,
    NUMBER_MINUS,
    NUMBER_ZERO,
    NUMBER_DIGITS,
    NUMBER_BAD,
};

enum error {
    ERROR_COUNT = 0,
    ERROR_COUNT_NOAUTH,
    ERROR_COUNT_LINE,
    ERROR_LENGTH,
    ERROR_LENGTH_NOAUTH,
    ERROR_LENGTH_LINE,
    ERROR_DOLLAR,
    ERROR_QUOTES,
    ERROR_INLINE_SIZE,
    ERROR_INLINE_NUL,
    ERROR_REQUEST_SIZE,
};

static const char *const error_texts[] = {
    [ERROR_COUNT] = "invalid multibulk length",
    [ERROR_COUNT_NOAUTH] = "unauthenticated multibulk length",
    [ERROR_COUNT_LINE] = "too big mbulk count string",
    [ERROR_LENGTH] = "invalid bulk length",
    [ERROR_LENGTH_NOAUTH] = "unauthenticated bulk length",
    [ERROR_LENGTH_LINE] = "too big bulk count string",
    [ERROR_DOLLAR] = "expected '$', got ",
    [ERROR_QUOTES] = "unbalanced quotes in request",
    [ERROR_INLINE_SIZE] = "too big inline request",
    [ERROR_INLINE_NUL] = "NUL byte in inline request",
    [ERROR_REQUEST_SIZE] = "too big request",
};

enum step {
    STEP_ON,    /* the state has changed */
    STEP_MORE,  /* the input is used up */
    STEP_EMPTY, /* a whole request without arguments */
    STEP_WHOLE, /* a whole request */
    STEP_FAILED,
};

struct feed {
    struct resp_parser *parser;
    struct resp_args *list; /* the caller's, or the parser's own while a request is incomplete */
    const struct resp_limits *limits;
    char *base;
    size_t len;
};

void resp_args_deinit(struct resp_args *args)
{
    free(args->spans);
    *args = (struct resp_args){0};
}

/* Makes room for at least one more argument, by doubling. False when memory is out. */
static bool args_grow(struct resp_args *args)
{
    size_t size = args->size < ARGS_SIZE_MIN ? ARGS_SIZE_MIN : args->size * 2;

    if (size > SIZE_MAX / sizeof(*args->spans))
        return false;
    struct resp_span *spans = realloc(args->spans, size * sizeof(*spans));
    if (!spans)
        return false;
    args->spans = spans;
    args->size = size;
    return true;
}

/* Both numbers are at most UINT32_MAX. False when memory is out. */
static bool args_add(struct resp_args *args, size_t off, size_t len)
{
    if (args->count == args->size && !args_grow(args))
        return false;
    args->spans[args->count++] = (struct resp_span){(uint32_t)off, (uint32_t)len};
    return true;
}

void resp_parser_init(struct resp_parser *parser)
{
    *parser = (struct resp_parser){.state = STATE_START};
}

void resp_parser_deinit(struct resp_parser *parser)
{
    resp_args_deinit(&parser->held);
}

/* Frees the list: a connection that waits to be closed must not keep an unfinished one. */
static enum step fail_in(struct resp_parser *parser, enum state state)
{
    resp_args_deinit(&parser->held);
    parser->state = (uint8_t)state;
    return STEP_FAILED;
}

static enum step malformed(struct resp_parser *parser, enum error error)
{
    parser->error = (uint8_t)error;
    return fail_in(parser, STATE_MALFORMED);
}

/* ---- header lines ---- */

static inline unsigned digit(char c)
{
    return (unsigned)(unsigned char)c - '0'; /* above 9 if it is none */
}

static void begin_line(struct resp_parser *parser, enum state state)
{
    parser->line = parser->pos++; /* the '*' or '$' */
    parser->state = (uint8_t)state;
    parser->number = NUMBER_EMPTY;
    parser->negative = 0;
    parser->value = 0;
}

static enum number take_digit(struct resp_parser *parser, char c)
{
    switch (parser->number) {
    case NUMBER_EMPTY:
        if (c == '-') {
            parser->negative = 1;
            return NUMBER_MINUS;
        }
        if (c == '0')
            return NUMBER_ZERO;
        break;
    case NUMBER_MINUS:
        if (c == '0')
            return NUMBER_BAD;
        break;
    case NUMBER_DIGITS:
        break;
    default:
        return NUMBER_BAD;
    }
    if (digit(c) > 9 || parser->value > INT64_MAX / 10)
        return NUMBER_BAD;
    parser->value = parser->value * 10 + digit(c);
    return NUMBER_DIGITS;
}

/* Reads up to the \r that ends the line; `too_long` is the error for a line that passes the limit. */
static enum step read_number(struct feed *feed, enum state next, enum error too_long)
{
    struct resp_parser *parser = feed->parser;
    size_t max_line = feed->limits->max_inline;

    if (max_line < HEADER_LINE_MIN)
        max_line = HEADER_LINE_MIN;
    while (parser->pos < feed->len) {
        char c = feed->base[parser->pos];
        if (c == '\r') {
            parser->pos++;
            parser->state = (uint8_t)next;
            return STEP_ON;
        }
        if (parser->pos - parser->line >= max_line)
            return malformed(parser, too_long);
        parser->pos++;
        if (parser->number != NUMBER_BAD)
            parser->number = (uint8_t)take_digit(parser, c);
    }
    return STEP_MORE;
}

/* Whether the line was a number that fits 64 signed bits. */
static bool line_is_number(const struct resp_parser *parser)
{
    return (parser->number == NUMBER_ZERO || parser->number == NUMBER_DIGITS) &&
           parser->value <= (uint64_t)INT64_MAX + parser->negative;
}

static enum step end_count(struct feed *feed)
{
    struct resp_parser *parser = feed->parser;

    if (parser->pos >= feed->len)
        return STEP_MORE;
    parser->pos++;
    if (!line_is_number(parser))
        return malformed(parser, ERROR_COUNT);
    if (parser->negative || parser->value == 0)
        return STEP_EMPTY;
    if (parser->value > feed->limits->max_args)
        return malformed(parser, parser->noauth && parser->value <= INT32_MAX ? ERROR_COUNT_NOAUTH : ERROR_COUNT);
    parser->argc = (uint32_t)parser->value;
    parser->state = STATE_ARGUMENT;
    return STEP_ON;
}

static enum step end_length(struct feed *feed)
{
    struct resp_parser *parser = feed->parser;

    if (parser->pos >= feed->len)
        return STEP_MORE;
    parser->pos++;
    if (!line_is_number(parser) || parser->negative)
        return malformed(parser, ERROR_LENGTH);
    if (parser->value > feed->limits->max_bulk)
        return malformed(parser,
                         parser->noauth && parser->value <= RESP_MAX_BULK_DEFAULT ? ERROR_LENGTH_NOAUTH : ERROR_LENGTH);
    if (parser->value + 2 > UINT32_MAX || parser->pos > UINT32_MAX - (parser->value + 2))
        return malformed(parser, ERROR_REQUEST_SIZE);
    parser->state = STATE_BODY;
    return STEP_ON;
}

/* ---- arguments ---- */

/* Whether the four bytes at `p` are those of `form`, except where `mask` has a zero byte. With literals for both the
 * compiler is left with a load, an and, and a compare. */
static inline bool looks_like(const char *p, const char form[4], const char mask[4])
{
    return (bytes_word(p) & bytes_word(mask)) == bytes_word(form);
}

/* Reads complete arguments of the usual form from `p` on, until there are `stop` of them. Returns the first byte not
 * read. Inline, so that the count stays in a register. Each number of digits has a branch of its own: these predict
 * well, and the processor continues without waiting for the length. */
static inline __attribute__((always_inline)) const char *take_arguments(const char *p, const char *end,
                                                                        const char *base, size_t max_bulk,
                                                                        struct resp_span *spans, size_t stop,
                                                                        size_t *count)
{
    while (*count < stop && end - p >= 6) {
        unsigned first = digit(p[1]), second = digit(p[2]), third = digit(p[3]);
        const char *body;
        size_t len;

        if (looks_like(p, "$\0\r\n", "\xff\0\xff\xff") && first <= 9) {
            len = first;
            body = p + 4;
        } else if (p[0] != '$' || first - 1 > 8 || second > 9) {
            break;
        } else if (p[3] == '\r' && p[4] == '\n') {
            len = first * 10 + second;
            body = p + 5;
        } else if (third <= 9 && p[4] == '\r' && p[5] == '\n') {
            len = first * 100 + second * 10 + third;
            body = p + 6;
        } else {
            break;
        }
        if (len > max_bulk || end - body < (ptrdiff_t)len + 2)
            break;
        spans[(*count)++] = (struct resp_span){(uint32_t)(body - base), (uint32_t)len};
        p = body + len + 2;
    }
    return p;
}

static enum step begin_argument(struct feed *feed)
{
    struct resp_parser *parser = feed->parser;
    struct resp_args *list = feed->list;
    size_t stop = parser->argc < list->size ? parser->argc : list->size;
    size_t addressable = feed->len < UINT32_MAX ? feed->len : UINT32_MAX;

    if (parser->pos < addressable)
        parser->pos = (size_t)(take_arguments(feed->base + parser->pos, feed->base + addressable, feed->base,
                                              feed->limits->max_bulk, list->spans, stop, &list->count) -
                               feed->base);
    if (list->count == parser->argc)
        return STEP_WHOLE;
    if (parser->pos >= feed->len)
        return STEP_MORE;
    if (feed->base[parser->pos] != '$') {
        parser->bad_byte = (uint8_t)feed->base[parser->pos];
        return malformed(parser, ERROR_DOLLAR);
    }
    begin_line(parser, STATE_LENGTH);
    return STEP_ON;
}

static enum step end_body(struct feed *feed)
{
    struct resp_parser *parser = feed->parser;
    size_t len = (size_t)parser->value;

    if (feed->len < parser->pos || feed->len - parser->pos < len + 2)
        return STEP_MORE;
    if (!args_add(feed->list, parser->pos, len))
        return fail_in(parser, STATE_NO_MEMORY);
    parser->pos += len + 2;
    parser->state = STATE_ARGUMENT;
    return STEP_ON;
}

/* ---- inline commands ---- */

enum split {
    SPLIT_FINE,
    SPLIT_QUOTES,   /* unbalanced */
    SPLIT_TOO_MANY, /* more than max_args */
    SPLIT_TOO_LONG, /* an argument is longer than max_bulk */
    SPLIT_NO_MEMORY,
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Splits an inline command, without its line end and without NUL bytes, into the arguments it adds to `list`. An
 * argument never gets longer by unescaping, so it is rewritten where it is. A word may begin unquoted and continue in
 * quotes, but a closing quote ends it. */
static enum split split_words(char *line, size_t len, const struct resp_limits *limits, struct resp_args *list)
{
    const char *p = line, *end = line + len;

    for (;;) {
        while (p < end && is_space(*p))
            p++;
        if (p == end)
            return SPLIT_FINE;

        size_t off = (size_t)(p - line);
        char *write = line + off;
        while (p < end && *p != ' ' && *p != '\t' && *p != '\r') {
            if (*p == '"' || *p == '\'') {
                if (!quoted_take(&p, end, &write) || (p < end && !is_space(*p)))
                    return SPLIT_QUOTES;
                break;
            }
            *write++ = *p++;
        }

        size_t word_len = (size_t)(write - line) - off;
        if (list->count == limits->max_args)
            return SPLIT_TOO_MANY;
        if (word_len > limits->max_bulk)
            return SPLIT_TOO_LONG;
        if (!args_add(list, off, word_len))
            return SPLIT_NO_MEMORY;
    }
}

static enum step split_line(struct feed *feed, size_t len)
{
    struct resp_parser *parser = feed->parser;

    switch (split_words(feed->base, len, feed->limits, feed->list)) {
    case SPLIT_FINE:
        return feed->list->count > 0 ? STEP_WHOLE : STEP_EMPTY;
    case SPLIT_QUOTES:
        return malformed(parser, ERROR_QUOTES);
    case SPLIT_TOO_MANY:
        return malformed(parser, parser->noauth ? ERROR_COUNT_NOAUTH : ERROR_COUNT);
    case SPLIT_TOO_LONG:
        return malformed(parser, parser->noauth ? ERROR_LENGTH_NOAUTH : ERROR_LENGTH);
    case SPLIT_NO_MEMORY:
        break;
    }
    return fail_in(parser, STATE_NO_MEMORY);
}

/* Searches the end of the line. Redis reads the line as a C string and waits forever when it has a NUL byte, as the
 * first bytes of a TLS client do. Here such a line is refused. */
static enum step read_inline(struct feed *feed)
{
    struct resp_parser *parser = feed->parser;
    size_t pos = parser->pos, max = feed->limits->max_inline;

    for (; pos < feed->len; pos++) {
        char c = feed->base[pos];
        if (c == '\n')
            break;
        if (c == '\0')
            return malformed(parser, ERROR_INLINE_NUL);
        if (pos >= max && (pos > max || c != '\r'))
            return malformed(parser, ERROR_INLINE_SIZE);
    }
    parser->pos = pos;
    if (pos >= feed->len)
        return STEP_MORE;

    size_t len = pos > 0 && feed->base[pos - 1] == '\r' ? pos - 1 : pos;
    if (len > max)
        return malformed(parser, ERROR_INLINE_SIZE);
    parser->pos++;
    return split_line(feed, len);
}

/* ---- the machine ---- */

static enum step start(struct feed *feed)
{
    if (feed->len == 0)
        return STEP_MORE;
    if (feed->base[0] == '*')
        begin_line(feed->parser, STATE_COUNT);
    else
        feed->parser->state = STATE_INLINE;
    return STEP_ON;
}

static enum step take_step(struct feed *feed)
{
    switch ((enum state)feed->parser->state) {
    case STATE_START:
        return start(feed);
    case STATE_COUNT:
        return read_number(feed, STATE_COUNT_END, ERROR_COUNT_LINE);
    case STATE_COUNT_END:
        return end_count(feed);
    case STATE_ARGUMENT:
        return begin_argument(feed);
    case STATE_LENGTH:
        return read_number(feed, STATE_LENGTH_END, ERROR_LENGTH_LINE);
    case STATE_LENGTH_END:
        return end_length(feed);
    case STATE_BODY:
        return end_body(feed);
    case STATE_INLINE:
        return read_inline(feed);
    case STATE_MALFORMED:
    case STATE_NO_MEMORY:
        break;
    }
    return STEP_FAILED;
}

static void begin_request(struct resp_parser *parser)
{
    parser->pos = 0;
    parser->state = STATE_START;
}

/* The request is incomplete: the parser copies the arguments so far from the caller's list to its own list, of the size
 * they need. The caller's list stays with the caller: it may have grown for another client's large command, and a
 * connection that has sent ten bytes must not keep it. */
static enum resp_status keep_list(struct resp_parser *parser, const struct resp_args *args)
{
    struct resp_args *held = &parser->held;

    while (held->size < args->count) {
        if (!args_grow(held)) {
            fail_in(parser, STATE_NO_MEMORY);
            return RESP_NO_MEMORY;
        }
    }
    if (args->count > 0)
        memcpy(held->spans, args->spans, args->count * sizeof(*held->spans));
    held->count = args->count;
    return RESP_NEED_MORE;
}

/* The request is complete: its arguments move to the caller's list, by copy or, if it is too small, by a swap. */
static void give_list_back(struct resp_parser *parser, struct resp_args *args)
{
    struct resp_args *held = &parser->held;

    if (held->count > args->size) {
        struct resp_args small = *args;
        *args = *held;
        *held = small;
    } else {
        memcpy(args->spans, held->spans, held->count * sizeof(*held->spans));
        args->count = held->count;
    }
    resp_args_deinit(held);
}

/* Not inline: the fast path must not pay for the registers that this function saves. */
static __attribute__((noinline)) enum resp_status run_machine(struct feed *feed, struct resp_args *args,
                                                              size_t *consumed_out, struct resp_command *command_out)
{
    struct resp_parser *parser = feed->parser;
    size_t skipped = 0;

    *consumed_out = 0;
    for (;;) {
        switch (take_step(feed)) {
        case STEP_ON:
            break;
        case STEP_MORE:
            *consumed_out = skipped;
            return feed->list == args ? keep_list(parser, args) : RESP_NEED_MORE;
        case STEP_EMPTY:
            skipped += parser->pos;
            feed->base += parser->pos;
            feed->len -= parser->pos;
            begin_request(parser);
            break;
        case STEP_WHOLE:
            if (feed->list != args)
                give_list_back(parser, args);
            *command_out = (struct resp_command){feed->base, args->spans, args->count};
            *consumed_out = skipped + parser->pos;
            begin_request(parser);
            return RESP_COMMAND;
        case STEP_FAILED:
            return parser->state == STATE_MALFORMED ? RESP_MALFORMED : RESP_NO_MEMORY;
        }
    }
}

enum resp_status resp_parser_next(struct resp_parser *parser, struct resp_args *args, const struct resp_limits *limits,
                                  int noauth, char *buf, size_t len, size_t *consumed_out,
                                  struct resp_command *command_out)
{
    size_t argc, count = 0;

    /* The fast path, for requests of up to nine arguments; where it stops, the machine continues. */
    if (parser->state == STATE_START && len >= 4 && looks_like(buf, "*\0\r\n", "\xff\0\xff\xff") &&
        (argc = digit(buf[1])) - 1 <= 8 && argc <= limits->max_args && argc <= args->size) {
        const char *p = take_arguments(buf + 4, buf + len, buf, limits->max_bulk, args->spans, argc, &count);
        if (count == argc) {
            *consumed_out = (size_t)(p - buf);
            *command_out = (struct resp_command){buf, args->spans, argc};
            return RESP_COMMAND;
        }
        parser->pos = (size_t)(p - buf);
        parser->argc = (uint32_t)argc;
        parser->state = STATE_ARGUMENT;
    }

    struct feed feed = {parser, parser->held.count > 0 ? &parser->held : args, limits, buf, len};
    args->count = count;
    parser->noauth = noauth != 0;
    return run_machine(&feed, args, consumed_out, command_out);
}

size_t resp_parser_needs(const struct resp_parser *parser)
{
    return parser->state == STATE_BODY ? parser->pos + (size_t)parser->value + 2 : parser->pos + 1;
}

void resp_parser_error(const struct resp_parser *parser, char *text_out, size_t size)
{
    char byte[8] = "";

    if (size == 0)
        return;
    if (parser->state != STATE_MALFORMED) {
        text_out[0] = '\0';
        return;
    }
    if (parser->error == ERROR_DOLLAR)
        snprintf(byte, sizeof(byte), parser->bad_byte >= 0x20 && parser->bad_byte < 0x7f ? "'%c'" : "'\\x%02x'",
                 parser->bad_byte);
    snprintf(text_out, size, "Protocol error: %s%s", error_texts[parser->error], byte);
}
