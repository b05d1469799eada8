/* Loading: the entries of the index are dealt out to threads one by one; each filter is loaded by one thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"

struct loading {
    struct store *store;
    struct bloom_pool *pool;
    const struct store_loader *loader;
    atomic_size_t next;      /* entry to be loaded */
    atomic_int rc;           /* the first failure of the loading as a whole */
    struct errbuf *err;      /* its text; written by the thread that set `rc` */
    pthread_mutex_t mutex;   /* guards the summary */
    struct store_load_summary *summary;
};

struct load_thread {
    struct loading *loading;
    struct record_reader reader;
    struct layer_io io;
    struct store_load_summary counts;
    pthread_t id;
    bool started;
};

/* What the directory of a filter holds beside what the MANIFEST says. */
struct inventory {
    struct load_thread *thread;
    const struct manifest_filter *filter;
    const char *dir;
    bool committed_temp[BLOOM_MAX_LAYERS]; /* the layer's file is still under its temporary name */
    struct file_name *leftovers;           /* of saves that did not take place */
    size_t nleftovers;
};

static void fail(struct loading *loading, int rc, const struct errbuf *reason)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&loading->rc, &none, rc) && loading->err)
        *loading->err = *reason;
}

/* ---- one filter ---------------------------------------------------------------------------------------------------- */

static int visit_file(void *ctx, const char *name)
{
    struct inventory *inventory = ctx;
    const struct manifest_filter *filter = inventory->filter;
    struct file_name file;
    bool ours = file_name_parse(name, &file);

    if (ours && !file.temporary && file.layer < filter->nlayers)
        return 0;
    if (!ours || !file.temporary) {
        inventory->thread->counts.foreign++;
        store_report(inventory->thread->loading->store, STORE_WARNING,
                     "filters/%s/%s is not known to the MANIFEST and is left alone", inventory->dir, name);
        return 0;
    }
    if (file.layer < filter->nlayers && file.generation == filter->layers[file.layer].generation) {
        inventory->committed_temp[file.layer] = true;
        return 0;
    }
    struct file_name *leftovers = realloc(inventory->leftovers, (inventory->nleftovers + 1) * sizeof(*leftovers));
    if (!leftovers)
        return -ENOMEM;
    leftovers[inventory->nleftovers++] = file;
    inventory->leftovers = leftovers;
    return 0;
}

static int take_inventory(struct inventory *inventory, struct errbuf *err)
{
    struct store *store = inventory->thread->loading->store;
    struct path path;
    int rc = path_dir(store, &path, inventory->dir, err);

    if (rc != 0)
        return rc;
    rc = store->fs->list(store->fs->ctx, path.text, visit_file, inventory);
    if (rc == -ENOENT)
        errbuf_set(err, "%s: missing", path.text);
    else if (rc != 0)
        errbuf_set(err, "%s: cannot read the directory: %s", path.text, strerror(-rc));
    return rc;
}

static int read_layers(struct inventory *inventory, struct bloom_filter *filter, struct errbuf *err)
{
    struct load_thread *thread = inventory->thread;
    struct store *store = thread->loading->store;

    for (unsigned i = 0; i < inventory->filter->nlayers; i++) {
        const struct manifest_layer *layer = &inventory->filter->layers[i];
        struct bloom_shape shape = {layer->nwords, layer->k, (uint8_t)inventory->filter->variant};
        struct bloom_layer_view view;
        struct path path;
        int rc = inventory->committed_temp[i] ? path_temp(store, &path, inventory->dir, i, layer->generation, err)
                                              : path_final(store, &path, inventory->dir, i, err);

        if (rc == 0 && i > 0)
            rc = bloom_filter_append_layer(filter, &shape, err);
        if (rc == -ENOMEM)
            errbuf_set(err, "out of memory");
        if (rc != 0) {
            errbuf_prefix(err, "layer %u", i);
            return rc;
        }
        bloom_filter_layer(filter, i, &view);
        rc = layer_read(&thread->io, path.text, &view, layer->xxh3, err);
        if (rc != 0) {
            errbuf_prefix(err, "%s", path.text);
            return rc;
        }
        bloom_filter_set_items(filter, i, layer->items);
        thread->counts.layers++;
        thread->counts.bytes += 8 + 8 * layer->nwords;
    }
    return 0;
}

