/* BF.MERGE and BF.CLEAR: replace a filter by another one under the same name, atomically, while clients add to it. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "bf_texts.h"
#include "bloom_merge.h"
#include "content.h"
#include "handlers.h"
#include "registry_key.h"

#define MERGE_MAX_SOURCES 1000 /* each one is pinned and ORed, by one thread */
#define MERGE_TRIES       16   /* retries, each after a client has deleted or replaced the destination meanwhile */

struct source {
    struct entry *entry; /* pinned */
    unsigned nlayers;    /* at the beginning of the merge: later layers hold later adds only */
};

struct merge {
    struct command_job *job;
    struct slice name;
    struct entry *dst; /* pinned; NULL: the name is free */
    struct source *sources;
    size_t nsources;
    uint64_t bytes;     /* of all of them */
    struct entry *made; /* prepared, pinned */
    bool superseded;    /* another command has replaced the destination while this merge waited */
};

static int printable(struct slice name)
{
    return (int)(name.len < 128 ? name.len : 128);
}

static void reply_not_found(struct command_job *job, struct slice name)
{
    reply_errorf(&job->reply, "ERR not found: '%.*s'", printable(name), name.ptr);
}

static void reply_different(struct command_job *job, struct slice a, struct slice b, const struct errbuf *err)
{
    reply_errorf(&job->reply, "ERR '%.*s' and '%.*s' cannot be merged: %s", printable(a), a.ptr, printable(b), b.ptr,
                 err->text);
}

static void unpin_all(struct merge *merge)
{
    if (merge->dst)
        registry_unpin(merge->dst);
    while (merge->nsources)
        registry_unpin(merge->sources[--merge->nsources].entry);
    merge->dst = NULL;
}

/* Pins all filters of the command. False after an error reply. */
static bool pin_all(struct merge *merge, const struct job_args *args)
{
    bool replied;
    merge->bytes = 0;
    merge->dst = content_pin(merge->job, merge->name, &replied);
    if (replied)
        return false;
    for (size_t i = 2; i < args->argc; i++) {
        struct entry *entry = content_pin(merge->job, args->argv[i], &replied);
        if (!entry) {
            if (!replied)
                reply_not_found(merge->job, key_name(args->argv[i]));
            return false;
        }
        merge->sources[merge->nsources++] = (struct source){entry, bloom_filter_nlayers(entry_filter(entry))};
        merge->bytes += bloom_filter_memory(entry_filter(entry));
    }
    if (merge->dst)
        merge->bytes += bloom_filter_memory(entry_filter(merge->dst));
    return true;
}

/* Prepares the filter of the union, as large as the largest source, and pins it. False after an error reply. */
static bool make(struct merge *merge, const struct job_args *args)
{
    const struct bloom_filter *model = entry_filter(merge->dst ? merge->dst : merge->sources[0].entry);
    struct errbuf err = {""};
    if (!content_prepare_like(merge->job, merge->name, model, 1, &merge->made))
        return false;
    struct bloom_filter *made = entry_filter(merge->made);
    registry_pin_prepared(merge->made);
    int status = merge->dst ? bloom_filter_append_like(made, model, bloom_filter_nlayers(model), &err) : 0;
    if (status != 0)
        reply_not_made(&merge->job->reply, status == BLOOM_LIMIT ? REGISTRY_LIMIT : status, &err);
    bloom_filter_expect_fill(made);
    for (size_t i = 0; i < merge->nsources && status == 0; i++) {
        const struct bloom_filter *source = entry_filter(merge->sources[i].entry);
        status = bloom_filter_same_layout(model, source, &err);
        if (status == 0)
            status = bloom_filter_append_like(made, source, merge->sources[i].nlayers, &err);
        if (status == 0)
            status = bloom_filter_same_layout(made, source, &err);
        if (status == BLOOM_REFUSED)
            reply_different(merge->job, key_name(merge->name), key_name(args->argv[i + 2]), &err);
        else if (status != 0)
            reply_not_made(&merge->job->reply, status == BLOOM_LIMIT ? REGISTRY_LIMIT : status, &err);
    }
    return status == 0;
}

static void mark_dirty(void *entry)
{
    entry_mark_dirty(entry);
}

static bool is_current(const struct merge *merge)
{
    struct entry *entry = registry_pin(merge->job->server->registry, merge->name);
    if (entry)
        registry_unpin(entry);
    return entry == merge->dst;
}

/* Makes the destination and the new filter twins. If another command merges into the same destination, waits for it;
 * that command has then replaced the destination: false, before any work is wasted. */
