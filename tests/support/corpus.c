#include "corpus_internal.h"
#include "wait.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECTIONS_MAX 8
#define WORDS_MAX       4096
#define LONG_BULK       4096
#define SILENCE_MS      2   /* after the server has processed its input: how long no further reply may come */
#define MEANT_MS        150 /* the same where the recording gives no guide, since a difference is intended */
#define PROBES          (2 * CORPUS_THREADS) /* this many new connections are spread over all threads */

struct player {
    int port, resp;
    const char *path; /* NULL: connections are to the port */
    bool patient;     /* the recorded replies are worth waiting for: no difference is intended */
    struct {
        char name[16];
        struct wire wire;
    } connections[CONNECTIONS_MAX];
    size_t nconnections, current;
    struct wire probes[PROBES];
};

/* ---- recordings ---- */

static struct corpus_case *add_case(struct corpus *corpus, const char *command)
{
    struct corpus_case *added;

    if (corpus->count % 64 == 0) {
        corpus->cases = realloc(corpus->cases, (corpus->count + 64) * sizeof(*corpus->cases));
        cr_assert_not_null(corpus->cases);
    }
    added = &corpus->cases[corpus->count++];
    *added = (struct corpus_case){strdup(command), {NULL, 0, 0}};
    cr_assert_not_null(added->command);
    return added;
}

/* A line of a recording, already escaped. */
static void add_raw(struct lines *lines, const char *text)
{
    lines_add(lines, "", 0);
    free(lines->items[lines->count - 1]);
    lines->items[lines->count - 1] = strdup(text);
    cr_assert_not_null(lines->items[lines->count - 1]);
}

void corpus_load(struct corpus *corpus, const char *path)
{
    FILE *stream = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    ssize_t len;

    *corpus = (struct corpus){NULL, 0};
    cr_assert_not_null(stream, "%s: %s", path, strerror(errno));
    while ((len = getline(&line, &size, stream)) > 0) {
        if (line[len - 1] == '\n')
            line[len - 1] = '\0';
        if (strncmp(line, "> ", 2) == 0)
            add_case(corpus, line + 2);
        else if (line[0] == '<' && corpus->count > 0)
            add_raw(&corpus->cases[corpus->count - 1].reply, line);
        else
            cr_assert_fail("%s: not a line of a recording: %s", path, line);
    }
    free(line);
    fclose(stream);
}

void corpus_deinit(struct corpus *corpus)
{
    for (size_t i = 0; i < corpus->count; i++) {
        free(corpus->cases[i].command);
        lines_deinit(&corpus->cases[i].reply);
    }
    free(corpus->cases);
    *corpus = (struct corpus){NULL, 0};
}

/* ---- words ---- */

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdefABCDEF", *found = c == '\0' ? NULL : strchr(digits, c);

    return found == NULL ? -1 : found - digits < 16 ? (int)(found - digits) : (int)(found - digits) - 6;
}

/* Copies a text in double quotes from after the opening one; returns the place after the closing one, or NULL. */
static const char *copy_quoted(const char *in, char **out)
{
    static const char letters[] = "nrtba", bytes[] = "\n\r\t\b\a";

    while (*in != '"') {
        if (*in == '\0')
            return NULL;
        if (in[0] == '\\' && in[1] == 'x' && hex_digit(in[2]) >= 0 && hex_digit(in[3]) >= 0) {
            *(*out)++ = (char)(hex_digit(in[2]) * 16 + hex_digit(in[3]));
            in += 4;
        } else if (in[0] == '\\' && in[1] != '\0') {
            const char *letter = strchr(letters, in[1]);

            *(*out)++ = letter != NULL ? bytes[letter - letters] : in[1];
            in += 2;
        } else {
            *(*out)++ = *in++;
        }
    }
    return in + 1;
}

