/* Saves while other threads add: what an add has been answered for before a save began is in that save. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "rig.h"
#include "tmpdir.h"

#define NADDERS 3
#define NSAVES  8
#define NFILTERS 3

static struct rig rig;
static atomic_bool stop;
static _Atomic uint64_t acknowledged[NADDERS]; /* items 0 .. n - 1 of this thread have been added */

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

/* Every item goes to every filter. */
static void *add(void *arg)
{
    size_t thread = (size_t)arg;

    for (uint64_t i = 0; !atomic_load(&stop); i++) {
        uint64_t item = item_of(thread, i);
        for (size_t f = 0; f < NFILTERS; f++)
            bloom_filter_add(rig.filters[f].filter, murmur3_hash(&item, sizeof(item)), NULL);
        atomic_store_explicit(&acknowledged[thread], i + 1, memory_order_release);
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
    demand(loaded.count == NFILTERS && loaded.loaded.quarantined == 0, loaded.reports);
    for (size_t f = 0; f < NFILTERS; f++) {
        for (size_t thread = 0; thread < NADDERS; thread++) {
            for (uint64_t i = 0; i < before[thread]; i++)
                demand(rig_has(&loaded.filters[f], item_of(thread, i)), "an item added before the save is not in it");
        }
    }
    store_close(store);
    rig_deinit(&loaded);
}

int main(void)
{
    static const struct bloom_params params[NFILTERS] = {
        {.capacity = 100, .error_rate = 1e-4, .expansion = 2},
        {.capacity = 5000000, .error_rate = 0.01, .expansion = 0},
        {.capacity = 50000, .error_rate = 0.01, .expansion = 2},
    };
    char dir[TMPDIR_SIZE];
    char name[2] = "a";
    pthread_t adders[NADDERS];
    struct store *store;
    struct errbuf err = {{0}};

    tmpdir_create(dir);
    rig_init(&rig);
    demand(rig_load(&rig, dir, NULL, 1, &store, &err) == 0, err.text);
    for (size_t f = 0; f < NFILTERS; f++, name[0]++)
        rig_add(&rig, name, &params[f], NULL);
    for (size_t thread = 0; thread < NADDERS; thread++)
        demand(pthread_create(&adders[thread], NULL, add, (void *)thread) == 0, "no thread");
    for (int save = 0; save < NSAVES; save++) {
        uint64_t before[NADDERS];
        for (size_t thread = 0; thread < NADDERS; thread++)
            before[thread] = atomic_load_explicit(&acknowledged[thread], memory_order_acquire);
        for (size_t f = 0; f < NFILTERS; f++)
            rig.filters[f].dirty = true;
        demand(rig_save(&rig, store, NULL, &err) == 0, err.text);
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
    tmpdir_remove(dir);
    printf("%d saves, %llu items\n", NSAVES, (unsigned long long)acknowledged[0]);
    return 0;
}
