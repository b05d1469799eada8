/* Commands that go through the names: SCAN, KEYS, RANDOMKEY.
 *
 * Threads of the pool do the long work, and yield after some milliseconds: SCAN returns its names so far, as it may at
 * any time, and KEYS continues in another turn. So neither keeps a SAVE or a SHUTDOWN from its thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "all_names.h"
#include "bf_host.h"
#include "clock.h"
#include "command.h"
#include "cuckoo_dump.h"
#include "glob_match.h"
#include "handlers.h"
#include "server.h"
#include "valkey_format.h"
#include "registry_key.h"

#define SCAN_INLINE_COUNT 100  /* up to this many names are collected on the loop */
#define SCAN_MAX_COUNT    4096 /* names checked by one SCAN at most, for any COUNT */
#define STEP_NAMES        64   /* checked between two readings of the clock */
#define PREFIX_NAMES      1000 /* if no more names have the pattern's beginning, one SCAN checks all of them */
#define TURN_MS           5
#define SWEEP_COUNT       4096 /* RANDOMKEY goes through all names on the loop if they are no more */
#define SWEEP_STEP        256  /* names among which it draws otherwise */

/* A compiled pattern takes 10 kB, and its time for each name grows with its length: very long ones are refused. */
static bool pattern_fits(struct command_ctx *ctx, struct slice pattern)
{
    if (pattern.len <= GLOB_COMPILED_MAX)
        return true;
    return reply_errorf(ctx->reply, "ERR the pattern has %zu bytes; at most %d are allowed", pattern.len,
                        GLOB_COMPILED_MAX);
}

/* The literal beginning of a pattern, which all of its matches have. */
struct beginning {
    char text[GLOB_COMPILED_MAX];
    size_t len;
    bool whole; /* it is the only match */
};

static void beginning_of(struct beginning *beginning, struct slice pattern)
{
    beginning->whole = glob_prefix(pattern, beginning->text, &beginning->len).len == 0;
}

/* Visits at most `max` names with this beginning, those after `after`. Their number; fewer than `max`: no more. */
static size_t walk_names(const struct server *server, unsigned database, const struct beginning *beginning,
                         const struct slice *after, size_t max,
                         void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx)
{
    char space[GLOB_COMPILED_MAX + DATABASE_PREFIX];
    struct slice prefix = key_write(space, database, (struct slice){beginning->text, beginning->len});
    if (beginning->whole) { /* of all names with this beginning, it is the first */
        all_names_walk(server->registry, server->sstables, prefix, NULL, 1, visit, ctx);
        return 0;
    }
    return all_names_walk(server->registry, server->sstables, prefix, after, max, visit, ctx);
}

struct name_list {
    struct reply *reply;
    const struct glob *glob; /* NULL: all match */
    size_t found;
    struct slice last; /* the key that was checked last */
    const char *type;  /* of a SCAN, as in its options */
};

static void list_name(void *ctx, struct slice key, struct entry *entry)
{
    struct name_list *list = ctx;
    struct slice name = key_name(key);
    list->last = key;
    if (!entry) /* it has expired */
        return;
    if (list->type && strcmp(list->type, bf_type_name(entry)) != 0)
        return;
    if (list->glob && !glob_test(list->glob, name))
        return;
    reply_bulk(list->reply, name.ptr, name.len);
    list->found++;
}

/* ---- SCAN ---- */

struct scan_options {
    uint64_t cursor;
    struct slice pattern; /* {"*", 1} unless MATCH was given */
    int64_t count;
    struct beginning beginning;
    const char *type; /* one of bf_type_name(), or "" for another one; NULL: any */
};

/* Not the word itself, which is gone when the job runs. */
static const char *type_of(struct slice word)
{
    static const char *const types[] = {FILTER_TYPE_NAME, CUCKOO_TYPE_NAME, VALKEY_TYPE_NAME};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (slice_is(word, types[i]))
            return types[i];
    return "";
}

