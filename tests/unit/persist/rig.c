#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bloom_resident.h"
#include "manifest_file.h"

static void demand(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "rig: %s\n", what);
    abort();
}

void rig_init(struct rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    demand(bloom_pool_create(&rig->pool) == 0, "no pool");
    pthread_mutex_init(&rig->mutex, NULL);
    rig->next_id = 1;
}

static void free_filter(struct bloom_filter *filter)
{
    if (!filter)
        return;
    bloom_filter_deinit(filter);
    free(filter);
}

void rig_deinit(struct rig *rig)
{
    for (size_t i = 0; i < rig->count; i++) {
        free_filter(rig->filters[i].filter);
        free(rig->filters[i].name);
    }
    bloom_pool_destroy(rig->pool);
    pthread_mutex_destroy(&rig->mutex);
}

static struct rig_filter *append(struct rig *rig, uint64_t id, const char *name, size_t name_len)
{
    demand(rig->count < RIG_MAX, "too many filters");
    struct rig_filter *filter = &rig->filters[rig->count++];
    *filter = (struct rig_filter){.id = id, .name = malloc(name_len + 1), .name_len = name_len};
    demand(filter->name != NULL, "out of memory");
    memcpy(filter->name, name, name_len);
    filter->name[name_len] = '\0';
    return filter;
}

static struct bloom_filter *make_filter(struct bloom_class *class)
{
    struct bloom_filter *filter = aligned_alloc(64, (bloom_filter_bytes(class) + 63) & ~(size_t)63);

    demand(filter && bloom_filter_init(filter, class, NULL) == 0, "no filter");
    return filter;
}

struct rig_filter *rig_add_bytes(struct rig *rig, const char *name, size_t name_len, const struct bloom_params *params,
                                 const struct bloom_shape *shape)
{
    struct bloom_class *class;
    struct errbuf err = {{0}};
    struct rig_filter *filter = append(rig, rig->next_id++, name, name_len);

    demand(bloom_class_get(rig->pool, params, shape, &class, &err) == 0, err.text);
    filter->filter = make_filter(class);
    filter->dirty = true;
    bloom_class_release(class);
    return filter;
}

struct rig_filter *rig_add(struct rig *rig, const char *name, const struct bloom_params *params,
                           const struct bloom_shape *shape)
{
    return rig_add_bytes(rig, name, strlen(name), params, shape);
}

struct rig_filter *rig_find(struct rig *rig, const char *name)
{
    for (size_t i = 0; i < rig->count; i++) {
        if (rig->filters[i].name_len == strlen(name) && memcmp(rig->filters[i].name, name, strlen(name)) == 0)
            return &rig->filters[i];
    }
    return NULL;
}

void rig_remove(struct rig *rig, const char *name)
{
    struct rig_filter *filter = rig_find(rig, name);

    demand(filter != NULL, "no such filter");
    free_filter(filter->filter);
    free(filter->name);
    *filter = rig->filters[--rig->count];
}

void rig_rename(struct rig *rig, const char *from, const char *to)
{
    struct rig_filter *filter = rig_find(rig, from);

    demand(filter != NULL, "no such filter");
    free(filter->name);
    filter->name = strdup(to);
    filter->name_len = strlen(to);
}

void rig_fill(struct rig_filter *filter, uint64_t from, uint64_t n)
{
    for (uint64_t i = from; i < from + n; i++)
        bloom_filter_add(filter->filter, murmur3_hash(&i, sizeof(i)), NULL);
    filter->dirty = true;
}

bool rig_has(const struct rig_filter *filter, uint64_t item)
{
    return bloom_filter_query(filter->filter, murmur3_hash(&item, sizeof(item)));
}

struct search {
    const char *name;
    unsigned layer;
    struct file_name file;
    uint64_t offset;
};

static int search_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct search *search = ctx;

    (void)err;
    if (filter->name_len != strlen(search->name) || memcmp(filter->name, search->name, filter->name_len) != 0)
        return 0;
    demand(search->layer < filter->nlayers, "no such layer");
    search->file = manifest_layer_file(filter, search->layer);
    search->offset = 0;
    if (filter->pack) {
        search->file = (struct file_name){.kind = FILE_PACK, .number = filter->pack};
        search->offset = filter->pack_offset;
        for (unsigned i = 0; i < search->layer; i++)
            search->offset += 8 + 8 * filter->layers[i].shape.nwords;
    }
    return 0;
}

struct rig_place rig_place(const struct fsops *fs, const char *dir, const char *name, unsigned layer)
{
    struct search search = {.name = name, .layer = layer};
    const struct manifest_sink sink = {.on_filter = search_filter, .ctx = &search};
    struct errbuf err = {{0}};
    const struct store_options options = {.fs = fs};
    struct rig_place place;

    demand(store_visit(dir, &options, &sink, NULL, &err) == 0, err.text);
    demand(search.file.number != 0, "no such filter");
    file_name_format(&search.file, place.file);
    snprintf(place.path, sizeof(place.path), "%s/filters/%s", dir, place.file);
    place.number = search.file.number;
    place.offset = search.offset;
    return place;
}

static uint64_t filter_digest(const struct rig_filter *filter)
{
    XXH3_state_t *state = XXH3_createState();
    const struct bloom_params *params = bloom_filter_params(filter->filter);
    unsigned nlayers = bloom_filter_nlayers(filter->filter);

    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, &filter->id, sizeof(filter->id));
    XXH3_64bits_update(state, &filter->expires_ms, sizeof(filter->expires_ms));
    XXH3_64bits_update(state, filter->name, filter->name_len);
    XXH3_64bits_update(state, &params->capacity, sizeof(params->capacity));
    XXH3_64bits_update(state, &params->error_rate, sizeof(params->error_rate));
    XXH3_64bits_update(state, &params->expansion, sizeof(params->expansion));
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter->filter, i, &view);
        XXH3_64bits_update(state, &view.shape.nwords, sizeof(view.shape.nwords));
        XXH3_64bits_update(state, &view.shape.k, 1);
        XXH3_64bits_update(state, &view.shape.variant, 1);
        XXH3_64bits_update(state, &view.items, sizeof(view.items));
        XXH3_64bits_update(state, (const void *)view.words, 8 * view.shape.nwords);
    }
    uint64_t digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return digest;
}

