/* Saves while other threads add, and while one thread writes short-lived single filters: an add acknowledged before a
 * save began is in that save, and removed filters leave nothing behind. One filter stays in packs, one grows out of
 * them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest.h"
#include "rig.h"
#include "tmpdir.h"

#define NADDERS  3
#define NSAVES   8
#define NFILTERS 4
#define PACKED   3     /* the filter that stays in packs */
#define AT_ONCE  20000 /* items of each thread in one save */

static struct rig rig;
static atomic_bool stop, stop_writing;
static _Atomic uint64_t acknowledged[NADDERS]; /* items 0 .. n - 1 of this thread have been added */
static _Atomic uint64_t allowed;               /* number of items at full speed */

static void demand(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "stress_save: %s\n", what);
    exit(1);
}

static uint64_t item_of(size_t thread, uint64_t i)
{
    return (uint64_t)thread << 40 | i;
}

/* Every item goes to every filter. If a save takes long, on a slow disk or a busy machine, adds continue slowly: all
 * of them are checked later, and they take time that the save needs. */
static void *add(void *arg)
{
    size_t thread = (size_t)arg;

    for (uint64_t i = 0; !atomic_load(&stop); i++) {
        if (i >= atomic_load(&allowed))
            usleep(1000);
        uint64_t item = item_of(thread, i);
        for (size_t f = 0; f < NFILTERS; f++)
            bloom_filter_add(rig.filters[f].filter, murmur3_hash(&item, sizeof(item)), NULL);
        atomic_store_explicit(&acknowledged[thread], i + 1, memory_order_release);
    }
    return NULL;
}

struct writer {
    struct rig rig;
    struct store *store;
    uint64_t written;
};

/* Filters that are discarded, or published and deleted immediately. They share no id with the others. */
static void *write_and_drop(void *arg)
{
    struct writer *writer = arg;
    struct rig_filter *filter = &writer->rig.filters[0];

    for (uint64_t id = 1000 + writer->written; !atomic_load(&stop_writing); id++) {
        struct store_item item = {.id = id, .name = id % 3 ? filter->name : "a", .filter = filter->filter};
        struct store_record record;
        struct errbuf err = {{0}};

        item.name_len = strlen(item.name);
        demand(store_write(writer->store, &item, &record, &err) == 0, err.text);
        free(record.text);
        if (id % 2)
            store_published(writer->store, id);
        else
            store_discard(writer->store, id);
        writer->written++;
    }
    return NULL;
}

static void check(const char *dir, const uint64_t before[NADDERS])
{
    struct store *store;
    struct errbuf err = {{0}};
    struct rig loaded;

    rig_init(&loaded);
    demand(rig_load(&loaded, dir, NULL, 2, &store, &err) == 0, err.text);
    demand(loaded.count == NFILTERS && loaded.loaded.quarantined + loaded.loaded.foreign == 0, loaded.reports);
    for (size_t f = 0; f < NFILTERS; f++) {
        for (size_t thread = 0; thread < NADDERS; thread++) {
            for (uint64_t i = 0; i < before[thread]; i++)
                demand(rig_has(&loaded.filters[f], item_of(thread, i)), "an item added before the save is not in it");
        }
    }
    store_close(store);
    rig_deinit(&loaded);
}

static void check_files(const char *dir)
{
    size_t nfiles = 2; /* a pack and the mark of the last save */

    for (size_t f = 0; f < rig.count; f++) {
        struct rig_place place = rig_place(NULL, dir, rig.filters[f].name, 0);
        bool packed = strstr(place.file, ".pack") != NULL;
        demand(packed || f != PACKED, "files of a filter that is in a pack");
        nfiles += packed ? 0 : bloom_filter_nlayers(rig.filters[f].filter);
    }
    demand(dir_count(tmp_path(dir, "filters").text) <= nfiles, "files of filters that are gone");
}

int main(void)
{
    static const struct bloom_params params[NFILTERS] = {
        {.capacity = 100, .error_rate = 1e-4, .expansion = 2},
        {.capacity = 5000000, .error_rate = 0.01, .expansion = 0},
        {.capacity = 60000, .error_rate = 0.01, .expansion = 2},
        {.capacity = 5000000, .error_rate = 0.01, .expansion = 0},
    };
    static const struct bloom_shape largest = {.nwords = MANIFEST_MAX_PACKED / 8 - 1, .k = 1, .variant = BLOOM_KA};
    char dir[TMPDIR_SIZE];
    char name[2] = "a";
    pthread_t adders[NADDERS], writer_thread;
    struct writer writer;
    struct store *store;
    struct errbuf err = {{0}};

    tmpdir_create(dir);
    rig_init(&rig);
    demand(rig_load(&rig, dir, NULL, 1, &store, &err) == 0, err.text);
    rig_init(&writer.rig);
    writer.written = 0;
    rig_fill(rig_add(&writer.rig, "come and gone", &params[2], NULL), 0, 100);
    for (size_t f = 0; f < NFILTERS; f++, name[0]++)
        rig_add(&rig, name, &params[f], f == PACKED ? &largest : NULL);
    rig.pack_limit = MANIFEST_MAX_PACKED;
    for (size_t thread = 0; thread < NADDERS; thread++)
        demand(pthread_create(&adders[thread], NULL, add, (void *)thread) == 0, "no thread");
    for (int save = 0; save < NSAVES; save++) {
        uint64_t before[NADDERS];
        for (size_t thread = 0; thread < NADDERS; thread++)
            before[thread] = atomic_load_explicit(&acknowledged[thread], memory_order_acquire);
        for (size_t f = 0; f < NFILTERS; f++)
            rig.filters[f].dirty = true;
        writer.store = store;
        atomic_fetch_add(&allowed, AT_ONCE);
        atomic_store(&stop_writing, false);
        demand(pthread_create(&writer_thread, NULL, write_and_drop, &writer) == 0, "no thread");
        demand(rig_save(&rig, store, NULL, &err) == 0, err.text);
        demand(rig_save(&rig, store, NULL, &err) == 0, err.text);
        atomic_store(&stop_writing, true);
        pthread_join(writer_thread, NULL);
        demand(rig_save(&rig, store, NULL, &err) == 0, err.text);
        check_files(dir);
        store_close(store);
        check(dir, before);
        struct store_options options = rig_options(&rig, NULL);
        demand(store_open(dir, &options, &store, &err) == 0, err.text);
    }
    atomic_store(&stop, true);
    for (size_t thread = 0; thread < NADDERS; thread++)
        pthread_join(adders[thread], NULL);
    store_close(store);
    rig_deinit(&rig);
    rig_deinit(&writer.rig);
    tmpdir_remove(dir);
    printf("%d saves, %llu items, %llu filters written\n", 3 * NSAVES, (unsigned long long)acknowledged[0],
           (unsigned long long)writer.written);
    return 0;
}
