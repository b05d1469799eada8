/* DUMP, RESTORE, COPY: Redis's commands on whole keys; and BF.LOAD, valkey-bloom's RESTORE. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bf_chunks.h"
#include "bloom_merge.h"
#include "clock.h"
#include "content.h"
#include "cuckoo.h"
#include "cuckoo_dump.h"
#include "dump.h"
#include "handlers.h"
#include "rdb_reader.h"
#include "redisbloom_dump.h"
#include "valkey_dump.h"
#include "bf_host.h"
#include "registry_key.h"

#define BUSY "BUSYKEY Target key name already exists."

/* ---- DUMP ---- */

static void reply_too_large(struct command_job *job, bool cuckoo, uint64_t bytes, uint64_t limit)
{
    reply_errorf(&job->reply,
                 "ERR the filter has %llu bytes of %s, and a dump in one piece at most %llu bytes "
                 "(proto-max-bulk-len): use %s",
                 (unsigned long long)bytes, cuckoo ? "slots" : "bits", (unsigned long long)limit,
                 cuckoo ? "CF.SCANDUMP" : "BF.SCANDUMP");
}

static int dump_native(const struct bloom_filter *filter, uint64_t limit, unsigned char **bytes_out, uint64_t *len_out)
{
    struct dump_plan plan;
    dump_plan_of(filter, bloom_filter_nlayers(filter), &plan);
    *len_out = plan.bytes > limit ? plan.bytes : dump_whole_bytes(&plan);
    if (*len_out > limit) {
        *len_out = plan.bytes;
        return REDISBLOOM_LARGE;
    }
    *bytes_out = malloc((size_t)*len_out);
    if (!*bytes_out)
        return -ENOMEM;
    dump_write_whole(&plan, filter, *bytes_out);
    return DUMP_OK;
}

/* Of one moment. */
static int dump_cuckoo(struct bloom_filter *filter, uint64_t limit, unsigned char **bytes_out, uint64_t *len_out)
{
    struct bloom_filter *still;
    struct errbuf err;
    *len_out = cuckoo_bytes_of(filter);
    if (*len_out > limit)
        return REDISBLOOM_LARGE;
    if (bloom_still_begin(filter, &still, &err) != 0)
        return -ENOMEM;
    int status = cuckoo_dump(still, limit, bytes_out, len_out);
    bloom_still_end(still);
    return status;
}

/* Hundreds of megabytes take a second: other threads do not wait for this one. */
static void dump_entry(struct command_job *job, struct entry *entry)
{
    struct bloom_filter *filter = entry_filter(entry);
    uint64_t limit = (uint64_t)server_config(job->server)->clients.proto_max_bulk_len, len = 0;
    uint64_t memory = bloom_filter_memory(filter);
    unsigned char *bytes;
    int status;
    if (memory <= limit && !content_large_begin(job, memory))
        return;
    rcu_reader_offline();
    if (entry_is_cuckoo(entry))
        status = dump_cuckoo(filter, limit, &bytes, &len);
    else if (valkey_is_layout(filter))
        status = valkey_dump(filter, limit, &bytes, &len);
    else
        status = redisbloom_is_layout(filter) ? redisbloom_dump(filter, limit, &bytes, &len)
                                              : dump_native(filter, limit, &bytes, &len);
    rcu_reader_online();
    if (memory <= limit)
        content_large_end(job, memory);
    if (status == REDISBLOOM_LARGE)
        reply_too_large(job, entry_is_cuckoo(entry), len, limit);
    else if (status != DUMP_OK)
        reply_error(&job->reply, "ERR out of memory");
    else
        reply_bulk_take(&job->reply, bytes, (size_t)len);
}

static void dump_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    bool replied;
    struct entry *entry = content_pin(job, args->argv[1], &replied);
    if (entry) {
        dump_entry(job, entry);
        entry_unpin(entry);
    } else if (!replied) {
        reply_null(&job->reply);
    }
}

void cmd_dump(struct command_ctx *ctx)
{
    if (!sstable_has_no_dump(ctx))
        command_defer_arguments(ctx, REGISTRY_MAX_NAME, dump_job);
}