bool corpus_split(const char *line, struct word *words, size_t max, size_t *n_out, char **bytes_out)
{
    char *out = malloc(strlen(line) + 1), *bytes = out;
    size_t n = 0;

    cr_assert_not_null(out);
    *bytes_out = bytes;
    for (;;) {
        char *word = out;

        line += strspn(line, " \t");
        if (*line == '\0')
            break;
        while (*line != '\0' && *line != ' ' && *line != '\t') {
            if (*line == '"') {
                line = copy_quoted(line + 1, &out);
            } else if (*line == '\'') {
                const char *end = strchr(line + 1, '\'');

                while (end != NULL && ++line < end)
                    *out++ = *line;
                line = end == NULL ? NULL : end + 1;
            } else {
                *out++ = *line++;
            }
            if (line == NULL)
                return false;
        }
        cr_assert_lt(n, max);
        words[n++] = (struct word){word, (size_t)(out - word)};
        *out++ = '\0'; /* instead of the space after the word, or of the line's end */
    }
    *n_out = n;
    return true;
}

/* ---- connections ---- */

static void open_connection(const struct player *player, struct wire *wire, bool hello)
{
    struct lines reply = {NULL, 0, 0};

    if (player->path)
        wire_open_dripping(wire, player->path);
    else
        wire_open(wire, player->port);
    if (hello) {
        cr_assert(wire_send_text(wire, "HELLO 3\r\n"));
        cr_assert_eq(wire_reply(wire, WIRE_PATIENCE_MS, &reply), WIRE_OK);
        lines_deinit(&reply);
    }
}

static struct wire *current(struct player *player)
{
    struct wire *wire = &player->connections[player->current].wire;

    if (wire->fd < 0)
        open_connection(player, wire, player->resp == 3);
    return wire;
}

static void switch_connection(struct player *player, const char *name)
{
    for (player->current = 0; player->current < player->nconnections; player->current++)
        if (strcmp(player->connections[player->current].name, name) == 0)
            break;
    if (player->current == player->nconnections) {
        cr_assert_lt(player->nconnections, CONNECTIONS_MAX);
        snprintf(player->connections[player->current].name, sizeof(player->connections[0].name), "%s", name);
        player->connections[player->current].wire.fd = -1;
        player->nconnections++;
    }
    current(player);
}

static void renew_connection(struct player *player, bool raw)
{
    struct wire *wire = &player->connections[player->current].wire;

    wire_close(wire);
    open_connection(player, wire, player->resp == 3 && !raw);
}

static void open_probes(struct player *player)
{
    for (size_t i = 0; i < PROBES; i++)
        wire_open(&player->probes[i], player->port);
}

/* Waits until the server has processed its input: each of its threads has been through its loop since. */
static void settle(struct player *player)
{
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < PROBES; i++) {
            if (strcmp(wire_ask(&player->probes[i], "PING"), "(closed)") == 0) {
                wire_close(&player->probes[i]);
                wire_open(&player->probes[i], player->port);
            }
        }
    }
}

/* ---- replies ---- */

/* Takes one reply and adds its lines with their mark. */
static enum wire_status take_one(struct wire *wire, const char *mark, int timeout_ms, struct lines *out)
{
    struct lines reply = {NULL, 0, 0};
    enum wire_status status = wire_reply(wire, timeout_ms, &reply);

    for (size_t i = 0; i < reply.count; i++) {
        char *line;

        cr_assert_geq(asprintf(&line, "%s%s", mark, reply.items[i]), 0);
        add_raw(out, line);
        free(line);
    }
    lines_deinit(&reply);
    return status;
}

static bool has_line(const struct lines *lines, const char *text)
{
    for (size_t i = 0; i < lines->count; i++)
        if (strcmp(lines->items[i], text) == 0)
            return true;
    return false;
}

/* Takes `n` replies; with n 0 all that come. The recording tells how long a wait is worthwhile: for each of its
 * lines, and for the end of the connection if it ended. */
