/* Loading: the entries of the index are dealt out to threads in runs; each filter is loaded by one thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_resident.h"
#include "cuckoo.h"
#include "manifest_file.h"
#include "store_internal.h"
#include "store_loader.h"
#include "errbuf.h"
#include "lock.h"

#define LOAD_AT_ONCE 256 /* filters that a thread takes, and */
#define LOAD_SHARES  64  /* at most this part of the remaining ones */

#define REPORTED 10 /* filters in quarantine that the log names: a lost pack has thousands */

struct loading {
    struct store *store;
    struct bloom_pool *pool;
    const struct store_loader *loader;
    struct fate **written; /* filters written by store_write() */
    size_t nwritten;
    atomic_size_t next; /* entry to load next; after the entries, these */
    atomic_int rc;      /* the first failure of the loading as a whole */
    struct errbuf *err; /* its text; written by the thread that set `rc` */
    atomic_uint quarantined;
    struct store_load_summary *summary;
};

struct load_thread {
    struct loading *loading;
    struct record_reader reader;
    struct bits_reader bits;
    struct store_load_summary counts;
    pthread_t id;
    bool started;
};

static void fail(struct loading *loading, int rc, const struct errbuf *reason)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&loading->rc, &none, rc) && loading->err)
        *loading->err = *reason;
}

/* ---- one filter ---- */

/* A filter on its way into memory: one of the MANIFEST, or one that store_write() had written before a crash. */
struct loadee {
    struct load_thread *thread;
    const struct manifest_filter *filter;
    struct store_filter info;
    bool is_saved; /* in the MANIFEST */
};

/* Gives the filter all its layers, with their counts. */
static int make_layers(const struct manifest_filter *record, struct bloom_filter *bloom, struct errbuf *err)
{
    for (unsigned i = 0; i < record->nlayers; i++) {
        int rc = i > 0 ? bloom_filter_append_layer(bloom, &record->layers[i].shape, err) : 0;

        if (rc == -ENOMEM)
            errbuf_set(err, "out of memory");
        if (rc != 0) {
            errbuf_prefix(err, "layer %u", i);
            return rc;
        }
        bloom_filter_set_items(bloom, i, record->layers[i].items);
        if (bloom_params_have_turns(&record->params))
            bloom_filter_set_turn(bloom, i, &record->layers[i].turn);
    }
    return 0;
}

/* Filters that have no bits outside of the caller's memory are always read. */
static int read_filter(struct loadee *loadee, struct bloom_filter *bloom, struct errbuf *err)
{
    struct load_thread *thread = loadee->thread;
    const struct manifest_filter *record = loadee->filter;
    TRY(make_layers(record, bloom, err));
    thread->counts.layers += record->nlayers;
    if (loadee->info.leave && bloom_filter_droppable(bloom) > 0) {
        bloom_filter_drop(bloom);
        thread->counts.left++;
        return 0;
    }
    int rc = bits_read(&thread->bits, record, bloom, err);
    if (rc == 0 && bloom_params_is_cuckoo(&record->params))
        cuckoo_recount(bloom); /* a forged count would end the process at a deletion */
    thread->counts.bytes += rc == 0 ? manifest_filter_bytes(record) : 0;
    return rc;
}

static int load_into(struct loadee *loadee, struct bloom_class *class, struct errbuf *err)
{
    const struct store_loader *loader = loadee->thread->loading->loader;
    void *user = NULL;
    struct bloom_filter *filter = loader->alloc(loader->ctx, &loadee->info, class, &user, err);

    if (!filter)
        return -ENOMEM;
    int rc = read_filter(loadee, filter, err);
    if (rc != 0) {
        loader->discard(loader->ctx, filter, user);
        return rc;
    }
    loader->loaded(loader->ctx, &loadee->info, filter, user);
    loadee->thread->counts.filters++;
    return 0;
}

static int try_filter(struct loadee *loadee, struct errbuf *err)
{
    const struct manifest_filter *filter = loadee->filter;
    struct bloom_class *class = NULL;
    int rc = bloom_class_get(loadee->thread->loading->pool, &filter->params, &filter->layers[0].shape, &class, err);
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    if (rc != 0)
        return rc;
    rc = load_into(loadee, class, err);
    bloom_class_release(class);
    return rc;
}

static int quarantine(struct loadee *loadee, const struct errbuf *reason)
{
    struct load_thread *thread = loadee->thread;
    struct store *store = thread->loading->store;

    lock_take(&store->lock);
    int rc = fate_quarantine(store, loadee->info.id);
    lock_give(&store->lock);
    if (rc != 0)
        return rc;
    thread->counts.quarantined++;
    if (atomic_fetch_add(&thread->loading->quarantined, 1) < REPORTED)
        store_report(store, STORE_WARNING, "filter '%s' is quarantined: %s",
                     show_name(loadee->info.name, loadee->info.name_len).text, reason->text);
    thread->loading->loader->quarantined(thread->loading->loader->ctx, &loadee->info, reason->text);
    return 0;
}

