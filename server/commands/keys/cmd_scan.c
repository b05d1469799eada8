/* Commands that go through the names: SCAN, KEYS, RANDOMKEY.
 *
 * Threads of the pool do what may take long, and give way after some milliseconds: SCAN by returning what it has so
 * far, as it may at any time, KEYS by going on in another turn. So neither keeps a SAVE or a SHUTDOWN from its thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "command.h"
#include "glob.h"
#include "handlers.h"
#include "registry_databases.h"
#include "server.h"
#include "sstables.h"

#define SCAN_INLINE_COUNT 100  /* up to so many names are collected on the loop */
#define SCAN_MAX_COUNT    4096 /* names looked at by one SCAN at most, however large its COUNT */
#define STEP_NAMES        64   /* looked at between two looks at the clock */
#define TURN_MS           5
#define SWEEP_COUNT       4096 /* RANDOMKEY goes through all names on the loop if they are no more */

static struct registry *registry_of(struct command_ctx *ctx)
{
    return ctx->server->registry;
}

/* Compiled, a pattern takes 10 kB and a name a time that grows with its length: longer ones than anybody needs are
 * refused. */
static bool pattern_fits(struct command_ctx *ctx, struct slice pattern)
{
    if (pattern.len <= GLOB_COMPILED_MAX)
        return true;
    reply_errorf(ctx->reply, "ERR the pattern has %zu bytes; at most %d are allowed", pattern.len, GLOB_COMPILED_MAX);
    return false;
}

struct name_list {
    struct reply *reply;
    const struct glob *glob; /* NULL: all match */
    size_t found;
};

static void list_name(void *ctx, struct slice key, struct entry *entry)
{
    struct name_list *list = ctx;
    struct slice name = key_name(key);
    (void)entry;
    if (list->glob && !glob_test(list->glob, name))
        return;
    reply_bulk(list->reply, name.ptr, name.len);
    list->found++;
}

static void skip_name(void *ctx, struct slice name, struct entry *entry)
{
    (void)ctx, (void)name, (void)entry;
}

/* ---- SCAN ---- */

struct scan_options {
    uint64_t cursor;
    struct slice pattern; /* {"*", 1} unless MATCH was given */
    int64_t count;
    bool no_match; /* a TYPE that is not ours */
};

static bool scan_count(struct command_ctx *ctx, struct slice value, int64_t *count_out)
{
    if (!slice_to_int64(value, count_out)) {
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
        return false;
    }
    if (*count_out < 1) {
        reply_error(ctx->reply, "ERR syntax error");
        return false;
    }
    return true;
}