static void take(struct player *player, size_t n, const char *mark, const struct lines *recorded, struct lines *out)
{
    struct wire *wire = &player->connections[player->current].wire;
    bool closes = has_line(recorded, "<! closed"), silent = has_line(recorded, "<! silence");
    size_t lines_expected = recorded->count - closes - silent;

    for (size_t taken = 0; n == 0 || taken < n; taken++) {
        bool certain = n > 0 ? !silent : player->patient && (out->count < lines_expected || closes);
        int silence_ms = player->patient ? SILENCE_MS : MEANT_MS;

        if (!certain)
            settle(player);
        enum wire_status status = take_one(wire, mark, certain ? WIRE_PATIENCE_MS : silence_ms, out);

        if (status == WIRE_CLOSED) {
            add_raw(out, "<! closed");
            wire_close(wire);
            return;
        }
        if (status == WIRE_SILENCE) {
            if (taken == 0 || n > 0)
                add_raw(out, "<! silence");
            return;
        }
    }
}

/* ---- commands ---- */

static void send_range(struct wire *wire, const char *text)
{
    struct word words[8], *items;
    size_t n;
    long from, to;
    char *bytes, *names;

    cr_assert(corpus_split(text, words, 8, &n, &bytes) && n == 5, "@range %s", text);
    from = strtol(words[3].ptr, NULL, 10);
    to = strtol(words[4].ptr, NULL, 10);
    items = calloc((size_t)(to - from) + 2, sizeof(*items));
    names = malloc((size_t)(to - from) * 64);
    cr_assert(items != NULL && names != NULL && words[2].len < 32);
    items[0] = words[0];
    items[1] = words[1];
    for (long i = from; i < to; i++) {
        char *name = names + (i - from) * 64;
        int len = snprintf(name, 64, "%.*s%ld", (int)words[2].len, words[2].ptr, i);

        items[i - from + 2] = (struct word){name, (size_t)len};
    }
    wire_send_command(wire, items, (size_t)(to - from) + 2);
    free(bytes);
    free(items);
    free(names);
}

static void send_words(struct wire *wire, const char *text)
{
    static struct word words[WORDS_MAX];
    size_t n;
    char *bytes;

    cr_assert(corpus_split(text, words, WORDS_MAX, &n, &bytes), "quotes: %s", text);
    wire_send_command(wire, words, n);
    free(bytes);
}

/* The bytes of a line in its form on the wire, in place; returns their number. */
static size_t unescape(char *line)
{
    char *out = line;

    for (const char *in = line; *in != '\0';) {
        if (in[0] == '\\' && in[1] == 'x') {
            *out++ = (char)(hex_digit(in[2]) * 16 + hex_digit(in[3]));
            in += 4;
        } else {
            in += in[0] == '\\';
            *out++ = *in++;
        }
    }
    return (size_t)(out - line);
}

/* A command with a key, an iterator as received (":123") and, if there are any, bytes; its reply is kept. */
static enum wire_status ask_chunk(struct wire *wire, const char *command, struct word key, const char *iterator,
                                  const struct word *data, const char *mark, struct lines *out)
{
    struct word words[4] = {{command, strlen(command)}, key, {iterator + 1, strlen(iterator + 1)}};

    if (data != NULL)
        words[3] = *data;
    wire_send_command(wire, words, data == NULL ? 3 : 4);
    return take_one(wire, mark, WIRE_PATIENCE_MS, out);
}

/* `@copy SRC DST`: BF.SCANDUMP from 0 on and BF.LOADCHUNK of every chunk, until the iterator is 0 or a reply is no
 * chunk. A chunk of more than LONG_BULK bytes is kept as its length, as in the recordings. */
