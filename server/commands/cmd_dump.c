/* DUMP, RESTORE, COPY: Redis's commands on whole keys. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_merge.h"
#include "content.h"
#include "dump.h"
#include "handlers.h"

/* The longest dump in one piece. It is copied a few times on its way, once on the loop: 8 MB in about a millisecond. */
#define DUMP_MAX_BYTES (8u << 20)

/* ---- DUMP -------------------------------------------------------------------------------------------------------- */

static uint64_t dump_limit(const struct server *server)
{
    const struct config *config = server_config(server);
    uint64_t limit = DUMP_MAX_BYTES;
    if (config->proto_max_bulk_len < limit)
        limit = config->proto_max_bulk_len;
    if (config->reply_buffer_limit - 64 < limit) /* the reply has a few bytes more than the dump */
        limit = config->reply_buffer_limit - 64;
    return limit;
}

static void dump_entry(struct command_job *job, struct entry *entry)
{
    struct dump_plan plan;
    dump_plan_of(entry_filter(entry), bloom_filter_nlayers(entry_filter(entry)), &plan);
    uint64_t limit = dump_limit(job->server);
    if (plan.bytes > limit || dump_whole_bytes(&plan) > limit) {
        reply_errorf(
            &job->reply,
            "ERR the filter has %llu bytes of bits, and a dump in one piece at most %llu bytes: use BF.SCANDUMP",
            (unsigned long long)plan.bytes, (unsigned long long)limit);
        return;
    }
    unsigned char *bytes = malloc(dump_whole_bytes(&plan));
    if (!bytes) {
        reply_error(&job->reply, "ERR out of memory");
        return;
    }
    dump_write_whole(&plan, entry_filter(entry), bytes);
    reply_bulk(&job->reply, bytes, dump_whole_bytes(&plan));
    free(bytes);
}

static void dump_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    bool replied;
    struct entry *entry = content_pin(job, args->argv[1], &replied);
    if (entry) {
        dump_entry(job, entry);
        registry_unpin(entry);
    } else if (!replied) {
        reply_null(&job->reply);
    }
}

void cmd_dump(struct command_ctx *ctx)
{
    content_defer(ctx, REGISTRY_MAX_NAME, dump_job);
}

/* ---- RESTORE ----------------------------------------------------------------------------------------------------- */

struct restore {
    bool replace;
    bool absolute;
    int64_t ttl;
};

/* The integer behind an option, within a range. false: `error` has been replied. */
static bool option_integer(struct command_job *job, struct slice value, int64_t min, int64_t max, const char *error,
                           int64_t *value_out)
{
    if (!slice_to_int64(value, value_out)) {
        reply_error(&job->reply, "ERR value is not an integer or out of range");
        return false;
    }
    if (*value_out < min || *value_out > max) {
        reply_error(&job->reply, error);
        return false;
    }
    return true;
}