static bool scan_count(struct command_ctx *ctx, struct slice value, int64_t *count_out)
{
    if (!slice_to_int64(value, count_out))
        return reply_error(ctx->reply, "ERR value is not an integer or out of range");
    if (*count_out < 1)
        return reply_error(ctx->reply, "ERR syntax error");
    return true;
}

static bool scan_options(struct command_ctx *ctx, struct scan_options *options)
{
    for (size_t i = 2; i < command_argc(ctx); i += 2) {
        struct slice word = command_arg(ctx, i);
        if (i + 1 == command_argc(ctx))
            return reply_error(ctx->reply, "ERR syntax error");
        struct slice value = command_arg(ctx, i + 1);
        if (slice_is(word, "MATCH")) {
            if (!pattern_fits(ctx, value))
                return false;
            options->pattern = value;
        } else if (slice_is(word, "TYPE")) {
            options->type = type_of(value);
        } else if (slice_is(word, "COUNT")) {
            if (!scan_count(ctx, value, &options->count))
                return false;
        } else {
            return reply_error(ctx->reply, "ERR syntax error");
        }
    }
    return true;
}

/* Collects names until `count` have been checked or the turn is over. */
static uint64_t scan_names(struct server *server, unsigned database, const struct scan_options *options,
                           struct name_list *list)
{
    int64_t end = clock_ms() + TURN_MS;
    uint64_t cursor = options->cursor;
    size_t left = options->count < SCAN_MAX_COUNT ? (size_t)options->count : SCAN_MAX_COUNT;
    for (;;) {
        size_t step = left < STEP_NAMES ? left : STEP_NAMES;
        cursor = all_names_scan(server->registry, server->sstables, database, cursor, step, list_name, list);
        left -= step;
        if (cursor == 0 || left == 0 || clock_ms() >= end)
            return cursor;
    }
}

/* A first SCAN, if few names share the beginning of its pattern. False: too many do, and none is in the list. */
static bool scan_beginning(struct server *server, unsigned database, const struct scan_options *options,
                           struct name_list *list)
{
    if (options->cursor != 0 || options->beginning.len == 0)
        return false;
    size_t most = options->count > PREFIX_NAMES ? (size_t)options->count : PREFIX_NAMES;
    if (most > SCAN_MAX_COUNT)
        most = SCAN_MAX_COUNT;
    if (walk_names(server, database, &options->beginning, NULL, most, list_name, list) < most)
        return true;
    buf_truncate(list->reply->buf, 0);
    list->found = 0;
    return false;
}

/* The names come before the cursor is known, and a reply is written in order: so they go to a buffer. */
static void scan(struct server *server, unsigned database, struct reply *reply, const struct scan_options *options,
                 const struct glob *glob)
{
    struct buf names;
    buf_init(&names, reply->buf->cap);
    struct reply list_reply = {.buf = &names, .version = reply->version};
    struct name_list list = {.reply = &list_reply, .glob = glob, .type = options->type};
    uint64_t next = 0;
    if (!scan_beginning(server, database, options, &list))
        next = scan_names(server, database, options, &list);
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
    struct scan_options options; /* only its pattern is missing */
    struct glob glob;
};

static void scan_job(struct command_job *job)
{
    const struct scan_job *data = job->data;
    scan(job->server, job->database, &job->reply, &data->options, &data->glob);
}

/* Many names, or a pattern to match with each, are not for a loop. */
static void defer_scan(struct command_ctx *ctx, const struct scan_options *options)
{
    struct scan_job *data = malloc(sizeof(*data));
    if (!data) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    data->options = *options;
    beginning_of(&data->options.beginning, options->pattern);
    glob_compile(&data->glob, options->pattern, false);
    command_defer(ctx, scan_job, data);
}