static void copy_filter(struct wire *wire, const char *text, const char *mark, struct lines *out)
{
    struct word names[2];
    size_t n, mark_len = strlen(mark);
    char *bytes, iterator[32] = ":0";

    cr_assert(corpus_split(text, names, 2, &n, &bytes) && n == 2, "@copy %s", text);
    for (int chunk = 0; chunk < 1000; chunk++) {
        size_t start = out->count;
        enum wire_status status = ask_chunk(wire, "BF.SCANDUMP", names[0], iterator, NULL, mark, out);
        struct word data;
        char *line;

        if (status != WIRE_OK || out->count != start + 4)
            break;
        snprintf(iterator, sizeof(iterator), "%s", out->items[start + 1] + mark_len);
        if (strcmp(iterator, ":0") == 0)
            break;
        line = strdup(out->items[start + 3] + mark_len);
        cr_assert_not_null(line);
        data = (struct word){line, unescape(line)};
        if (data.len > LONG_BULK)
            sprintf(out->items[start + 3], "%s@bytes len %zu", mark, data.len);
        status = ask_chunk(wire, "BF.LOADCHUNK", names[1], iterator, &data, mark, out);
        free(line);
        if (status != WIRE_OK)
            break;
    }
    free(bytes);
}

/* `@raw N "bytes"` and `@inline N text`, from after the directive. */
static void play_bytes(struct player *player, const char *rest, bool is_raw, const char *mark,
                       const struct lines *recorded, struct lines *out)
{
    struct wire *wire = current(player);
    size_t n = rest[0] == '*' ? 0 : strtoul(rest, NULL, 10);
    const char *space = strchr(rest, ' '), *text = space == NULL ? "" : space + 1;

    if (is_raw) {
        struct word word;
        size_t words;
        char *bytes;

        cr_assert(corpus_split(text, &word, 1, &words, &bytes) && words == 1, "@raw %s", rest);
        wire_send(wire, word.ptr, word.len);
        free(bytes);
    } else {
        wire_send_text(wire, text);
        wire_send_text(wire, "\r\n");
    }
    take(player, n, mark, recorded, out);
}

static void play_case(struct player *player, const struct corpus_case *the_case, struct lines *out)
{
    const char *body = the_case->command, *mark = "< ", *rest;

    if ((rest = corpus_behind(body, "@nd ")) != NULL) {
        mark = "<~ ";
        body = rest;
    } else if ((rest = corpus_behind(body, "@srv ")) != NULL) {
        mark = "<^ ";
        body = rest;
    }
    if ((rest = corpus_behind(body, "@conn ")) != NULL) {
        switch_connection(player, rest);
    } else if (strcmp(body, "@new") == 0 || strcmp(body, "@new raw") == 0) {
        renew_connection(player, body[4] != '\0');
    } else if ((rest = corpus_behind(body, "@sleep ")) != NULL) {
        poll(NULL, 0, (int)(strtod(rest, NULL) * 1000));
    } else if ((rest = corpus_behind(body, "@raw ")) != NULL) {
        play_bytes(player, rest, true, mark, &the_case->reply, out);
    } else if ((rest = corpus_behind(body, "@inline ")) != NULL) {
        play_bytes(player, rest, false, mark, &the_case->reply, out);
    } else if ((rest = corpus_behind(body, "@range ")) != NULL) {
        send_range(current(player), rest);
        take(player, 1, mark, &the_case->reply, out);
    } else if ((rest = corpus_behind(body, "@each ")) != NULL) {
        corpus_each(current(player), rest, mark, out);
    } else if ((rest = corpus_behind(body, "@copy ")) != NULL) {
        copy_filter(current(player), rest, mark, out);
    } else {
        cr_assert_neq(body[0], '@', "a directive that is not known: %s", body);
        send_words(current(player), body);
        take(player, 1, mark, &the_case->reply, out);
    }
}

/* ---- the whole ---- */

static void print_lines(char sign, const struct lines *lines)
{
    for (size_t i = 0; i < lines->count && i < 12; i++)
        fprintf(stderr, "  %c%.160s\n", sign, lines->items[i]);
    if (lines->count > 12)
        fprintf(stderr, "  %c(%zu lines more)\n", sign, lines->count - 12);
}

/* After a difference in the number of replies: takes the remaining ones, so that the next case gets its own. Only
 * raw bytes can have more replies than one. */
static void drain(struct player *player, const char *command)
{
    struct wire *wire = &player->connections[player->current].wire;
    struct lines lines = {NULL, 0, 0};

    settle(player);
    while (strstr(command, "@raw ") == command && wire->fd >= 0) {
        enum wire_status status = wire_reply(wire, SILENCE_MS, &lines);

        if (status == WIRE_CLOSED)
            wire_close(wire);
        if (status != WIRE_OK)
            break;
    }
    lines_deinit(&lines);
}