static bool begin_twins(struct merge *merge)
{
    struct bloom_twins twins = {
        .older = entry_filter(merge->dst),
        .younger = entry_filter(merge->made),
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

/* ORs all filters into the new one. The destination may have grown meanwhile. 0, or a status of reply_not_made().
 * Offline. */
static int unite(struct merge *merge, bool overfull, struct errbuf *err)
{
    struct bloom_filter *made = entry_filter(merge->made);
    struct bloom_union counts = {{0}, {0}};
    if (merge->dst) {
        const struct bloom_filter *dst = entry_filter(merge->dst);
        unsigned nlayers = bloom_filter_nlayers(dst);
        int status = bloom_filter_append_like(made, dst, nlayers, err);
        if (status == 0)
            status = bloom_filter_same_layout(made, dst, err);
        if (status != 0)
            return status == BLOOM_LIMIT ? REGISTRY_LIMIT : status < 0 ? status : REGISTRY_REFUSED;
        bloom_twins_level(merge->job->server->pool, dst);
        bloom_filter_or(made, dst, nlayers, NULL);
    }
    for (size_t i = 0; i < merge->nsources; i++)
        if (merge->sources[i].entry != merge->dst)
            bloom_filter_or(made, entry_filter(merge->sources[i].entry), merge->sources[i].nlayers, &counts);
    const struct bloom_filter *before = merge->dst ? entry_filter(merge->dst) : NULL;
    if (bloom_filter_count_union(made, &counts, before, overfull, err) == BLOOM_OK)
        return 0;
    errbuf_prefix(err, "the union would be too full (bf-merge-overfull)");
    return REGISTRY_REFUSED;
}

/* From the prepared filter to the published one. A status of content_publish() or unite(). */
static int exchange(struct merge *merge, bool overfull, struct errbuf *err)
{
    struct content_publication publication = {.how = {.only_new = true, .event = "bloom.merge"}};
    if (merge->dst) {
        publication.how =
            (struct registry_publication){.expected_id = merge->dst->id, .keep_expiry = true, .event = "bloom.merge"};
        publication.absorbs = merge->dst->id;
    }
    merge->superseded = merge->dst && !begin_twins(merge);
    if (merge->superseded)
        return REGISTRY_CHANGED;
    rcu_reader_offline();
    if (merge->dst)
        rcu_wait_for_readers(); /* from here on every add to the destination goes into both */
    int status = unite(merge, overfull, err);
    if (status == 0)
        status = content_publish(merge->job->server, merge->made, &publication, err);
    if (merge->dst) {
        rcu_wait_for_readers(); /* threads that found the destination before the exchange are done with it */
        bloom_twins_end(merge->job->server->pool, entry_filter(merge->dst));
        rcu_wait_for_readers(); /* no thread uses the two as twins: both may be freed */
    }
    rcu_reader_online();
    return status;
}

/* One attempt. True: the command has been answered. */
static bool try_merge(struct merge *merge, const struct job_args *args, bool last)
{
    struct errbuf err = {""};
    bool overfull = server_config(merge->job->server)->bf_merge_overfull, done = true;
    merge->made = NULL;
    merge->superseded = false;
    if (!pin_all(merge, args) || !content_large_begin(merge->job, merge->bytes)) {
        unpin_all(merge);
        return true;
    }
    int status = REGISTRY_OK;
    bool made = make(merge, args);
    if (made)
        status = exchange(merge, overfull, &err);
    if (merge->made) {
        if (!made || status != REGISTRY_OK)
            registry_abandon(merge->job->server->registry, merge->made);
        registry_unpin(merge->made);
    }
    content_large_end(merge->job, merge->bytes);
    unpin_all(merge);
    if (made && (status == REGISTRY_CHANGED || status == REGISTRY_EXISTS) && (merge->superseded || !last))
        done = false;
    else if (made && status == REGISTRY_OK)
        reply_status(&merge->job->reply, "OK");
    else if (made)
        reply_not_made(&merge->job->reply, status == REGISTRY_EXISTS ? REGISTRY_CHANGED : status, &err);
    return done;
}

static void merge_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct merge merge = {.job = job, .name = args->argv[1]};
    merge.sources = calloc(args->argc, sizeof(*merge.sources));
    if (!merge.sources) {
        reply_error(&job->reply, "ERR out of memory");
        return;
    }
    for (int i = 1; !try_merge(&merge, args, i == MERGE_TRIES);)
        i += !merge.superseded;
    free(merge.sources);
}

void cmd_bf_merge(struct command_ctx *ctx)
{
    if (command_argc(ctx) > 2 + MERGE_MAX_SOURCES) {
        reply_errorf(ctx->reply, "ERR at most %d filters can be merged at a time", MERGE_MAX_SOURCES);
        return;
    }
    content_defer(ctx, REGISTRY_MAX_NAME, merge_job);
}

/* ---- BF.CLEAR ---- */

/* A running add came before the BF.CLEAR and goes with the old filter. So no add has to be passed on. */
static int try_clear(struct command_job *job, struct entry *old, struct slice name, struct errbuf *err)
{
    struct content_publication publication = {
        .how = {.expected_id = old->id, .keep_expiry = true, .event = "bloom.clear"}, .empty = true};
    struct entry *made;
    int status =
        registry_prepare(job->server->registry, name, bloom_filter_class_of(entry_shape(old)), true, &made, err);
    if (status != REGISTRY_OK)
        return status;
    status = content_publish(job->server, made, &publication, err);
    if (status != REGISTRY_OK)
        registry_abandon(job->server->registry, made);
    return status;
}

static void clear(struct command_job *job, struct slice name)
{
    struct errbuf err = {""};
    int status = REGISTRY_CHANGED;
    for (int i = 0; i < MERGE_TRIES && status == REGISTRY_CHANGED; i++) {
        bool replied;
        struct entry *old = content_pin_shape(job, name, &replied);
        if (!old) {
            if (!replied)
                reply_error(&job->reply, BF_NOT_FOUND);
            return;
        }
        status = try_clear(job, old, name, &err);
        registry_unpin(old);
    }
    if (status == REGISTRY_OK)
        reply_status(&job->reply, "OK");
    else
        reply_not_made(&job->reply, status, &err);
}

void cmd_bf_clear(struct command_ctx *ctx)
{
    struct command_job at_once = {.server = ctx->server, .reply = *ctx->reply};
    clear(&at_once, command_arg(ctx, 1));
}
