/* Commands on names: what Redis has for keys of any type. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "command.h"
#include "glob.h"
#include "handlers.h"
#include "server.h"

#define TYPE_NAME "MBbloom--" /* RedisBloom's name for its type */

/* The keys given as arguments from 1 on, for commands that count something over them. */
static void count_keys(struct command_ctx *ctx, bool (*counts)(struct command_ctx *ctx, struct slice name))
{
    size_t first, names = command_slice(ctx, command_argc(ctx) - 1, &first);
    int64_t n = ctx->slice ? ctx->slice->count : 0;
    for (size_t i = 0; i < names; i++)
        n += counts(ctx, command_arg(ctx, 1 + first + i));
    if (ctx->later)
        ctx->slice->count = n;
    else
        reply_integer(ctx->reply, n);
}

static bool is_there(struct command_ctx *ctx, struct slice name)
{
    return registry_lookup(ctx->server->registry, name) != NULL;
}

static bool delete_one(struct command_ctx *ctx, struct slice name)
{
    return registry_delete(ctx->server->registry, name) == REGISTRY_OK;
}

void cmd_exists(struct command_ctx *ctx)
{
    count_keys(ctx, is_there);
}

void cmd_touch(struct command_ctx *ctx)
{
    count_keys(ctx, is_there);
}

/* DEL and UNLINK are the same: the memory is given back by the reclaimer's thread in any case. */
void cmd_del(struct command_ctx *ctx)
{
    count_keys(ctx, delete_one);
}

void cmd_unlink(struct command_ctx *ctx)
{
    count_keys(ctx, delete_one);
}

void cmd_type(struct command_ctx *ctx)
{
    reply_status(ctx->reply, is_there(ctx, command_arg(ctx, 1)) ? TYPE_NAME : "none");
}

void cmd_dbsize(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, (int64_t)registry_count(ctx->server->registry));
}

/* ---- RENAME ---------------------------------------------------------------------------------------------------------- */

static int rename_key(struct command_ctx *ctx, bool only_new)
{
    struct errbuf err = {""};
    struct entry *entry = registry_lookup(ctx->server->registry, command_arg(ctx, 1));
    int status = REGISTRY_NOT_FOUND;
    if (entry && entry_quarantine_reason(entry)) {
        errbuf_set(&err, "the filter could not be loaded and is quarantined: %s", entry_quarantine_reason(entry));
        status = REGISTRY_REFUSED;
    } else if (entry) {
        status = registry_rename(ctx->server->registry, command_arg(ctx, 1), command_arg(ctx, 2), only_new, &err);
    }
    if (status == REGISTRY_NOT_FOUND)
        reply_error(ctx->reply, "ERR no such key");
    else if (status == REGISTRY_REFUSED)
        reply_errorf(ctx->reply, "ERR %s", err.text);
    else if (status == -ENOMEM)
        reply_error(ctx->reply, "ERR out of memory");
    return status;
}

void cmd_rename(struct command_ctx *ctx)
{
    if (rename_key(ctx, false) == REGISTRY_OK)
        reply_status(ctx->reply, "OK");
}

void cmd_renamenx(struct command_ctx *ctx)
{
    int status = rename_key(ctx, true);
    if (status == REGISTRY_OK || status == REGISTRY_EXISTS)
        reply_integer(ctx->reply, status == REGISTRY_OK);
}

/* ---- SCAN, KEYS, RANDOMKEY ------------------------------------------------------------------------------------------- */

#define SCAN_INLINE_COUNT 100  /* up to so many names are collected on the loop */
#define SCAN_MAX_COUNT    4096 /* names looked at by one SCAN at most, however large its COUNT */
#define KEYS_STEP         512  /* names KEYS looks at before it lets removed filters be freed */
#define KEY_MAX_PATTERN   256

struct name_list {
    struct reply *reply;
    struct slice pattern;
    size_t found;
};

static void list_name(void *ctx, struct slice name, struct entry *entry)
{
    struct name_list *list = ctx;
    (void)entry;
    if (!glob_match(list->pattern, name, false))
        return;
    reply_bulk(list->reply, name.ptr, name.len);
    list->found++;
}

struct scan_options {
    uint64_t cursor;
    struct slice pattern; /* {"*", 1} unless MATCH was given */
    int64_t count;
    bool no_match;        /* a TYPE that is not ours */
};