static bool starts_save(const char *command)
{
    return strncmp(command, "BGSAVE", 6) == 0 || strncmp(command, "BGREWRITEAOF", 12) == 0;
}

static void wait_for_line(int port, const char *section, const char *line)
{
    struct wire wire;

    wire_open(&wire, port);
    wait_until(strstr(wire_ask(&wire, section), line));
    wire_close(&wire);
}

/* A recording continues as if background work were done: deleted filters are freed by a separate thread, which
 * matters under a memory limit; a save on a busy disk outlasts the recorded pause after it. */
static void wait_for_background(int port, const char *command)
{
    if (strncmp(command, "DEL ", 4) == 0)
        wait_for_line(port, "INFO memory", "lazyfree_pending_objects:0");
    else if (starts_save(command))
        wait_for_line(port, "INFO persistence", "rdb_bgsave_in_progress:0");
}

struct corpus_result corpus_play(const struct corpus *corpus, int port, const char *path, int resp,
                                 struct compat *compat)
{
    struct player player = {.port = port, .path = path, .resp = resp};
    struct corpus_result result = {0, 0, 0};
    struct wire wire;

    wire_open(&wire, port);
    cr_assert_str_eq(wire_ask(&wire, "FLUSHALL"), "+OK");
    wire_close(&wire);
    open_probes(&player);
    switch_connection(&player, "0");
    for (size_t i = 0; i < corpus->count; i++) {
        const struct corpus_case *the_case = &corpus->cases[i];
        struct lines got = {NULL, 0, 0};

        struct compat_row *row = compat_find(compat, the_case->command);

        player.patient = row == NULL;
        /* The recorded pause after a save: the end of the save has already been awaited here. */
        if (i == 0 || !starts_save(the_case[-1].command) || !corpus_behind(the_case->command, "@sleep "))
            play_case(&player, the_case, &got);
        result.cases++;
        wait_for_background(port, the_case->command);
        if (corpus_same(&the_case->reply, &got) || corpus_is_later(the_case->command, &the_case->reply, &got)) {
            lines_deinit(&got);
            continue;
        }
        drain(&player, the_case->command);
        if (corpus_is_meant(row, &the_case->reply, &got)) {
            row->used = true;
            result.meant++;
        } else {
            result.differs++;
            fprintf(stderr, "> %s    (RESP%d, case %zu)\n", the_case->command, resp, i + 1);
            print_lines('-', &the_case->reply);
            print_lines('+', &got);
        }
        lines_deinit(&got);
    }
    for (size_t i = 0; i < player.nconnections; i++)
        wire_close(&player.connections[i].wire);
    for (size_t i = 0; i < PROBES; i++)
        wire_close(&player.probes[i]);
    return result;
}

/* ---- a topic ---- */

void corpus_result_add(struct corpus_result *sum, struct corpus_result result)
{
    sum->cases += result.cases;
    sum->meant += result.meant;
    sum->differs += result.differs;
}

void corpus_judge(const char *topic, const struct corpus_result *sum, const struct compat *compat, size_t n,
                  const char *document)
{
    size_t unused = 0;

    for (size_t i = n; i < compat->count; i++) {
        const struct compat_row *row = &compat->rows[i];
        if (row->used)
            continue;
        fprintf(stderr, "%s:%u: `%s%s` explains no difference in %s\n", document, row->line, row->command,
                row->prefix ? "*" : "", topic);
        unused++;
    }
    fprintf(stderr, "%s: %zu cases, %zu meant differences, %zu others\n", topic, sum->cases, sum->meant, sum->differs);
    cr_assert_eq(sum->differs, 0, "%zu replies differ from the recording", sum->differs);
    cr_assert_eq(unused, 0, "%zu rows of the table are out of date", unused);
    cr_assert_geq(sum->cases, 20);
}
