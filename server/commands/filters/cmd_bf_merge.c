/* BF.MERGE and BF.CLEAR: replace a filter by another one under the same name, atomically, while clients add to it. */
#include <stdlib.h>
#include <time.h>

#include "bf_host.h"
#include "bf_merge.h"
#include "bf_out.h"
#include "content.h"
#include "counters.h"
#include "handlers.h"
#include "host.h"
#include "memory_use.h"
#include "rcu.h"
#include "registry_key.h"

#define TRIES 16 /* each after a client has deleted or replaced the filter meanwhile */

struct merge {
    struct command_job *job;
    const struct job_args *args;
    struct bf_out out;
    struct bf_merge it;
    struct entry **entries; /* of each argument; pinned, or NULL */
    struct entry *made;     /* prepared, pinned */
    bool superseded;        /* another command has replaced the destination while this merge waited */
};

static struct slice name_at(const void *ctx, size_t i)
{
    const struct job_args *args = ctx;
    return key_name(args->argv[i]);
}

/* Pins the filter of argument i. */
static bool find(void *ctx, size_t i, struct bloom_filter **filter_out)
{
    struct merge *merge = ctx;
    bool replied;
    merge->entries[i] = content_pin(merge->job, merge->args->argv[i], &replied);
    *filter_out = merge->entries[i] ? entry_filter(merge->entries[i]) : NULL;
    if (*filter_out && entry_is_cuckoo(merge->entries[i]))
        return reply_error(&merge->job->reply, BF_WRONG_TYPE);
    return !replied;
}

static struct entry *destination(const struct merge *merge)
{
    return merge->entries[1];
}

/* Prepares the filter of the union and pins it. False after an error reply. */
static bool make(struct merge *merge)
{
    if (!content_prepare_like(merge->job, merge->args->argv[1], bf_merge_model(&merge->it), 1, &merge->made))
        return false;
    entry_pin(merge->made);
    merge->it.made = entry_filter(merge->made);
    if (!bf_merge_shape(&merge->it))
        return false;
    bloom_filter_expect_fill(merge->it.made);
    return true;
}

static void mark_dirty(void *entry)
{
    entry_mark_dirty(entry);
}

static bool is_current(const struct merge *merge)
{
    struct entry *entry = registry_pin(merge->job->server->registry, merge->args->argv[1]);
    if (entry)
        entry_unpin(entry);
    return entry == destination(merge);
}

/* Makes the destination and the new filter twins. If another command merges into the same destination, waits for it;
 * that command has then replaced the destination: false, before any work is wasted. */
static bool begin_twins(struct merge *merge)
{
    struct bloom_twins twins = {
        .older = merge->it.destination,
        .younger = merge->it.made,
        .added = mark_dirty,
        .ctx = merge->made,
        .younger_id = merge->made->id,
    };
    struct timespec moment = {.tv_nsec = 1000 * 1000};
    while (is_current(merge)) {
        if (bloom_twins_begin(merge->job->server->pool, &twins))
            return true;
        rcu_reader_offline();
        nanosleep(&moment, NULL);
        rcu_reader_online();
    }
    return false;
}

/* From the prepared filter to the published one. A status of content_publish() or of the registry. *same_out: the
 * destination has been this union already, and stays. */
static int exchange(struct merge *merge, bool *same_out, struct errbuf *err)
{
    struct server *server = merge->job->server;
    struct entry *old = destination(merge);
    struct content_publication publication = {.how = {.only_new = true, .event = "bloom.merge"}};
    if (old) {
        publication.how =
            (struct registry_publication){.expected_id = old->id, .keep_expiry = true, .event = "bloom.merge"};
        publication.absorbs = old->id;
    }
    merge->superseded = old && !begin_twins(merge);
    if (merge->superseded)
        return REGISTRY_CHANGED;
    bool overfull = server_config(server)->filters.merge_overfull; /* settings may be freed once this is offline */
    rcu_reader_offline();
    if (old)
        rcu_wait_for_readers(); /* from here on every add to the destination goes into both */
    int status = registry_status(bf_merge_unite(&merge->it, server->pool, overfull, err));
    *same_out = status == REGISTRY_OK && bf_merge_changes_nothing(&merge->it);
    if (status == REGISTRY_OK && !*same_out)
        status = content_publish(server, merge->made, &publication, err);
    if (old) {
        rcu_wait_for_readers(); /* threads that found the destination before the exchange are done with it */
        bloom_twins_end(server->pool, merge->it.destination);
        rcu_wait_for_readers(); /* no thread uses the two as twins: both may be freed */
    }
    rcu_reader_online();
    return status;
}

/* Makes the union of the filters that have been found. True: the command has been answered. */
static bool unite(struct merge *merge, bool last)
{
    struct errbuf err = {""};
    bool same = false;
    merge->made = NULL;
    bool made = make(merge);
    int status = made ? exchange(merge, &same, &err) : REGISTRY_OK;
    if (merge->made) {
        if (!made || same || status != REGISTRY_OK)
            registry_abandon(merge->job->server->registry, merge->made);
        entry_unpin(merge->made);
    }
    if (!made)
        return true;
    if ((status == REGISTRY_CHANGED || status == REGISTRY_EXISTS) && (merge->superseded || !last))
        return false;
    if (status == REGISTRY_OK)
        reply_status(&merge->job->reply, "OK");
    else
        reply_not_made(&merge->job->reply, status == REGISTRY_EXISTS ? REGISTRY_CHANGED : status, &err);
    return true;
}

