/* BF.MERGE and BF.CLEAR: replace a filter by another one under the same name, atomically, while clients add to it. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "bf_texts.h"
#include "bloom_window_merge.h"
#include "content.h"
#include "counters.h"
#include "handlers.h"
#include "registry_key.h"

#define MERGE_MAX_SOURCES 1000 /* each one is pinned and ORed, by one thread */
#define MERGE_TRIES       16   /* retries, each after a client has deleted or replaced the destination meanwhile */

struct source {
    struct entry *entry; /* pinned */
    unsigned nlayers;    /* at the beginning of the merge: later layers hold later adds only */
    uint64_t turn;       /* of a window: the same of its parts */
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

static void reply_not_found(struct command_job *job, struct slice name)
{
    reply_errorf(&job->reply, "ERR not found: '%.*s'", slice_shown(name), name.ptr);
}

static void reply_different(struct command_job *job, struct slice a, struct slice b, const struct errbuf *err)
{
    reply_errorf(&job->reply, "ERR '%.*s' and '%.*s' cannot be merged: %s", slice_shown(a), a.ptr, slice_shown(b),
                 b.ptr, err->text);
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
        merge->sources[merge->nsources++] =
            (struct source){.entry = entry, .nlayers = bloom_filter_nlayers(entry_filter(entry))};
        merge->bytes += bloom_filter_memory(entry_filter(entry));
    }
    if (merge->dst)
        merge->bytes += bloom_filter_memory(entry_filter(merge->dst));
    return true;
}

/* The layers of the union of `made` and a source. 0; BLOOM_REFUSED: they cannot be united; or another status. */
static int add_layers(struct bloom_filter *made, const struct bloom_filter *model, const struct source *from,
                      struct errbuf *err)
{
    const struct bloom_filter *source = entry_filter(from->entry);
    int status = bloom_filter_same_layout(model, source, err);
    if (status == 0)
        status = bloom_filter_append_like(made, source, from->nlayers, err);
    return status == 0 ? bloom_filter_same_layout(made, source, err) : status;
}

static int to_registry(int status)
{
    return status == BLOOM_LIMIT ? REGISTRY_LIMIT : status < 0 ? status : REGISTRY_REFUSED;
}

/* Prepares the layers of the union, which are as many as the largest source has. False after an error reply. */
static bool make_layers(struct merge *merge, const struct job_args *args, const struct bloom_filter *model)
{
    struct bloom_filter *made = entry_filter(merge->made);
    struct errbuf err = {""};
    int status = merge->dst ? bloom_filter_append_like(made, model, bloom_filter_nlayers(model), &err) : 0;
    if (status != 0)
        reply_not_made(&merge->job->reply, to_registry(status), &err);
    for (size_t i = 0; i < merge->nsources && status == 0; i++) {
        status = add_layers(made, model, &merge->sources[i], &err);
        if (status == BLOOM_REFUSED)
            reply_different(merge->job, key_name(merge->name), key_name(args->argv[i + 2]), &err);
        else if (status != 0)
            reply_not_made(&merge->job->reply, to_registry(status), &err);
    }
    return status == 0;
}

/* Prepares the ring of a union of windows. False after an error reply. */
static bool make_ring(struct merge *merge, const struct job_args *args, const struct bloom_filter *model)
{
    struct bloom_ring ring = {0};
    struct errbuf err = {""};
    for (size_t i = 0; i < merge->nsources; i++) {
        struct bloom_filter *source = entry_filter(merge->sources[i].entry);
        if (bloom_window_same(model, source, &err) != BLOOM_OK) {
            reply_different(merge->job, key_name(merge->name), key_name(args->argv[i + 2]), &err);
            return false;
        }
        merge->sources[i].turn = bloom_ring_take(&ring, source);
    }
    if (merge->dst)
        bloom_ring_take(&ring, entry_filter(merge->dst));
    int status = bloom_ring_make(&ring, entry_filter(merge->made), &err);
    if (status != 0)
        reply_not_made(&merge->job->reply, to_registry(status), &err);
    return status == 0;
}

/* Prepares the filter of the union and pins it. False after an error reply. */
static bool make(struct merge *merge, const struct job_args *args)
{
    const struct bloom_filter *model = entry_filter(merge->dst ? merge->dst : merge->sources[0].entry);
    if (!content_prepare_like(merge->job, merge->name, model, 1, &merge->made))
        return false;
    registry_pin_prepared(merge->made);
    bool made = bloom_filter_forgets(model) ? make_ring(merge, args, model) : make_layers(merge, args, model);
    if (made)
        bloom_filter_expect_fill(entry_filter(merge->made));
    return made;
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

/* ORs the destination into the new filter. It may have grown meanwhile. Offline. */
static int take_over(struct merge *merge, struct errbuf *err)
{
    struct bloom_filter *made = entry_filter(merge->made), *dst = entry_filter(merge->dst);
    unsigned nlayers = bloom_filter_nlayers(dst);
    bool window = bloom_filter_forgets(dst);
    int status = window ? bloom_window_or(made, dst, UINT64_MAX, NULL, NULL, err)
                        : bloom_filter_append_like(made, dst, nlayers, err);
    if (status == 0 && !window)
        status = bloom_filter_same_layout(made, dst, err);
    if (status != 0)
        return status;
    bloom_twins_level(merge->job->server->pool, dst);
    if (!window)
        bloom_filter_or(made, dst, nlayers, NULL);
    return 0;
}

/* ORs all filters into the new one. 0, or a status of reply_not_made(). Offline. */
static int unite(struct merge *merge, bool overfull, struct errbuf *err)
{
    struct bloom_filter *made = entry_filter(merge->made);
    const struct bloom_filter *before = merge->dst ? entry_filter(merge->dst) : NULL;
    struct bloom_union counts = {{0}, {0}};
    bool window = bloom_filter_forgets(made);
    int status = merge->dst ? take_over(merge, err) : 0;
    for (size_t i = 0; i < merge->nsources && status == 0; i++) {
        struct source *source = &merge->sources[i];
        if (source->entry == merge->dst)
            continue;
        if (window)
            status = bloom_window_or(made, entry_filter(source->entry), source->turn, &counts, NULL, err);
        else
            bloom_filter_or(made, entry_filter(source->entry), source->nlayers, &counts);
    }
    if (status != 0)
        return to_registry(status);
    if (bloom_filter_count_union(made, &counts, window ? NULL : before, overfull, err) == BLOOM_OK)
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

#define LOOK_BYTES (1u << 20) /* are looked at on the loop, in a tenth of a millisecond */

/* What is empty stays the filter that it is: no record, no event, no change for WATCH. Where the bits are many, or not
 * in memory, the count alone cannot tell: dumps of RedisBloom's have bits that it does not know. */
static bool is_empty(struct entry *entry)
{
    const struct bloom_filter *filter = entry_filter(entry);
    return filter && bloom_filter_memory(filter) <= LOOK_BYTES && bloom_filter_is_blank(filter);
}

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
        bool empty = is_empty(old);
        if (empty)
            counters_forget_usage(job->server->counters, old->id);
        status = empty ? REGISTRY_OK : try_clear(job, old, name, &err);
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