static bool restore_options(struct command_job *job, const struct job_args *args, struct restore *restore)
{
    int64_t ignored; /* nothing is ever evicted: neither idle time nor frequency is kept */
    bool idle = false, freq = false;
    for (size_t i = 4; i < args->argc; i++) {
        bool has_value = i + 1 < args->argc;
        if (slice_is(args->argv[i], "REPLACE")) {
            restore->replace = true;
        } else if (slice_is(args->argv[i], "ABSTTL")) {
            restore->absolute = true;
        } else if (slice_is(args->argv[i], "IDLETIME") && has_value && !freq) {
            idle = true;
            if (!option_integer(job, args->argv[++i], 0, INT64_MAX, "ERR Invalid IDLETIME value, must be >= 0",
                                &ignored))
                return false;
        } else if (slice_is(args->argv[i], "FREQ") && has_value && !idle) {
            freq = true;
            if (!option_integer(job, args->argv[++i], 0, 255, "ERR Invalid FREQ value, must be >= 0 and <= 255",
                                &ignored))
                return false;
        } else {
            reply_error(&job->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

/* Fills and publishes what the plan says. `expires_ms` 0: never. */
static void restore_filter(struct command_job *job, const struct job_args *args, const struct restore *restore,
                           const struct dump_plan *plan, int64_t expires_ms)
{
    struct content_publication publication = {
        .how = {.only_new = !restore->replace, .expires_ms = expires_ms, .event = "restore"}};
    struct entry *entry;
    if (!content_prepare(job, args->argv[1], &plan->params, plan->shapes, plan->nlayers, &entry))
        return;
    bloom_filter_expect_fill(entry_filter(entry));
    dump_read_whole(plan, args->argv[3].ptr, entry_filter(entry));
    content_finish(job, entry, &publication, "BUSYKEY Target key name already exists.");
}

static void reply_bad_payload(struct command_job *job, int status, const struct errbuf *err)
{
    if (status == DUMP_FOREIGN && strstr(err->text, "RedisBloom"))
        reply_errorf(&job->reply, "ERR DUMP payload version or checksum are wrong: %s", err->text);
    else
        reply_error(&job->reply, "ERR DUMP payload version or checksum are wrong");
}

static void restore_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct restore restore = {false, false, 0};
    struct dump_plan plan;
    struct errbuf err = {""};
    int64_t now = server_unix_ms();
    if (!restore_options(job, args, &restore))
        return;
    if (!restore.replace && registry_lookup(job->server->registry, args->argv[1])) {
        reply_error(&job->reply, "BUSYKEY Target key name already exists.");
        return;
    }
    if (!option_integer(job, args->argv[2], 0, restore.absolute ? INT64_MAX : INT64_MAX - now,
                        "ERR Invalid TTL value, must be >= 0", &restore.ttl))
        return;
    int status = dump_read_plan(args->argv[3].ptr, args->argv[3].len, &plan, &err);
    if (status != DUMP_OK) {
        reply_bad_payload(job, status, &err);
        return;
    }
    int64_t expires_ms = restore.ttl == 0 ? 0 : restore.absolute ? restore.ttl : now + restore.ttl;
    if (expires_ms != 0 && expires_ms <= now) { /* it has expired already, and what it would have replaced is gone */
        if (restore.replace)
            registry_delete(job->server->registry, args->argv[1]);
        reply_status(&job->reply, "OK");
        return;
    }
    restore_filter(job, args, &restore, &plan, expires_ms);
}

void cmd_restore(struct command_ctx *ctx)
{
    if (command_arg(ctx, 3).len > DUMP_MAX_BYTES) {
        reply_errorf(ctx->reply, "ERR a dump in one piece has at most %u bytes: use BF.LOADCHUNK", DUMP_MAX_BYTES);
        return;
    }
    content_defer(ctx, DUMP_MAX_BYTES, restore_job);
}

/* ---- COPY -------------------------------------------------------------------------------------------------------- */

static bool copy_options(struct command_job *job, const struct job_args *args, bool *replace_out)
{
    for (size_t i = 3; i < args->argc; i++) {
        int64_t db;
        if (slice_is(args->argv[i], "REPLACE")) {
            *replace_out = true;
        } else if (slice_is(args->argv[i], "DB") && i + 1 < args->argc) {
            if (!read_database(&job->reply, args->argv[++i], NULL, &db))
                return false;
            if (db != 0) {
                reply_error(&job->reply, "ERR DB index is out of range");
                return false;
            }
        } else {
            reply_error(&job->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

/* Every add to the source that has been answered is in the copy; those that come meanwhile may be. */
static void copy_bits(struct bloom_filter *copy, const struct bloom_filter *source, unsigned nlayers)
{
    struct bloom_union counts = {{0}, {0}};
    bloom_filter_or(copy, source, nlayers, &counts);
    for (unsigned i = 0; i < nlayers; i++)
        bloom_filter_set_items(copy, i, counts.most[i]);
}

static void copy_entry(struct command_job *job, struct entry *source, int64_t expires_ms, struct slice to, bool replace)
{
    const struct bloom_filter *filter = entry_filter(source);
    unsigned nlayers = bloom_filter_nlayers(filter);
    uint64_t bytes = bloom_filter_memory(filter);
    struct content_publication publication = {
        .how = {.only_new = !replace, .expires_ms = expires_ms, .event = "copy_to"}};
    struct errbuf err = {""};
    struct entry *copy;
    if (!content_large_begin(job, bytes))
        return;
    if (content_prepare_like(job, to, filter, nlayers, &copy)) {
        rcu_reader_offline();
        bloom_filter_expect_fill(entry_filter(copy));
        copy_bits(entry_filter(copy), filter, nlayers);
        rcu_reader_online();
        int status = content_publish(job->server, copy, &publication, &err);
        if (status != REGISTRY_OK)
            registry_abandon(job->server->registry, copy);
        if (status == REGISTRY_OK || status == REGISTRY_EXISTS)
            reply_integer(&job->reply, status == REGISTRY_OK);
        else
            reply_not_made(&job->reply, status, &err);
    }
    content_large_end(job, bytes);
}

/* A copy expires when its source does. */
static int64_t expiry_of(struct command_job *job, struct slice name, const struct entry *entry)
{
    struct registry *registry = job->server->registry;
    int64_t expires_ms;
    struct entry *now = registry_find_expiry(registry, registry_hash(registry, name), name, &expires_ms);
    return now == entry ? expires_ms : 0;
}

static bool same_name(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static void copy_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct slice from = args->argv[1], to = args->argv[2];
    bool replace = false, replied;
    if (!copy_options(job, args, &replace))
        return;
    if (same_name(from, to)) {
        reply_error(&job->reply, "ERR source and destination objects are the same");
        return;
    }
    struct entry *source = content_pin(job, from, &replied);
    if (!source) {
        if (!replied)
            reply_integer(&job->reply, 0);
        return;
    }
    if (!replace && registry_lookup(job->server->registry, to))
        reply_integer(&job->reply, 0);
    else
        copy_entry(job, source, expiry_of(job, from, source), to, replace);
    registry_unpin(source);
}

void cmd_copy(struct command_ctx *ctx)
{
    content_defer(ctx, REGISTRY_MAX_NAME, copy_job);
}