void cmd_scan(struct command_ctx *ctx)
{
    struct scan_options options = {.pattern = {"*", 1}, .count = 10};
    /* Any number of 64 bits is a cursor; one that no SCAN has returned is a place, too. */
    if (!slice_to_digits(command_arg(ctx, 1), 10, &options.cursor)) {
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
    struct beginning beginning;
    struct buf after; /* between two turns: the key that was checked last */
    struct glob glob;
};

static void discard_keys(void *data)
{
    struct keys_job *keys = data;
    buf_deinit(&keys->after);
    free(keys);
}

/* In the order of the names. Returns whether there may be more. */
static bool list_turn(struct command_job *job, struct keys_job *keys, struct name_list *list)
{
    int64_t end = clock_ms() + TURN_MS;
    struct slice after = {buf_head(&keys->after), buf_len(&keys->after)};
    bool first = !keys->begun, more;
    keys->begun = true;
    do {
        more = walk_names(job->server, job->database, &keys->beginning, first ? NULL : &after, STEP_NAMES, list_name,
                          list) == STEP_NAMES;
        first = false;
        after = list->last;
    } while (more && !buf_failed(job->reply.buf) && clock_ms() < end);
    return more && !buf_failed(job->reply.buf);
}

static void keys_job(struct command_job *job)
{
    struct keys_job *keys = job->data;
    if (!keys->begun) {
        job->discard = discard_keys;
        keys->token = reply_array_begin(&job->reply);
    }
    struct name_list list = {.reply = &job->reply, .glob = &keys->glob, .found = keys->found};
    job->again = list_turn(job, keys, &list);
    keys->found = list.found;
    if (!job->again) {
        reply_array_end(&job->reply, keys->token, keys->found);
        return;
    }
    buf_truncate(&keys->after, 0); /* the name may be gone in the next turn */
    buf_append(&keys->after, list.last.ptr, list.last.len);
    if (buf_failed(&keys->after)) {
        job->again = false;
        job->reply.buf->failed = true;
    }
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
    buf_init(&keys->after, SIZE_MAX);
    beginning_of(&keys->beginning, pattern);
    glob_compile(&keys->glob, pattern, false);
    command_defer(ctx, keys_job, keys);
}

/* ---- RANDOMKEY ---- */

/* Keeps one of the names met so far, each as likely as any other. */
struct lottery {
    uint64_t random, met;
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
static void random_of_all(struct server *server, unsigned database, struct reply *reply, uint64_t random)
{
    struct lottery lottery = {.random = random};
    uint64_t cursor = 0;
    do
        cursor = all_names_scan(server->registry, server->sstables, database, cursor, SWEEP_COUNT, draw, &lottery);
    while (cursor);
    if (lottery.met)
        reply_name(reply, lottery.kept);
    else
        reply_null(reply);
}

static void random_job(struct command_job *job)
{
    random_of_all(job->server, job->database, &job->reply, *(uint64_t *)job->data);
}

/* Among many names, one of a part that begins anywhere in the order of the hashes. */
void cmd_randomkey(struct command_ctx *ctx)
{
    struct lottery lottery = {0};
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        random = (uint64_t)clock_ms();
    const struct registry *registry = ctx->server->registry;
    const struct sstables *sstables = ctx->server->sstables;
    size_t all = all_names_count(registry, sstables, ctx->database);
    if (all <= SWEEP_COUNT) {
        random_of_all(ctx->server, ctx->database, ctx->reply, random);
        return;
    }
    lottery.random = random;
    uint64_t base = random % all < registry_database_count(registry, ctx->database) ? 0 : ALL_NAMES_OTHERS;
    uint64_t end = all_names_scan(registry, sstables, ctx->database, base + (random >> 16), SWEEP_STEP, draw, &lottery);
    if (end == 0 || end == ALL_NAMES_OTHERS) /* the order goes on at its beginning */
        (void)all_names_scan(registry, sstables, ctx->database, base, SWEEP_STEP, draw, &lottery);
    if (lottery.met)
        reply_name(ctx->reply, lottery.kept);
    else /* nearly all have expired and are being removed */
        command_defer_copy(ctx, random_job, &random, sizeof(random));
}