/* The filter is whole: its files get their names, and what unfinished saves have left goes. */
static void tidy_up(struct inventory *inventory)
{
    struct load_thread *thread = inventory->thread;
    struct store *store = thread->loading->store;
    struct errbuf reason;
    struct path path;
    uint64_t found = 0;

    for (unsigned i = 0; i < inventory->filter->nlayers; i++)
        found += inventory->committed_temp[i];
    if (found > 0 && finish_filter(store, inventory->filter, 0, &reason) != 0) {
        pthread_mutex_lock(&thread->loading->mutex);
        store->unfinished = true;
        pthread_mutex_unlock(&thread->loading->mutex);
        store_report(store, STORE_WARNING, "%s; this will be tried again", reason.text);
    }
    thread->counts.recovered += found;
    for (size_t i = 0; i < inventory->nleftovers; i++) {
        const struct file_name *file = &inventory->leftovers[i];
        if (path_temp(store, &path, inventory->dir, file->layer, file->generation, NULL) == 0 &&
            store->fs->unlink(store->fs->ctx, path.text) == 0)
            thread->counts.leftovers++;
    }
}

static int load_into(struct inventory *inventory, struct bloom_class *class, const struct store_filter *info,
                     struct errbuf *err)
{
    struct loading *loading = inventory->thread->loading;
    const struct store_loader *loader = loading->loader;
    void *user = NULL;
    struct bloom_filter *filter = loader->alloc(loader->ctx, info, class, &user, err);

    if (!filter)
        return -ENOMEM;
    int rc = read_layers(inventory, filter, err);
    if (rc != 0) {
        loader->discard(loader->ctx, filter, user);
        return rc;
    }
    tidy_up(inventory);
    loader->loaded(loader->ctx, info, filter, user);
    inventory->thread->counts.filters++;
    return 0;
}

static int try_filter(struct inventory *inventory, const struct store_filter *info, struct errbuf *err)
{
    struct loading *loading = inventory->thread->loading;
    const struct manifest_filter *filter = inventory->filter;
    struct bloom_shape shape = {filter->layers[0].nwords, filter->layers[0].k, (uint8_t)filter->variant};
    struct bloom_class *class = NULL;
    int rc = take_inventory(inventory, err);

    if (rc != 0)
        return rc;
    rc = bloom_class_get(loading->pool, &filter->params, &shape, &class, err);
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    if (rc != 0)
        return rc;
    rc = load_into(inventory, class, info, err);
    bloom_class_release(class);
    return rc;
}

static int quarantine(struct load_thread *thread, struct index_entry *entry, const struct store_filter *info,
                      const struct errbuf *reason)
{
    struct store *store = thread->loading->store;
    struct shown_name shown = show_name(info->name, info->name_len);
    int rc;

    pthread_mutex_lock(&store->mutex);
    entry->flags |= INDEX_QUARANTINED;
    rc = id_list_add(&store->quarantined, info->id);
    pthread_mutex_unlock(&store->mutex);
    if (rc != 0)
        return rc;
    thread->counts.quarantined++;
    store_report(store, STORE_WARNING, "filter '%s' is quarantined: %s", shown.text, reason->text);
    thread->loading->loader->quarantined(thread->loading->loader->ctx, info, reason->text);
    return 0;
}

static int load_entry(struct load_thread *thread, struct index_entry *entry, struct errbuf *err)
{
    const struct manifest_filter *filter;
    struct inventory inventory = {.thread = thread};
    char dir[NAME_DIR_MAX + 1];
    int rc = record_read(&thread->reader, index_offset(entry), &filter, err);

    if (rc != 0) {
        errbuf_prefix(err, "%s/MANIFEST", thread->loading->store->dir);
        return rc;
    }
    struct store_filter info = {.id = filter->id,
                                .name = filter->name,
                                .name_len = filter->name_len,
                                .expires_ms = filter->expires_ms,
                                .log_position = filter->log_position};
    name_dir(filter->name, filter->name_len, dir);
    inventory.filter = filter;
    inventory.dir = dir;
    if (try_filter(&inventory, &info, err) != 0)
        rc = quarantine(thread, entry, &info, err);
    free(inventory.leftovers);
    return rc;
}

/* ---- directories that no filter has --------------------------------------------------------------------------------- */

struct sweep {
    struct load_thread *thread;
    const char *dir;
    bool foreign; /* holds something that is not ours */
};

static int visit_stray_file(void *ctx, const char *name)
{
    struct sweep *sweep = ctx;
    struct store *store = sweep->thread->loading->store;
    struct file_name file;
    struct path path;

    if (!file_name_parse(name, &file) || !file.temporary) {
        sweep->foreign = true;
        return 0;
    }
    if (path_temp(store, &path, sweep->dir, file.layer, file.generation, NULL) == 0 &&
        store->fs->unlink(store->fs->ctx, path.text) == 0)
        sweep->thread->counts.leftovers++;
    return 0;
}