/* One attempt. True: the command has been answered. */
static bool try_merge(struct merge *merge, bool last)
{
    const struct job_args *args = merge->args;
    struct bf_args names = {args->argc, name_at, args, "bf.merge"};
    bool done = true;
    merge->superseded = false;
    if (bf_merge_begin(&merge->it, &merge->out, &names, find, merge) &&
        content_large_begin(merge->job, merge->it.bytes)) {
        done = unite(merge, last);
        content_large_end(merge->job, merge->it.bytes);
    }
    for (size_t i = 1; i < args->argc; i++) {
        if (merge->entries[i])
            entry_unpin(merge->entries[i]);
        merge->entries[i] = NULL;
    }
    bf_merge_end(&merge->it);
    return done;
}

static void merge_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct merge merge = {.job = job, .args = args, .out = bf_out_of(&job->reply)};
    merge.entries = calloc(args->argc, sizeof(struct entry *));
    if (!merge.entries) {
        reply_error(&job->reply, "ERR out of memory");
        return;
    }
    for (int i = 1; !try_merge(&merge, i == TRIES);)
        i += !merge.superseded;
    free(merge.entries);
}

void cmd_bf_merge(struct command_ctx *ctx)
{
    command_defer_arguments(ctx, REGISTRY_MAX_NAME, merge_job);
}

/* ---- BF.CLEAR ---- */

#define LOOK_BYTES (1u << 20) /* read on the loop in a tenth of a millisecond */

/* An empty filter stays as it is: no record, no event, no change for WATCH. The count alone does not show that a filter
 * is empty, because RedisBloom's dumps have uncounted bits; large filters are therefore never taken as empty. */
static bool is_empty(struct entry *entry)
{
    const struct bloom_filter *filter = entry_filter(entry);
    return filter && bloom_filter_nlayers(filter) == 1 && bloom_filter_memory(filter) <= LOOK_BYTES &&
           bloom_filter_is_blank(filter);
}

/* A running add came before the BF.CLEAR and goes with the old filter. So no add needs to be passed on. */
static int try_clear(struct command_job *job, struct entry *old, struct slice name, struct errbuf *err)
{
    struct content_publication publication = {
        .how = {.expected_id = old->id, .keep_expiry = true, .event = "bloom.clear"}, .empty = true};
    struct registry *registry = job->server->registry;
    int64_t replaced = (int64_t)bloom_filter_charged(entry_shape(old));
    struct entry *made;
    reclaimer_announce(job->server->reclaimer, replaced); /* others are not refused for both */
    int status = registry_prepare(registry, name, bloom_filter_class_of(entry_shape(old)), true, &made, err);
    if (status == REGISTRY_OK) {
        status = content_publish(job->server, made, &publication, err);
        if (status != REGISTRY_OK)
            registry_abandon(registry, made);
    }
    reclaimer_announce(job->server->reclaimer, -replaced);
    return status;
}

static void clear(struct command_job *job, struct slice name)
{
    struct errbuf err = {""};
    int status = REGISTRY_CHANGED;
    for (int i = 0; i < TRIES && status == REGISTRY_CHANGED; i++) {
        bool replied;
        struct entry *old = content_pin_shape(job, name, &replied);
        if (!old) {
            if (!replied)
                reply_error(&job->reply, BF_NOT_FOUND);
            return;
        }
        if (entry_is_cuckoo(old)) {
            entry_unpin(old);
            reply_error(&job->reply, BF_WRONG_TYPE);
            return;
        }
        bool empty = is_empty(old);
        if (empty)
            counters_forget_usage(job->server->stats.counters, old->id);
        status = empty ? REGISTRY_OK : try_clear(job, old, name, &err);
        entry_unpin(old);
    }
    if (status == REGISTRY_OK)
        reply_status(&job->reply, "OK");
    else
        reply_not_made(&job->reply, status, &err);
}

/* Old and new bits exist together for a moment. A transaction does not wait, because EXEC has checked its memory. */
static bool waits(struct command_ctx *ctx)
{
    struct entry *entry = registry_lookup(ctx->server->registry, command_arg(ctx, 1));
    struct bloom_filter *shape = entry ? entry_shape(entry) : NULL;
    return shape && !ctx->session->multi.in_exec && memory_waits_for_eviction(ctx->server, bloom_filter_charged(shape));
}

void cmd_bf_clear(struct command_ctx *ctx)
{
    if (waits(ctx)) {
        command_do_first(ctx, content_wait_for_memory, NULL);
        return;
    }
    struct command_job at_once = {.server = ctx->server, .reply = *ctx->reply};
    clear(&at_once, command_arg(ctx, 1));
}
