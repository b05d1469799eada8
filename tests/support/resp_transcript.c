#include "resp_transcript.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REQUIRE(claim)                                                            \
    do {                                                                          \
        if (!(claim)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim); \
            abort();                                                              \
        }                                                                         \
    } while (0)

void transcript_deinit(struct transcript *transcript)
{
    free(transcript->text);
    *transcript = (struct transcript){0};
}

bool transcript_equal(const struct transcript *a, const struct transcript *b)
{
    return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static void write_argument(FILE *out, const char *data, size_t len)
{
    fprintf(out, "%zu:", len);
    fwrite(data, 1, len, out);
    fputc('\n', out);
}

/* ---- by the parser ---- */

/* Where input ends at an unreadable page. The address is varied by starting from one of two areas in turn. */
static char *place_at_guard(size_t len)
{
    static char *areas[2];
    static unsigned turn;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char **area = &areas[turn++ % 2];

    REQUIRE(len <= TRANSCRIPT_STREAM_MAX);
    if (*area == NULL) {
        *area = mmap(NULL, TRANSCRIPT_STREAM_MAX + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(*area != MAP_FAILED);
        REQUIRE(mprotect(*area + TRANSCRIPT_STREAM_MAX, page, PROT_NONE) == 0);
    }
    return *area + TRANSCRIPT_STREAM_MAX - len;
}

struct stream {
    const char *bytes; /* all of it, as sent */
    size_t request;    /* where the request being parsed begins */
    size_t arrived;    /* bytes that have been passed to the parser at least once */
    struct resp_parser parser;
    const struct transcript_options *options;
    FILE *out;
};

/* Spans refer to bytes that may have been overwritten in the copy; the stream has them. Inline arguments are unescaped
 * in the copy and never overwritten. */
static void write_command(struct stream *s, const char *copy, size_t consumed, const struct resp_command *cmd)
{
    size_t skipped = (size_t)(cmd->base - copy);
    const char *request = s->bytes + s->request + skipped;

    REQUIRE(consumed >= 1 && consumed <= s->arrived - s->request);
    REQUIRE(skipped < consumed && cmd->argc >= 1 && cmd->argc <= s->options->limits.max_args);
    fprintf(s->out, "command %zu\n", cmd->argc);
    for (size_t i = 0; i < cmd->argc; i++) {
        struct slice arg = resp_arg(cmd, i);
        REQUIRE(arg.len <= s->options->limits.max_bulk);
        REQUIRE(skipped + cmd->spans[i].off + arg.len <= consumed);
        write_argument(s->out, *request == '*' ? request + cmd->spans[i].off : arg.ptr, arg.len);
    }
}

static size_t next_arrival(const struct stream *s, size_t len)
{
    size_t piece = s->options->next_piece != NULL ? s->options->next_piece(s->options->ctx, s->arrived) : len;

    REQUIRE(piece >= 1);
    return piece < len - s->arrived ? s->arrived + piece : len;
}

/* Passes on everything that has arrived until the parser has no more use for it. False when the stream is malformed. */
static bool drain(struct stream *s, struct resp_args *args, size_t seen)
{
    size_t given = s->arrived - s->request;
    char *copy = place_at_guard(given);

    memcpy(copy, s->bytes + s->request, given);
    if (given > 0 && s->bytes[s->request] == '*')
        memset(copy, 'Z', seen - s->request);
    for (;;) {
        struct resp_command cmd;
        size_t consumed = SIZE_MAX;
        enum resp_status status = resp_parser_next(&s->parser, args, &s->options->limits, s->options->noauth, copy,
                                                   s->arrived - s->request, &consumed, &cmd);
        if (status == RESP_MALFORMED) {
            char text[RESP_ERROR_TEXT_SIZE];
            REQUIRE(consumed == 0 && resp_parser_memory(&s->parser) == 0);
            resp_parser_error(&s->parser, text, sizeof(text));
            fprintf(s->out, "malformed, %s\n", text);
            return false;
        }
        REQUIRE(status == RESP_COMMAND || status == RESP_NEED_MORE);
        REQUIRE(consumed <= s->arrived - s->request);
        if (status == RESP_COMMAND)
            write_command(s, copy, consumed, &cmd);
        copy += consumed;
        s->request += consumed;
        if (status == RESP_NEED_MORE)
            break;
        REQUIRE(resp_parser_memory(&s->parser) == 0);
    }

    size_t pending = s->arrived - s->request;
    REQUIRE(resp_parser_needs(&s->parser) > pending);
    REQUIRE(resp_parser_needs(&s->parser) <= pending + s->options->limits.max_bulk + 2);
    REQUIRE(resp_parser_memory(&s->parser) <= (pending / 6 < 8 ? 8 : pending / 6) * 16);
    return true;
}

/* Room for any count of one digit. */
static void warm_up(struct resp_args *args)
{
    const struct resp_limits limits = {100, 100, 100};
    char line[] = "0 1 2 3 4 5 6 7 8 9\n";
    struct resp_parser parser;
    struct resp_command cmd;
    size_t consumed;

    resp_parser_init(&parser);
    REQUIRE(resp_parser_next(&parser, args, &limits, 0, line, sizeof(line) - 1, &consumed, &cmd) == RESP_COMMAND);
    REQUIRE(cmd.argc == 10);
    resp_parser_deinit(&parser);
}

struct transcript transcript_parse(const char *stream, size_t len, const struct transcript_options *options)
{
    struct transcript transcript = {0};
    struct stream s = {.bytes = stream, .options = options};
    struct resp_args args = {0};
    bool going = true;

    s.out = open_memstream(&transcript.text, &transcript.len);
    REQUIRE(s.out != NULL);
    resp_parser_init(&s.parser);
    if (options->warm)
        warm_up(&args);
    while (going && s.arrived < len) {
        size_t seen = s.arrived;
        s.arrived = next_arrival(&s, len);
        going = drain(&s, &args, seen);
    }
    if (going)
        fprintf(s.out, "need more, %zu pending\n", len - s.request);
    resp_parser_deinit(&s.parser);
    resp_args_deinit(&args);
    fclose(s.out);
    return transcript;
}

/* ---- by the model ---- */

enum outcome { WHOLE, UNFINISHED, BROKEN };

struct model {
    const struct transcript_options *options;
    const char *error;
    char error_text[RESP_ERROR_TEXT_SIZE];
    FILE *args; /* the arguments of the request, as they will be in the transcript */
    size_t argc;
};

static enum outcome broken(struct model *m, const char *error)
{
    m->error = error;
    return BROKEN;
}

/* A number is valid if printing it gives the text back. */
static bool model_number(const char *text, size_t len, long long *value_out)
{
    char copy[32], printed[32];

    if (len == 0 || len >= sizeof(copy) || memchr(text, '\0', len) != NULL)
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    *value_out = strtoll(copy, NULL, 10);
    snprintf(printed, sizeof(printed), "%lld", *value_out);
    return strcmp(copy, printed) == 0;
}

/* A header line at `p` with `left` bytes: its number and the length with the line end. */
static enum outcome model_line(struct model *m, const char *p, size_t left, const char *invalid, const char *too_big,
                               long long *value_out, size_t *len_out)
{
    size_t max = m->options->limits.max_inline < 32 ? 32 : m->options->limits.max_inline;
    const char *end = memchr(p, '\r', left < max + 1 ? left : max + 1);

    if (end == NULL)
        return left > max ? broken(m, too_big) : UNFINISHED;
    *len_out = (size_t)(end - p) + 2;
    if (*len_out > left)
        return UNFINISHED;
    return model_number(p + 1, (size_t)(end - p) - 1, value_out) ? WHOLE : broken(m, invalid);
}

static enum outcome model_argument(struct model *m, const char *p, size_t left, size_t *len_out)
{
    const char *invalid = "invalid bulk length";
    long long bytes;
    size_t line;

    if (left == 0)
        return UNFINISHED;
    if (*p != '$') {
        bool printable = *p >= 0x20 && *p <= 0x7e;
        snprintf(m->error_text, sizeof(m->error_text),
                 printable ? "expected '$', got '%c'" : "expected '$', got '\\x%02x'", (unsigned char)*p);
        return broken(m, m->error_text);
    }
    enum outcome outcome = model_line(m, p, left, invalid, "too big bulk count string", &bytes, &line);
    if (outcome != WHOLE)
        return outcome;
    if (bytes < 0)
        return broken(m, invalid);
    if ((unsigned long long)bytes > m->options->limits.max_bulk)
        return broken(m,
                      m->options->noauth && bytes <= RESP_MAX_BULK_DEFAULT ? "unauthenticated bulk length" : invalid);
    *len_out = line + (size_t)bytes + 2;
    if (*len_out > left)
        return UNFINISHED;
    write_argument(m->args, p + line, (size_t)bytes);
    m->argc++;
    return WHOLE;
}

static enum outcome model_array(struct model *m, const char *p, size_t left, size_t *len_out)
{
    const char *invalid = "invalid multibulk length";
    long long count;
    enum outcome outcome = model_line(m, p, left, invalid, "too big mbulk count string", &count, len_out);

    if (outcome != WHOLE)
        return outcome;
    if (count > (long long)m->options->limits.max_args)
        return broken(m, m->options->noauth && count <= INT32_MAX ? "unauthenticated multibulk length" : invalid);
    for (; count > 0; count--) {
        size_t len;
        outcome = model_argument(m, p + *len_out, left - *len_out, &len);
        if (outcome != WHOLE)
            return outcome;
        *len_out += len;
    }
    return WHOLE;
}

static int hex_value(int c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) % 16 : -1;
}

/* One argument of an inline line (NUL-terminated) into `out`; returns what follows, or NULL when quotes do not match.
 */
static const char *model_word(const char *p, char *out, size_t *len_out)
{
    char quote = 0;

    *len_out = 0;
    for (;; p++) {
        char c = *p;
        if (c == '\0')
            return quote ? NULL : p;
        if (!quote) {
            if (strchr(" \t\r", c) != NULL)
                return p;
            if (c == '"' || c == '\'') {
                quote = c;
                continue;
            }
        } else if (c == quote) {
            return p[1] == '\0' || strchr(" \t\n\v\f\r", p[1]) != NULL ? p + 1 : NULL;
        } else if (quote == '"' && c == '\\' && p[1] == 'x' && hex_value(p[2]) >= 0 && hex_value(p[3]) >= 0) {
            c = (char)(hex_value(p[2]) * 16 + hex_value(p[3]));
            p += 3;
        } else if (quote == '"' && c == '\\' && p[1] != '\0') {
            const char *letters = "nrtba", *at = strchr(letters, *++p);
            c = at != NULL ? "\n\r\t\b\a"[at - letters] : *p;
        } else if (quote == '\'' && c == '\\' && p[1] == '\'') {
            c = *++p;
        }
        out[(*len_out)++] = c;
    }
}

static enum outcome model_words(struct model *m, const char *line, char *word)
{
    const struct resp_limits *limits = &m->options->limits;

    for (line += strspn(line, " \t\n\v\f\r"); *line != '\0'; line += strspn(line, " \t\n\v\f\r")) {
        size_t len;
        line = model_word(line, word, &len);
        if (line == NULL)
            return broken(m, "unbalanced quotes in request");
        if (m->argc == limits->max_args)
            return broken(m, m->options->noauth ? "unauthenticated multibulk length" : "invalid multibulk length");
        if (len > limits->max_bulk)
            return broken(m, m->options->noauth ? "unauthenticated bulk length" : "invalid bulk length");
        write_argument(m->args, word, len);
        m->argc++;
    }
    return WHOLE;
}

static enum outcome model_inline(struct model *m, const char *p, size_t left, size_t *len_out)
{
    size_t max = m->options->limits.max_inline, len = 0;

    while (len < left && p[len] != '\n' && p[len] != '\0' && len < max)
        len++;
    if (len < left && p[len] == '\0')
        return broken(m, "NUL byte in inline request");
    if (len == max && left > max && p[max] == '\r') { /* may be the line end of a line that is just not too long */
        if (left == max + 1)
            return UNFINISHED;
        if (p[max + 1] == '\0')
            return broken(m, "NUL byte in inline request");
        len++;
    }
    if (len == left)
        return UNFINISHED;
    if (p[len] != '\n')
        return broken(m, "too big inline request");
    *len_out = len + 1;
    if (len > 0 && p[len - 1] == '\r')
        len--;

    char *line = strndup(p, len), *word = malloc(len + 1);
    REQUIRE(line != NULL && word != NULL);
    enum outcome outcome = model_words(m, line, word);
    free(line);
    free(word);
    return outcome;
}

struct transcript transcript_model(const char *stream, size_t len, const struct transcript_options *options)
{
    struct transcript transcript = {0};
    FILE *out = open_memstream(&transcript.text, &transcript.len);
    size_t at = 0;

    REQUIRE(out != NULL);
    for (;;) {
        struct model m = {.options = options};
        struct transcript args = {0};
        size_t taken = 0;
        enum outcome outcome = UNFINISHED;

        m.args = open_memstream(&args.text, &args.len);
        REQUIRE(m.args != NULL);
        if (at < len)
            outcome = (stream[at] == '*' ? model_array : model_inline)(&m, stream + at, len - at, &taken);
        fclose(m.args);
        at += taken * (outcome == WHOLE);
        if (outcome == WHOLE && m.argc > 0) {
            fprintf(out, "command %zu\n", m.argc);
            fwrite(args.text, 1, args.len, out);
        }
        transcript_deinit(&args);
        if (outcome == UNFINISHED)
            fprintf(out, "need more, %zu pending\n", len - at);
        else if (outcome == BROKEN)
            fprintf(out, "malformed, Protocol error: %s\n", m.error);
        if (outcome != WHOLE)
            break;
    }
    fclose(out);
    return transcript;
}