/* A directory of a filter that an unfinished save was about to add holds temporary files only: it is removed. */
static int visit_dir(void *ctx, const char *name)
{
    struct load_thread *thread = ctx;
    struct store *store = thread->loading->store;
    struct sweep sweep = {.thread = thread, .dir = name};
    struct path path;

    /* By the hash alone: a foreign directory that happened to have the hash of one of ours would not be reported. */
    if (index_find_dir(&store->index, index_dir_hash(name, strlen(name)), INDEX_NONE) != INDEX_NONE)
        return 0;
    if (!name_dir_valid(name, strlen(name)) || path_dir(store, &path, name, NULL) != 0 ||
        store->fs->list(store->fs->ctx, path.text, visit_stray_file, &sweep) != 0)
        sweep.foreign = true;
    if (!sweep.foreign && store->fs->rmdir(store->fs->ctx, path.text) == 0)
        return 0;
    thread->counts.foreign++;
    store_report(store, STORE_WARNING, "filters/%s is not known to the MANIFEST and is left alone", name);
    return 0;
}

static int sweep_dirs(struct load_thread *thread, struct errbuf *err)
{
    struct store *store = thread->loading->store;
    struct path path;
    int rc = path_root(store, &path, "filters", err);

    if (rc == 0)
        rc = index_map(&store->index);
    if (rc == 0)
        rc = store->fs->list(store->fs->ctx, path.text, visit_dir, thread);
    index_unmap(&store->index);
    if (rc != 0)
        errbuf_set(err, "%s: %s", path.text, strerror(-rc));
    /* Without the directory every filter has been quarantined already, which says more. */
    return rc == -ENOENT ? 0 : rc;
}

/* ---- threads ------------------------------------------------------------------------------------------------------- */

static void *run_thread(void *arg)
{
    struct load_thread *thread = arg;
    struct loading *loading = thread->loading;
    struct store_index *index = &loading->store->index;
    struct errbuf err;

    for (;;) {
        size_t i = atomic_fetch_add(&loading->next, 1);
        if (i >= index->count || atomic_load(&loading->rc) != 0)
            return NULL;
        memset(&err, 0, sizeof(err));
        int rc = load_entry(thread, &index->entries[i], &err);
        if (rc != 0)
            fail(loading, rc, &err);
    }
}

static int thread_init(struct load_thread *thread, struct loading *loading)
{
    thread->loading = loading;
    int rc = record_reader_init(&thread->reader, loading->store->fs, loading->store->manifest_fd);

    return rc != 0 ? rc : layer_io_init(&thread->io, loading->store->fs);
}

static void add_counts(struct store_load_summary *sum, const struct store_load_summary *counts)
{
    sum->filters += counts->filters;
    sum->quarantined += counts->quarantined;
    sum->layers += counts->layers;
    sum->bytes += counts->bytes;
    sum->recovered += counts->recovered;
    sum->leftovers += counts->leftovers;
    sum->foreign += counts->foreign;
}

int store_load(struct store *store, struct bloom_pool *pool, unsigned nthreads, const struct store_loader *loader,
               struct store_load_summary *summary_out, struct errbuf *err)
{
    struct loading loading = {.store = store, .pool = pool, .loader = loader, .err = err};
    struct store_load_summary summary = {0};
    struct load_thread *threads = calloc(nthreads, sizeof(*threads));
    int rc = threads ? 0 : -ENOMEM;

    pthread_mutex_init(&loading.mutex, NULL);
    for (unsigned i = 0; threads && i < nthreads && rc == 0; i++)
        rc = thread_init(&threads[i], &loading);
    if (rc != 0) {
        errbuf_set(err, "out of memory");
        goto out;
    }
    /* The caller is the first of the threads; if others cannot be had, it takes longer. */
    for (unsigned i = 1; i < nthreads; i++)
        threads[i].started = pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) == 0;
    run_thread(&threads[0]);
    for (unsigned i = 1; i < nthreads; i++) {
        if (threads[i].started)
            pthread_join(threads[i].id, NULL);
    }
    rc = atomic_load(&loading.rc);
    if (rc == 0)
        rc = sweep_dirs(&threads[0], err);
out:
    for (unsigned i = 0; threads && i < nthreads; i++) {
        add_counts(&summary, &threads[i].counts);
        record_reader_deinit(&threads[i].reader);
        layer_io_deinit(&threads[i].io);
    }
    if (summary_out)
        *summary_out = summary;
    pthread_mutex_destroy(&loading.mutex);
    free(threads);
    return rc;
}