static int load_filter(struct loadee *loadee, struct errbuf *err)
{
    struct loading *loading = loadee->thread->loading;
    const struct store_loader *loader = loading->loader;
    const struct manifest_filter *filter = loadee->filter;

    loadee->info = (struct store_filter){
        .id = filter->id,
        .name = filter->name,
        .name_len = filter->name_len,
        .expires_ms = filter->expires_ms,
        .newest = manifest_filter_newest(filter),
    };
    if (loader->resolve && !loader->resolve(loader->ctx, &loadee->info))
        return 0;
    /* Filters of store_write() are in no index yet. */
    if (loadee->is_saved && loader->leaves)
        loadee->info.leave = loader->leaves(loader->ctx, &loadee->info, manifest_filter_bytes(filter));
    if (try_filter(loadee, err) == 0)
        return 0;
    int rc = quarantine(loadee, err);
    return rc == 0 ? 0 : errbuf_fail(err, rc, "out of memory");
}

static int load_entry(struct load_thread *thread, const struct index_entry *entry, struct errbuf *err)
{
    struct loadee loadee = {.thread = thread, .is_saved = true};
    int rc = record_read(&thread->reader, entry->offset, &loadee.filter, err);

    if (rc != 0) {
        errbuf_prefix(err, "%s/MANIFEST", thread->loading->store->dir);
        return rc;
    }
    return load_filter(&loadee, err);
}

static int load_written(struct load_thread *thread, const struct fate *written, struct errbuf *err)
{
    struct loadee loadee = {.thread = thread};
    struct parsed_record parsed;
    TRY(parsed_record_init(&parsed, written->text, written->len, err));
    loadee.filter = parsed.filter;
    int rc = load_filter(&loadee, err);
    parsed_record_deinit(&parsed);
    return rc;
}

/* ---- threads ---- */

/* Takes neighbours, whose records and packs are read together; fewer towards the end: all threads end together. */
static bool take_numbers(struct loading *loading, size_t *from_out, size_t *to_out)
{
    size_t total = loading->store->committed.index.count + loading->nwritten;
    size_t from = atomic_load(&loading->next), n;

    do {
        if (from >= total || atomic_load(&loading->rc) != 0)
            return false;
        n = (total - from) / LOAD_SHARES;
        n = n < 1 ? 1 : n < LOAD_AT_ONCE ? n : LOAD_AT_ONCE;
    } while (!atomic_compare_exchange_weak(&loading->next, &from, from + n));
    *from_out = from;
    *to_out = from + n;
    return true;
}

static void *run_thread(void *arg)
{
    struct load_thread *thread = arg;
    const struct store_index *index = &thread->loading->store->committed.index;
    struct errbuf err;
    size_t i, to;

    while (take_numbers(thread->loading, &i, &to)) {
        for (; i < to; i++) {
            memset(&err, 0, sizeof(err));
            int rc = i < index->count ? load_entry(thread, &index->entries[i], &err)
                                      : load_written(thread, thread->loading->written[i - index->count], &err);
            if (rc != 0)
                fail(thread->loading, rc, &err);
        }
    }
    return NULL;
}

static void add_counts(struct store_load_summary *sum, const struct store_load_summary *counts)
{
    sum->filters += counts->filters;
    sum->quarantined += counts->quarantined;
    sum->left += counts->left;
    sum->layers += counts->layers;
    sum->bytes += counts->bytes;
}

/* Of records whose filters a save has by now, the log did not need to hand in any. */
static int list_written(struct loading *loading)
{
    struct store *store = loading->store;
    int rc = store->fates.count > 0 ? index_map(&store->committed.index) : 0;

    if (rc == 0)
        fates_drop_saved(store);
    index_unmap(&store->committed.index);
    return rc == 0 ? fates_list(store, &loading->written, &loading->nwritten) : rc;
}

int store_load(struct store *store, struct bloom_pool *pool, unsigned nthreads, const struct store_loader *loader,
               struct store_load_summary *summary_out, struct errbuf *err)
{
    struct loading loading = {.store = store, .pool = pool, .loader = loader, .err = err};
    struct store_load_summary summary = {0};
    struct load_thread *threads = calloc(nthreads, sizeof(*threads));
    int rc = list_written(&loading);

    if (rc == 0 && !threads)
        rc = -ENOMEM;
    for (unsigned i = 0; threads && i < nthreads && rc == 0; i++) {
        threads[i].loading = &loading;
        rc = record_reader_init(&threads[i].reader, store->fs, store->committed.fd);
        STEP(rc, bits_reader_init(&threads[i].bits, store));
    }
    if (rc != 0) {
        errbuf_set(err, "out of memory");
        goto out;
    }
    /* The caller is the first of the threads; without others the load takes longer. */
    for (unsigned i = 1; i < nthreads; i++)
        threads[i].started = pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) == 0;
    run_thread(&threads[0]);
    for (unsigned i = 1; i < nthreads; i++)
        if (threads[i].started)
            pthread_join(threads[i].id, NULL);
    if (atomic_load(&loading.quarantined) > REPORTED)
        store_report(store, STORE_WARNING, "%u more filters are quarantined",
                     atomic_load(&loading.quarantined) - REPORTED);
    rc = atomic_load(&loading.rc);
    STEP(rc, sweep_start(store, &summary, err));
out:
    for (unsigned i = 0; threads && i < nthreads; i++) {
        add_counts(&summary, &threads[i].counts);
        record_reader_deinit(&threads[i].reader);
        bits_reader_deinit(&threads[i].bits);
    }
    if (summary_out)
        *summary_out = summary;
    free(loading.written);
    free(threads);
    return rc;
}