/* ---- RESTORE ---- */

struct restore {
    enum { PAYLOAD_OURS, PAYLOAD_CUCKOO, PAYLOAD_REDISBLOOM, PAYLOAD_VALKEY } kind;
    bool replace, absolute;
    int64_t ttl;
};

/* Reads the integer after an option, within a range. False after replying `error`. */
static bool option_integer(struct command_job *job, struct slice value, int64_t min, int64_t max, const char *error,
                           int64_t *value_out)
{
    if (!slice_to_int64(value, value_out))
        return reply_error(&job->reply, "ERR value is not an integer or out of range");
    if (*value_out < min || *value_out > max)
        return reply_error(&job->reply, error);
    return true;
}

static bool restore_options(struct command_job *job, const struct job_args *args, struct restore *restore)
{
    int64_t ignored; /* filters are never evicted: idle time and frequency are not kept */
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
            return reply_error(&job->reply, "ERR syntax error");
        }
    }
    return true;
}

/* Reads the contents of a payload. Replies if it is bad. */
static bool read_payload(struct command_job *job, struct slice payload, struct restore *restore,
                         struct dump_plan *plan_out)
{
    struct errbuf err = {""};
    rcu_reader_offline(); /* hundreds of megabytes take a second */
    int status = dump_read_plan(payload.ptr, payload.len, plan_out, &err);
    if (status == DUMP_FOREIGN && cuckoo_is_dump(payload.ptr, payload.len)) {
        restore->kind = PAYLOAD_CUCKOO;
        status = cuckoo_restore_plan(payload.ptr, payload.len, plan_out, &err);
    } else if (status == DUMP_FOREIGN && valkey_is_dump(payload.ptr, payload.len)) {
        restore->kind = PAYLOAD_VALKEY;
        status = valkey_restore_plan(VALKEY_DUMP, payload.ptr, payload.len, plan_out, &err);
    } else if (status == DUMP_FOREIGN && rdb_is_dump(payload.ptr, payload.len)) {
        restore->kind = PAYLOAD_REDISBLOOM;
        status = redisbloom_restore_plan(payload.ptr, payload.len, plan_out, &err);
    }
    rcu_reader_online();
    if (status == DUMP_FOREIGN)
        reply_error(&job->reply, "ERR DUMP payload version or checksum are wrong");
    else if (status != DUMP_OK)
        reply_errorf(&job->reply, "ERR Bad data format: %s", err.text);
    return status == DUMP_OK;
}

/* Fills and publishes the planned filter. `expires_ms` 0: never. */
static void restore_filter(struct command_job *job, const struct job_args *args, const struct restore *restore,
                           const struct dump_plan *plan, int64_t expires_ms)
{
    struct slice payload = args->argv[3];
    struct content_publication publication = {
        .how = {.only_new = !restore->replace, .expires_ms = expires_ms, .event = "restore"}};
    struct errbuf err = {""};
    struct entry *entry;
    if (!content_prepare(job, args->argv[1], &plan->params, plan->shapes, plan->nlayers, &entry))
        return;
    bloom_filter_expect_fill(entry_filter(entry));
    int status = DUMP_OK;
    rcu_reader_offline(); /* no other thread has this filter */
    switch (restore->kind) {
    case PAYLOAD_OURS:
        status = dump_read_whole(payload.ptr, payload.len, entry_filter(entry), &err);
        break;
    case PAYLOAD_CUCKOO:
        cuckoo_restore(payload.ptr, payload.len, entry_filter(entry));
        break;
    case PAYLOAD_REDISBLOOM:
        redisbloom_restore(payload.ptr, payload.len, entry_filter(entry));
        break;
    case PAYLOAD_VALKEY:
        valkey_restore(VALKEY_DUMP, payload.ptr, payload.len, entry_filter(entry));
    }
    rcu_reader_online();
    if (status == DUMP_OK) {
        content_finish(job, entry, &publication, BUSY);
        return;
    }
    registry_abandon(job->server->registry, entry);
    reply_errorf(&job->reply, "ERR Bad data format: %s", status == -ENOMEM ? "out of memory" : err.text);
}

