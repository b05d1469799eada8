#include "bf_merge.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_SOURCES 1000 /* each one is kept and ORed, by one thread */

bool bf_merge_begin(struct bf_merge *merge, const struct bf_out *out, const struct bf_args *args, bf_find_fn find,
                    void *ctx)
{
    *merge = (struct bf_merge){.out = out, .args = args};
    if (args->argc > 2 + MAX_SOURCES)
        return bf_out_errorf(out, "ERR at most %d filters can be merged at a time", MAX_SOURCES);
    merge->sources = calloc(args->argc, sizeof(*merge->sources));
    if (!merge->sources) {
        out->ops->error(out->ctx, "ERR out of memory");
        return false;
    }
    if (!find(ctx, 1, &merge->destination))
        return false;
    merge->bytes = merge->destination ? bloom_filter_memory(merge->destination) : 0;
    for (size_t i = 2; i < args->argc; i++) {
        struct slice name = bf_arg(args, i);
        struct bloom_filter *filter;
        if (!find(ctx, i, &filter))
            return false;
        if (!filter)
            return bf_out_errorf(out, "ERR not found: '%.*s'", slice_shown(name), name.ptr);
        merge->sources[merge->nsources++] = (struct bf_source){filter, bloom_filter_nlayers(filter), 0};
        merge->bytes += bloom_filter_memory(filter);
    }
    return true;
}

void bf_merge_end(struct bf_merge *merge)
{
    free(merge->sources);
    free(merge->places);
}

const struct bloom_filter *bf_merge_model(const struct bf_merge *merge)
{
    return merge->destination ? merge->destination : merge->sources[0].filter;
}

/* False after the reply that this source and the destination, or the first source, have no union. A source that is
 * refused by itself is named with another filter. */
static bool reply_different(const struct bf_merge *merge, size_t source, const struct errbuf *err)
{
    size_t first = merge->destination || merge->nsources == 1 ? 1 : 2;
    struct slice to = bf_arg(merge->args, first), from = bf_arg(merge->args, source + (first == 2 && !source ? 3 : 2));
    return bf_out_errorf(merge->out, "ERR '%.*s' and '%.*s' cannot be merged: %s", slice_shown(to), to.ptr,
                         slice_shown(from), from.ptr, err->text);
}

/* ---- the shape of the union ---- */

/* As many layers as the largest filter has. */
static bool make_layers(struct bf_merge *merge)
{
    const struct bloom_filter *model = bf_merge_model(merge);
    struct errbuf err = {""};
    int status =
        merge->destination ? bloom_filter_append_like(merge->made, model, bloom_filter_nlayers(model), &err) : 0;
    for (size_t i = 0; i < merge->nsources && status == 0; i++) {
        const struct bf_source *source = &merge->sources[i];
        status = bloom_filter_same_layout(model, source->filter, &err);
        STEP(status, bloom_filter_append_like(merge->made, source->filter, source->nlayers, &err));
        STEP(status, bloom_filter_same_layout(merge->made, source->filter, &err));
        if (status == BLOOM_REFUSED)
            return reply_different(merge, i, &err);
    }
    if (status != 0)
        bf_reply_not_made(merge->out, status, &err);
    return status == 0;
}

static bool make_ring(struct bf_merge *merge)
{
    struct bloom_ring ring = {0};
    struct errbuf err = {""};
    for (size_t i = 0; i < merge->nsources; i++) {
        struct bf_source *source = &merge->sources[i];
        if (bloom_window_same(bf_merge_model(merge), source->filter, &err) != BLOOM_OK)
            return reply_different(merge, i, &err);
        source->turn = bloom_ring_take(&ring, source->filter);
    }
    if (merge->destination)
        bloom_ring_take(&ring, merge->destination);
    merge->places = calloc(merge->nsources + 1, sizeof(*merge->places));
    int status = merge->places ? bloom_ring_make(&ring, merge->made, &err) : -ENOMEM;
    if (status != 0)
        bf_reply_not_made(merge->out, status, &err);
    return status == 0;
}

bool bf_merge_shape(struct bf_merge *merge)
{
    return bloom_filter_forgets(bf_merge_model(merge)) ? make_ring(merge) : make_layers(merge);
}

/* ---- its contents ---- */

/* ORs the destination into the union, which counts its items already. It may have grown meanwhile. */
static int take_destination(struct bf_merge *merge, struct bloom_pool *pool, struct errbuf *err)
{
    struct bloom_filter *made = merge->made, *destination = merge->destination;
    unsigned nlayers = bloom_filter_nlayers(destination);
    int status;
    if (merge->places) {
        status = bloom_window_or(made, destination, UINT64_MAX, NULL, &merge->places[merge->nsources], err);
    } else {
        status = bloom_filter_append_like(made, destination, nlayers, err);
        STEP(status, bloom_filter_same_layout(made, destination, err));
    }
    if (status != 0)
        return status;
    bloom_twins_level(pool, destination);
    if (!merge->places)
        bloom_filter_or(made, destination, nlayers, NULL);
    return 0;
}

int bf_merge_unite(struct bf_merge *merge, struct bloom_pool *pool, bool overfull, struct errbuf *err)
{
    struct bloom_union counts = {{0}, {0}};
    int status = merge->destination ? take_destination(merge, pool, err) : 0;
    for (size_t i = 0; i < merge->nsources && status == 0; i++) {
        const struct bf_source *source = &merge->sources[i];
        if (source->filter == merge->destination)
            continue;
        if (merge->places)
            status = bloom_window_or(merge->made, source->filter, source->turn, &counts, &merge->places[i], err);
        else
            bloom_filter_or(merge->made, source->filter, source->nlayers, &counts);
    }
    if (status != 0)
        return status;
    const struct bloom_filter *before = merge->places ? NULL : merge->destination;
    status = bloom_filter_count_union(merge->made, &counts, before, overfull, err);
    if (status != BLOOM_OK)
        errbuf_prefix(err, "the union would be too full (bf-merge-overfull)");
    return status;
}

bool bf_merge_changes_nothing(const struct bf_merge *merge)
{
    return merge->destination && bloom_filter_union_is(merge->made, merge->destination);
}