static bool scan_options(struct command_ctx *ctx, struct scan_options *options)
{
    for (size_t i = 2; i < command_argc(ctx); i += 2) {
        struct slice word = command_arg(ctx, i);
        if (i + 1 == command_argc(ctx)) {
            reply_error(ctx->reply, "ERR syntax error");
            return false;
        }
        struct slice value = command_arg(ctx, i + 1);
        if (slice_is(word, "MATCH")) {
            if (!pattern_fits(ctx, value))
                return false;
            options->pattern = value;
        } else if (slice_is(word, "TYPE")) {
            options->no_match = !slice_is(value, FILTER_TYPE_NAME);
        } else if (slice_is(word, "COUNT")) {
            if (!scan_count(ctx, value, &options->count))
                return false;
        } else {
            reply_error(ctx->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

/* SSTables' filters come behind the others: their cursors begin here. */
#define SSTABLES_CURSOR (UINT64_C(1) << 48)

/* registry_database_scan() over both registries. */
static uint64_t scan_both(const struct server *server, unsigned database, uint64_t cursor, size_t count,
                          void (*visit)(void *ctx, struct slice name, struct entry *entry), void *ctx)
{
    bool has_sstables = server->sstables && database == 0;
    if (cursor < SSTABLES_CURSOR) {
        uint64_t next = registry_database_scan(server->registry, database, cursor, count, visit, ctx);
        return next == 0 && has_sstables ? SSTABLES_CURSOR : next;
    }
    if (!has_sstables || cursor >= 2 * SSTABLES_CURSOR)
        return 0;
    uint64_t next = registry_scan(sstables_registry(server->sstables), cursor - SSTABLES_CURSOR, count, visit, ctx);
    return next ? SSTABLES_CURSOR + next : 0;
}

/* Collects names until `count` have been looked at or the turn is over. */
static uint64_t scan_names(struct server *server, unsigned database, const struct scan_options *options,
                           struct name_list *list)
{
    int64_t end = clock_ms() + TURN_MS;
    uint64_t cursor = options->cursor;
    size_t left = options->count < SCAN_MAX_COUNT ? (size_t)options->count : SCAN_MAX_COUNT;
    for (;;) {
        size_t step = left < STEP_NAMES ? left : STEP_NAMES;
        cursor = scan_both(server, database, cursor, step, options->no_match ? skip_name : list_name, list);
        left -= step;
        if (cursor == 0 || left == 0 || clock_ms() >= end)
            return cursor;
    }
}

/* The names come before the cursor is known, and a reply is written front to back: so they go to a buffer of their own.
 */
static void scan(struct server *server, unsigned database, struct reply *reply, const struct scan_options *options,
                 const struct glob *glob)
{
    struct buf names;
    buf_init(&names, reply->buf->cap);
    struct reply list_reply = {.buf = &names, .version = reply->version};
    struct name_list list = {.reply = &list_reply, .glob = glob};
    uint64_t next = scan_names(server, database, options, &list);
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRIu64, next);
    reply_array(reply, 2);
    reply_bulk(reply, text, (size_t)len);
    reply_array(reply, list.found);
    if (buf_failed(&names))
        reply->buf->failed = true;
    else
        buf_append(reply->buf, buf_head(&names), buf_len(&names));
    buf_deinit(&names);
}

struct scan_job {
    struct scan_options options; /* its pattern is not there any more */
    struct glob glob;
};

static void scan_job(struct command_job *job)
{
    const struct scan_job *data = job->data;
    scan(job->server, job->database, &job->reply, &data->options, &data->glob);
}

/* Many names, or a pattern to hold against each, are not for a loop. */
static void defer_scan(struct command_ctx *ctx, const struct scan_options *options)
{
    struct scan_job *data = malloc(sizeof(*data));
    if (!data) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    data->options = *options;
    glob_compile(&data->glob, options->pattern, false);
    command_defer(ctx, scan_job, data);
}

/* Any number of 64 bits is a cursor; one that has not come from here is a place as well. */
static bool read_cursor(struct slice text, uint64_t *cursor_out)
{
    uint64_t value = 0;
    if (text.len == 0)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = (unsigned char)text.ptr[i] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *cursor_out = value;
    return true;
}

void cmd_scan(struct command_ctx *ctx)
{
    struct scan_options options = {.pattern = {"*", 1}, .count = 10};
    if (!read_cursor(command_arg(ctx, 1), &options.cursor)) {
        reply_error(ctx->reply, "ERR invalid cursor");
        return;
    }
    if (!scan_options(ctx, &options))
        return;
    if (options.count <= SCAN_INLINE_COUNT && slice_is(options.pattern, "*"))
        scan(ctx->server, ctx->database, ctx->reply, &options, NULL);
    else
        defer_scan(ctx, &options);
}

/* ---- KEYS ---- */

struct keys_job {
    bool begun;
    size_t token; /* of the array in the reply */
    size_t found;
    uint64_t cursor;
    struct glob glob;
};

static void keys_job(struct command_job *job)
{
    struct keys_job *keys = job->data;
    int64_t end = clock_ms() + TURN_MS;
    if (!keys->begun)
        keys->token = reply_array_begin(&job->reply);
    keys->begun = true;
    struct name_list list = {.reply = &job->reply, .glob = &keys->glob, .found = keys->found};
    do
        keys->cursor = scan_both(job->server, job->database, keys->cursor, STEP_NAMES, list_name, &list);
    while (keys->cursor && !buf_failed(job->reply.buf) && clock_ms() < end);
    keys->found = list.found;
    job->again = keys->cursor && !buf_failed(job->reply.buf);
    if (!job->again)
        reply_array_end(&job->reply, keys->token, keys->found);
}

void cmd_keys(struct command_ctx *ctx)
{
    struct slice pattern = command_arg(ctx, 1);
    if (!pattern_fits(ctx, pattern))
        return;
    struct keys_job *keys = calloc(1, sizeof(*keys));
    if (!keys) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    glob_compile(&keys->glob, pattern, false);
    command_defer(ctx, keys_job, keys);
}

/* ---- RANDOMKEY ---- */

/* Keeps one of the names met so far, each as likely as any other. */
struct lottery {
    uint64_t random;
    uint64_t met;
    struct slice kept; /* ptr NULL: none */
};

static void draw(void *ctx, struct slice name, struct entry *entry)
{
    struct lottery *lottery = ctx;
    (void)entry;
    lottery->random = lottery->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    if ((lottery->random >> 32) * ++lottery->met >> 32 == 0) /* for one in `met` */
        lottery->kept = name;
}

static void reply_name(struct reply *reply, struct slice key)
{
    struct slice name = key_name(key);
    reply_bulk(reply, name.ptr, name.len);
}

/* The names stay valid: this thread does not go offline meanwhile. */
static void random_by_sweep(struct server *server, unsigned database, struct reply *reply, uint64_t random)
{
    struct lottery lottery = {.random = random};
    uint64_t cursor = 0;
    do
        cursor = registry_database_scan(server->registry, database, cursor, SWEEP_COUNT, draw, &lottery);
    while (cursor);
    if (lottery.met)
        reply_name(reply, lottery.kept);
    else
        reply_null(reply);
}

static void random_job(struct command_job *job)
{
    random_by_sweep(job->server, job->database, &job->reply, *(uint64_t *)job->data);
}

void cmd_randomkey(struct command_ctx *ctx)
{
    uint64_t random = 0;
    struct slice key;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        random = (uint64_t)clock_ms();
    if (registry_database_random(registry_of(ctx), ctx->database, &random, &key)) {
        reply_name(ctx->reply, key);
        return;
    }
    if (registry_database_count(registry_of(ctx), ctx->database) <= SWEEP_COUNT) {
        random_by_sweep(ctx->server, ctx->database, ctx->reply, random);
        return;
    }
    /* Nearly all have expired and are being removed. */
    uint64_t *seed = malloc(sizeof(*seed));
    if (!seed) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    *seed = random;
    command_defer(ctx, random_job, seed);
}