static void restore_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct restore restore = {0};
    struct dump_plan plan;
    int64_t now = clock_unix_ms();
    if (!restore_options(job, args, &restore))
        return;
    if (!restore.replace && registry_lookup(job->server->registry, args->argv[1])) {
        reply_error(&job->reply, BUSY);
        return;
    }
    if (!option_integer(job, args->argv[2], 0, restore.absolute ? INT64_MAX : INT64_MAX - now,
                        "ERR Invalid TTL value, must be >= 0", &restore.ttl))
        return;
    if (!read_payload(job, args->argv[3], &restore, &plan))
        return;
    int64_t expires_ms = restore.ttl == 0 ? 0 : restore.absolute ? restore.ttl : now + restore.ttl;
    if (expires_ms != 0 && expires_ms <= now) { /* it has expired already, and the filter that it would have replaced is
                                                 * gone */
        if (restore.replace)
            registry_delete(job->server->registry, args->argv[1]);
        reply_status(&job->reply, "OK");
        return;
    }
    restore_filter(job, args, &restore, &plan, expires_ms);
}

void cmd_restore(struct command_ctx *ctx)
{
    command_defer_arguments(ctx, SIZE_MAX - 1, restore_job); /* a large one is not copied */
}

/* ---- BF.LOAD ---- */

static void load_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    const struct content_publication publication = {.how = {.only_new = true, .event = "bloom.load"}};
    struct slice payload = args->argv[2];
    struct errbuf error = {""};
    struct dump_plan plan;
    struct entry *entry;
    if (registry_lookup(job->server->registry, args->argv[1])) {
        reply_error(&job->reply, BUSY);
        return;
    }
    rcu_reader_offline();
    bool sound = bf_read_load(payload, &plan, &error);
    rcu_reader_online();
    if (!sound)
        reply_error(&job->reply, error.text);
    if (!sound || !content_prepare(job, args->argv[1], &plan.params, plan.shapes, plan.nlayers, &entry))
        return;
    rcu_reader_offline();
    bloom_filter_expect_fill(entry_filter(entry));
    valkey_restore(VALKEY_LOAD, payload.ptr, payload.len, entry_filter(entry));
    rcu_reader_online();
    content_finish(job, entry, &publication, BUSY);
}

void cmd_bf_load(struct command_ctx *ctx)
{
    command_defer_arguments(ctx, SIZE_MAX - 1, load_job); /* a large one is not copied */
}

/* ---- COPY ---- */

static bool copy_options(struct command_job *job, const struct job_args *args, bool *replace_out,
                         unsigned *database_out)
{
    for (size_t i = 3; i < args->argc; i++) {
        int64_t db;
        if (slice_is(args->argv[i], "REPLACE")) {
            *replace_out = true;
        } else if (slice_is(args->argv[i], "DB") && i + 1 < args->argc) {
            if (!read_database(&job->reply, args->argv[++i], NULL, &db) ||
                !database_exists(job->server, &job->reply, db))
                return false;
            if (db != 0 && server_config(job->server)->cluster.emulation)
                return reply_error(&job->reply, "ERR Copying to another database is not allowed in cluster mode");
            *database_out = registry_database(job->server->registry, (unsigned)db);
        } else {
            return reply_error(&job->reply, "ERR syntax error");
        }
    }
    return true;
}

/* The copy has every add to the source that was answered before; later ones may be in it. A forgotten part of a window
 * keeps its turn here until its layer gets the next one, so the copy forgets the part by that turn. (Parts that are
 * dropped, with turn 0 and bits, are the module's: bloom_window.h.) */
static void copy_bits(struct bloom_filter *copy, const struct bloom_filter *source, unsigned nlayers)
{
    struct bloom_union counts = {{0}, {0}};
    struct bloom_turn turns[BLOOM_MAX_LAYERS];
    bool forgets = bloom_filter_forgets(source);
    for (unsigned i = 0; forgets && i < nlayers; i++) { /* before the bits */
        struct bloom_layer_view view;
        bloom_filter_layer(source, i, &view);
        turns[i] = (struct bloom_turn){.number = view.turn, .started_us = view.started_us};
    }
    bloom_filter_or(copy, source, nlayers, &counts);
    for (unsigned i = 0; i < nlayers; i++) {
        bloom_filter_set_items(copy, i, counts.most[i]);
        if (forgets)
            bloom_window_set_turn(copy, i, &turns[i]);
    }
}

