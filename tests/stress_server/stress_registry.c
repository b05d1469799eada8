/* The registry under many threads at once: names are created, deleted, renamed, cleared and walked while others look
 * names up, query and add. Run under ThreadSanitizer and AddressSanitizer too: they detect a filter that is freed
 * too early.
 *
 * Claims: a name that is never deleted is always found, however its neighbours come and go; a name that is only ever
 * replaced is never missing; a creation has exactly one winner; in the end the account of memory is zero. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry_rig.h"
#include "registry_walk.h"

#define STABLE  64
#define CHURN   512
#define ROUNDS  20000
#define READERS 2
#define WRITERS 2

static _Atomic int created[CHURN];

static void *reader(void *arg)
{
    unsigned state = (unsigned)(uintptr_t)arg;
    char text[32];
    rcu_reader_begin();
    while (atomic_load(&running_writers)) {
        rcu_reader_online();
        struct entry *entry = registry_lookup(registry, kind_name(text, "stable", (unsigned)rand_r(&state) % STABLE));
        EXPECT(entry, "%s is missing", text);
        entry = registry_lookup(registry, (struct slice){"replaced", 8});
        EXPECT(entry, "'replaced' is missing");
        /* A found entry may be used until offline, also when another thread deletes it now. */
        entry = registry_lookup(registry, kind_name(text, "churn", (unsigned)rand_r(&state) % CHURN));
        if (entry) {
            struct bloom_hash hash = {(unsigned)rand_r(&state), (unsigned)rand_r(&state)};
            bloom_filter_add(entry_filter(entry), hash, NULL);
            entry_mark_dirty(entry);
            EXPECT(bloom_filter_query(entry_filter(entry), hash) || bloom_filter_items(entry_filter(entry)) >= 100,
                   "an item was lost");
        }
        rcu_reader_offline();
    }
    rcu_reader_end();
    return NULL;
}

static void *writer(void *arg)
{
    unsigned state = 1000 + (unsigned)(uintptr_t)arg;
    char a[32], b[32];
    struct entry *entry;
    rcu_reader_begin();
    for (unsigned i = 0; i < ROUNDS; i++) {
        rcu_reader_online();
        unsigned n = (unsigned)rand_r(&state) % CHURN;
        struct slice from = kind_name(a, "churn", n), to = kind_name(b, "churn", (unsigned)rand_r(&state) % CHURN);
        switch (rand_r(&state) % 4) {
        case 0:
            create(from, &entry);
            break;
        case 1:
            registry_delete(registry, from);
            break;
        case 2:
            registry_rename(registry, from, to, false, NULL);
            break;
        default:
            create(from, &entry);
            registry_rename(registry, from, (struct slice){"replaced", 8}, false, NULL);
            break;
        }
        rcu_reader_offline();
    }
    rcu_reader_end();
    atomic_fetch_sub(&running_writers, 1);
    return NULL;
}

static void count_stable(void *ctx, struct slice name, struct entry *entry)
{
    (void)entry;
    if (name.len > 7 && memcmp(name.ptr, "stable:", 7) == 0)
        ++*(unsigned *)ctx;
}

static void *scanner(void *arg)
{
    (void)arg;
    rcu_reader_begin();
    while (atomic_load(&running_writers)) {
        unsigned stable = 0;
        uint64_t cursor = 0;
        do {
            rcu_reader_online();
            cursor = registry_scan(registry, cursor, 50, count_stable, &stable);
            rcu_reader_offline();
        } while (cursor);
        EXPECT(stable == STABLE, "a sweep returned %u of %u names that are always there", stable, STABLE);
    }
    rcu_reader_end();
    return NULL;
}

/* Like the saver: held entries are read slowly, also when other threads delete them meanwhile. */
static void *walker(void *arg)
{
    (void)arg;
    while (atomic_load(&running_writers)) {
        struct registry_item item;
        unsigned stable = 0;
        uint64_t bits = 0;
        registry_walk_begin(registry, NULL, NULL);
        while (registry_walk_next(registry, &item) == 1) {
            if (item.entry) {
                struct bloom_layer_view view;
                bloom_filter_layer(entry_filter(item.entry), 0, &view);
                for (uint64_t w = 0; w < view.shape.nwords; w++)
                    bits += (uint64_t)__builtin_popcountll(atomic_load_explicit(&view.words[w], memory_order_relaxed));
                count_stable(&stable, item.name, item.entry);
            }
            registry_walk_release(&item);
        }
        (void)bits;
        registry_walk_end(registry);
        EXPECT(stable == STABLE, "a walk yielded %u of %u names that are always there", stable, STABLE);
    }
    return NULL;
}

static pthread_barrier_t barrier;

/* All threads create the same names at the same time. */
static void *racer(void *arg)
{
    char text[32];
    struct entry *entry;
    (void)arg;
    rcu_reader_begin();
    for (unsigned i = 0; i < CHURN; i++) {
        rcu_reader_offline();
        pthread_barrier_wait(&barrier);
        rcu_reader_online();
        if (create(kind_name(text, "race", i), &entry) == REGISTRY_OK)
            atomic_fetch_add(&created[i], 1);
    }
    rcu_reader_end();
    return NULL;
}

int main(void)
{
    struct entry *entry;
    char text[32];

    registry_rig_init(0);
    for (unsigned i = 0; i < STABLE; i++)
        create(kind_name(text, "stable", i), &entry);
    create((struct slice){"replaced", 8}, &entry);

    void *(*const race[])(void *) = {racer, racer, racer, racer};
    pthread_barrier_init(&barrier, NULL, 4);
    run_threads(race, 4);
    for (unsigned i = 0; i < CHURN; i++)
        EXPECT(created[i] == 1, "race:%u was created by %d threads", i, created[i]);

    void *(*const mixed[])(void *) = {reader, reader, writer, writer, scanner, walker};
    running_writers = WRITERS;
    run_threads(mixed, 6);

    registry_rig_deinit(STABLE + 1);
    return 0;
}