uint64_t rig_digest(const struct rig *rig)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < rig->count; i++) {
        if (rig->filters[i].filter)
            sum += filter_digest(&rig->filters[i]);
    }
    return sum;
}

/* ---- the store's callbacks ---- */

static void on_report(void *ctx, enum store_severity severity, const char *text)
{
    struct rig *rig = ctx;

    (void)severity;
    pthread_mutex_lock(&rig->mutex); /* threads of a load report at the same time */
    size_t len = strlen(rig->reports);
    snprintf(rig->reports + len, sizeof(rig->reports) - len, "%s\n", text);
    pthread_mutex_unlock(&rig->mutex);
}

struct store_options rig_options(struct rig *rig, const struct fsops *fs)
{
    return (struct store_options){.fs = fs, .report = on_report, .report_ctx = rig};
}

static struct bloom_filter *on_alloc(void *ctx, const struct store_filter *info, struct bloom_class *class,
                                     void **user_out, struct errbuf *err)
{
    (void)ctx;
    (void)info;
    (void)err;
    struct bloom_filter *filter = make_filter(class);
    *user_out = filter;
    return filter;
}

static struct rig_filter *loaded(struct rig *rig, const struct store_filter *info)
{
    pthread_mutex_lock(&rig->mutex);
    struct rig_filter *filter = append(rig, info->id, info->name, info->name_len);
    filter->expires_ms = info->expires_ms;
    pthread_mutex_unlock(&rig->mutex);
    return filter;
}

static void on_loaded(void *ctx, const struct store_filter *info, struct bloom_filter *filter, void *user)
{
    demand(user == filter, "user does not come back");
    loaded(ctx, info)->filter = filter;
}

static void on_discard(void *ctx, struct bloom_filter *filter, void *user)
{
    (void)ctx;
    demand(user == filter, "user does not come back");
    free_filter(filter);
}

static void on_quarantined(void *ctx, const struct store_filter *info, const char *reason)
{
    struct rig_filter *filter = loaded(ctx, info);

    snprintf(filter->reason, sizeof(filter->reason), "%s", reason);
}

static bool on_resolve(void *ctx, struct store_filter *info)
{
    struct rig *rig = ctx;

    return rig->resolve ? rig->resolve(rig, info) : true;
}

int rig_load(struct rig *rig, const char *dir, const struct fsops *fs, unsigned nthreads, struct store **store_out,
             struct errbuf *err)
{
    struct store_loader loader = {.resolve = on_resolve,
                                  .alloc = on_alloc,
                                  .loaded = on_loaded,
                                  .discard = on_discard,
                                  .quarantined = on_quarantined,
                                  .ctx = rig};
    struct store_options options = rig_options(rig, fs);
    struct store *store;
    int rc = store_open(dir, &options, &store, err);

    if (rc != 0)
        return rc;
    if (rig->replay)
        rig->replay(rig, store);
    rc = store_load(store, rig->pool, nthreads, &loader, &rig->loaded, err);
    if (rc != 0) {
        store_close(store);
        return rc;
    }
    rig->next_id = store_next_id(store);
    *store_out = store;
    return 0;
}

static int on_next(void *ctx, struct store_item *item)
{
    struct rig *rig = ctx;

    if (rig->on_next)
        rig->on_next(rig, rig->at);
    if (rig->at < rig->count) {
        struct rig_filter *filter = &rig->filters[rig->at++];
        *item = (struct store_item){.id = filter->id,
                                    .name = filter->name,
                                    .name_len = filter->name_len,
                                    .filter = filter->filter,
                                    .dirty = filter->dirty,
                                    .evicted = filter->filter && bloom_filter_is_dropped(filter->filter),
                                    .expires_ms = filter->expires_ms,
                                    .quarantined = !filter->filter};
        filter->dirty = false;
        return 1;
    }
    if (rig->at < rig->count + rig->nextra) {
        *item = rig->extra[rig->at++ - rig->count];
        return 1;
    }
    return 0;
}

static void on_release(void *ctx, struct store_item *item)
{
    (void)item;
    ((struct rig *)ctx)->released++;
}

static uint64_t on_next_id(void *ctx)
{
    return ((struct rig *)ctx)->next_id;
}

static int on_checkpoint(void *ctx, struct store_checkpoint *checkpoint_out, struct errbuf *err)
{
    struct rig *rig = ctx;

    if (rig->checkpoint_rc != 0)
        errbuf_set(err, "the log says no");
    *checkpoint_out = rig->checkpoint;
    return rig->checkpoint_rc;
}

int rig_save(struct rig *rig, struct store *store, struct store_save_summary *summary, struct errbuf *err)
{
    struct store_source source = {.next = on_next,
                                  .release = on_release,
                                  .next_id = on_next_id,
                                  .checkpoint = on_checkpoint,
                                  .ctx = rig,
                                  .pack_limit = rig->pack_limit,
                                  .keep_unlisted = rig->keep_unlisted};
    size_t before = rig->released;

    rig->at = 0;
    int rc = store_save(store, &source, summary, err);
    demand(rig->released - before == rig->at, "items not released");
    return rc;
}