/* Of one moment: a cuckoo filter, whose slots change in both directions, by a still. */
static int copy_into(struct bloom_filter *copy, const struct bloom_filter *source, unsigned nlayers, struct errbuf *err)
{
    if (bloom_params_is_cuckoo(bloom_filter_params(source)))
        return cuckoo_take(copy, source, err);
    copy_bits(copy, source, nlayers);
    return REGISTRY_OK;
}

static void copy_from(struct command_job *job, const struct bloom_filter *source, int64_t expires_ms, struct slice to,
                      bool replace)
{
    unsigned nlayers = bloom_filter_nlayers(source);
    struct content_publication publication = {
        .how = {.only_new = !replace, .expires_ms = expires_ms, .event = "copy_to"}};
    struct errbuf err = {""};
    struct entry *copy;
    if (!content_prepare_like(job, to, source, nlayers, &copy))
        return;
    rcu_reader_offline();
    bloom_filter_expect_fill(entry_filter(copy));
    int status = copy_into(entry_filter(copy), source, nlayers, &err);
    rcu_reader_online();
    STEP(status, content_publish(job->server, copy, &publication, &err));
    if (status != REGISTRY_OK)
        registry_abandon(job->server->registry, copy);
    if (status == REGISTRY_OK || status == REGISTRY_EXISTS)
        reply_integer(&job->reply, status == REGISTRY_OK);
    else
        reply_not_made(&job->reply, status, &err);
}

static void copy_entry(struct command_job *job, struct entry *source, int64_t expires_ms, struct slice to, bool replace)
{
    struct bloom_filter *filter = entry_filter(source), *still = NULL;
    uint64_t bytes = bloom_filter_memory(filter);
    struct errbuf err = {""};
    if (!content_large_begin(job, bytes))
        return;
    if (entry_is_cuckoo(source) && bloom_still_begin(filter, &still, &err) != 0)
        reply_error(&job->reply, "ERR out of memory");
    else
        copy_from(job, still ? still : filter, expires_ms, to, replace);
    bloom_still_end(still);
    content_large_end(job, bytes);
}

/* content_pin(), with the expiry that the copy has, too. A name that has expired or changed since it was pinned is
 * looked up again: the filter has no time under it any more, and its copy would never expire. */
static struct entry *pin_source(struct command_job *job, struct slice name, int64_t *expires_ms_out, bool *replied_out)
{
    struct entry *entry;
    while ((entry = content_pin(job, name, replied_out)) &&
           registry_find_expiry(job->server->registry, name, expires_ms_out) != entry)
        entry_unpin(entry);
    return entry;
}

static void copy_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    char space[REGISTRY_MAX_NAME + 2 * DATABASE_PREFIX];
    unsigned database = job->database;
    bool replace = false, replied;
    int64_t expires_ms;
    if (!copy_options(job, args, &replace, &database))
        return;
    struct slice from = args->argv[1], to = args->argv[2];
    if (database != job->database && to.len <= REGISTRY_MAX_NAME) /* a longer one is refused as it is */
        to = key_write(space, database, key_name(to));
    if (from.len <= REGISTRY_MAX_NAME && slice_equal(from, to)) { /* longer ones have been cut */
        reply_error(&job->reply, "ERR source and destination objects are the same");
        return;
    }
    struct entry *source = pin_source(job, from, &expires_ms, &replied);
    if (!source && !replied)
        reply_integer(&job->reply, 0);
    if (!source)
        return;
    if (!replace && registry_lookup(job->server->registry, to))
        reply_integer(&job->reply, 0);
    else if (sstable_is_hidden_by(job->server, to))
        reply_read_only(&job->reply, key_name(to));
    else
        copy_entry(job, source, expires_ms, to, replace);
    entry_unpin(source);
}

void cmd_copy(struct command_ctx *ctx)
{
    command_defer_arguments(ctx, REGISTRY_MAX_NAME, copy_job);
}