/* A pattern costs its length times the name's at worst: short ones only. */
static bool pattern_fits(struct command_ctx *ctx, struct slice pattern)
{
    if (pattern.len <= KEY_MAX_PATTERN)
        return true;
    reply_errorf(ctx->reply, "ERR the pattern has %zu bytes; at most %d are allowed", pattern.len, KEY_MAX_PATTERN);
    return false;
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
            options->no_match = !slice_is(value, TYPE_NAME);
        } else if (slice_is(word, "COUNT")) {
            if (!slice_to_int64(value, &options->count)) {
                reply_error(ctx->reply, "ERR value is not an integer or out of range");
                return false;
            }
            if (options->count < 1) {
                reply_error(ctx->reply, "ERR syntax error");
                return false;
            }
        } else {
            reply_error(ctx->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

static void skip_name(void *ctx, struct slice name, struct entry *entry)
{
    (void)ctx, (void)name, (void)entry;
}

/* The names come before the cursor is known, and a reply is written front to back: so they go to a buffer of their own. */
static void scan(struct server *server, struct reply *reply, const struct scan_options *options)
{
    struct buf names;
    buf_init(&names, reply->buf->cap);
    struct reply list_reply = {.buf = &names, .version = reply->version};
    struct name_list list = {.reply = &list_reply, .pattern = options->pattern};
    size_t count = options->count < SCAN_MAX_COUNT ? (size_t)options->count : SCAN_MAX_COUNT;
    uint64_t next =
        registry_scan(server->registry, options->cursor, count, options->no_match ? skip_name : list_name, &list);
    char text[24];
    int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)next);
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
    struct scan_options options; /* its pattern points behind it */
    char pattern[];
};

static void run_scan_job(struct command_job *job)
{
    const struct scan_job *scan_job = job->data;
    scan(job->server, &job->reply, &scan_job->options);
}

void cmd_scan(struct command_ctx *ctx)
{
    struct scan_options options = {.pattern = {"*", 1}, .count = 10};
    int64_t cursor;
    if (!slice_to_int64(command_arg(ctx, 1), &cursor) || cursor < 0) {
        reply_error(ctx->reply, "ERR invalid cursor");
        return;
    }
    options.cursor = (uint64_t)cursor;
    if (!scan_options(ctx, &options))
        return;
    if (options.count <= SCAN_INLINE_COUNT && slice_is(options.pattern, "*")) {
        scan(ctx->server, ctx->reply, &options);
        return;
    }
    /* Many names, or a pattern to hold against each, are not for a loop. */
    struct scan_job *job = malloc(sizeof(*job) + options.pattern.len);
    if (!job) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    job->options = options;
    memcpy(job->pattern, options.pattern.ptr, options.pattern.len);
    job->options.pattern.ptr = job->pattern;
    command_defer(ctx, run_scan_job, job);
}

struct pattern {
    size_t len;
    char bytes[];
};

static void keys_job(struct command_job *job)
{
    const struct pattern *pattern = job->data;
    struct name_list list = {.reply = &job->reply, .pattern = {pattern->bytes, pattern->len}};
    size_t token = reply_array_begin(&job->reply);
    uint64_t cursor = 0;
    do {
        cursor = registry_scan(job->server->registry, cursor, KEYS_STEP, list_name, &list);
        rcu_reader_offline();
        rcu_reader_online();
    } while (cursor && !buf_failed(job->reply.buf));
    reply_array_end(&job->reply, token, list.found);
}

void cmd_keys(struct command_ctx *ctx)
{
    struct slice arg = command_arg(ctx, 1);
    if (!pattern_fits(ctx, arg))
        return;
    struct pattern *pattern = malloc(sizeof(*pattern) + arg.len);
    if (!pattern) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    pattern->len = arg.len;
    memcpy(pattern->bytes, arg.ptr, arg.len);
    command_defer(ctx, keys_job, pattern);
}

static void take_name(void *ctx, struct slice name, struct entry *entry)
{
    struct slice *first = ctx;
    (void)entry;
    if (!first->ptr)
        *first = name;
}

void cmd_randomkey(struct command_ctx *ctx)
{
    uint64_t start = 0;
    struct slice name = {NULL, 0};
    if (getrandom(&start, sizeof(start), 0) != (ssize_t)sizeof(start))
        start = 0;
    registry_scan(ctx->server->registry, start >> 16, 1, take_name, &name);
    if (!name.ptr)
        registry_scan(ctx->server->registry, 0, 1, take_name, &name);
    if (name.ptr)
        reply_bulk(ctx->reply, name.ptr, name.len);
    else
        reply_null(ctx->reply);
}

/* ---- FLUSHALL, FLUSHDB ----------------------------------------------------------------------------------------------- */

static void flush_job(struct command_job *job)
{
    size_t removed;
    if (registry_clear(job->server->registry, &removed) != 0) {
        reply_error(&job->reply, "ERR out of memory");
        return;
    }
    reply_status(&job->reply, "OK");
}

static void flush(struct command_ctx *ctx)
{
    struct slice mode = command_argc(ctx) > 1 ? command_arg(ctx, 1) : (struct slice){"SYNC", 4};
    if (command_argc(ctx) > 2 || (!slice_is(mode, "SYNC") && !slice_is(mode, "ASYNC"))) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    command_defer(ctx, flush_job, NULL);
}

void cmd_flushall(struct command_ctx *ctx)
{
    flush(ctx);
}

void cmd_flushdb(struct command_ctx *ctx)
{
    flush(ctx);
}
