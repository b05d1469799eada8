/* Expiry racing with all other operations: names get times of a millisecond and are renamed, deleted, replaced,
 * added to and walked while the expirer removes them. Run under ThreadSanitizer and AddressSanitizer too.
 *
 * Claims: a filter whose time is always postponed is never gone; a filter that a reader has found gone never comes
 * back; every filter is created once and ends once, in the reported order, and a filter reported as ended is not
 * found; the numbers and the memory agree in the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "registry.h"
#include "registry_effect.h"
#include "registry_rig.h"
#include "registry_walk.h"

#define SAFE    32
#define CHURN   128
#define RACED   8
#define ROUNDS  12000
#define WRITERS 2
#define MAX_ID  (1u << 20)

/* By id: 0 not yet, 1 there, 2 ended. Written under the registry's mutex. */
static _Atomic unsigned char life[MAX_ID];
static _Atomic long alive, expired;

static void begins(uint64_t id)
{
    EXPECT(id < MAX_ID && life[id] == 0, "%llu begins twice", (unsigned long long)id);
    life[id] = 1;
    alive++;
}

static void ends(uint64_t id)
{
    EXPECT(id < MAX_ID && life[id] == 1, "%llu ends, but was not there", (unsigned long long)id);
    life[id] = 2;
    alive--;
}

static void on_effect(void *ctx, const struct registry_effect *effect)
{
    (void)ctx;
    switch (effect->kind) {
    case REGISTRY_CREATED:
    case REGISTRY_LOADED:
        begins(effect->id);
        break;
    case REGISTRY_EXPIRED:
        expired++;
        ends(effect->id);
        break;
    case REGISTRY_DELETED:
        ends(effect->id);
        break;
    case REGISTRY_RENAMED:
    case REGISTRY_EXPIRY:
        EXPECT(life[effect->id] == 1, "%llu changes, but is not there", (unsigned long long)effect->id);
        break;
    case REGISTRY_CLEARED:
        for (size_t id = 0; id < MAX_ID; id++)
            if (life[id] == 1)
                ends(id);
        break;
    case REGISTRY_DATABASE_CLEARED:
    case REGISTRY_SWAPPED:
        EXPECT(false, "%s", "there is one database here");
        break;
    }
    if (effect->replaced_id)
        ends(effect->replaced_id);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void make(struct slice name)
{
    struct entry *entry;
    (void)create(name, &entry);
}

static void use(struct entry *entry, unsigned *state)
{
    struct bloom_hash hash = {(unsigned)rand_r(state), (unsigned)rand_r(state)};
    bloom_filter_add(entry_filter(entry), hash, NULL);
    entry_mark_dirty(entry);
    entry_note_use(entry, (uint16_t)rand_r(state));
}

/* Repeatedly looks up a raced name: a filter that was gone must not be there again. */
static void watch_raced(unsigned i, uint64_t *seen, uint64_t *gone)
{
    char text[32];
    struct entry *entry = registry_lookup(registry, kind_name(text, "raced", i));
    if (entry) {
        EXPECT(entry->id != *gone, "%s came back after it had expired", text);
        *seen = entry->id;
    } else if (*seen) {
        *gone = *seen;
    }
}

static void *reader(void *arg)
{
    unsigned state = (unsigned)(uintptr_t)arg;
    uint64_t seen[RACED] = {0}, gone[RACED] = {0};
    char text[32];
    rcu_reader_begin();
    while (atomic_load(&running_writers)) {
        rcu_reader_online();
        struct entry *entry = registry_lookup(registry, kind_name(text, "safe", (unsigned)rand_r(&state) % SAFE));
        EXPECT(entry, "%s is gone", text);
        /* A filter reported as ended before the lookup is not found. */
        struct slice name = kind_name(text, "churn", (unsigned)rand_r(&state) % CHURN);
        entry = registry_lookup(registry, name);
        if (entry && life[entry->id] == 2) {
            struct entry *again = registry_lookup(registry, name);
            EXPECT(!again || again->id != entry->id, "%s is found after its end", text);
        }
        if (entry)
            use(entry, &state);
        unsigned i = (unsigned)rand_r(&state) % RACED;
        watch_raced(i, &seen[i], &gone[i]);
        rcu_reader_offline();
    }
    rcu_reader_end();
    return NULL;
}

/* Times are postponed at the moment they are due; a racer that is too late creates the filter again. */
static void *racer(void *arg)
{
    unsigned state = 77 + (unsigned)(uintptr_t)arg;
    char text[32];
    rcu_reader_begin();
    while (atomic_load(&running_writers)) {
        rcu_reader_online();
        struct slice name = kind_name(text, "raced", (unsigned)rand_r(&state) % RACED);
        if (registry_expire(registry, name, now_ms() + 1 + rand_r(&state) % 3, 0) == REGISTRY_NOT_FOUND)
            make(name);
        rcu_reader_offline();
    }
    rcu_reader_end();
    return NULL;
}

static void publish(struct slice name, unsigned what)
{
    struct registry_publication how = {
        .only_new = what & 1, .keep_expiry = what & 2, .expires_ms = what & 4 ? now_ms() + 1 : 0};
    struct entry *entry;
    if (registry_prepare(registry, name, class, false, &entry, NULL) != REGISTRY_OK)
        return;
    rcu_reader_offline(); /* as during a wait for the disk: entries that others delete do not outlive the change */
    int status = registry_publish(registry, entry, &how);
    rcu_reader_online();
    if (status != REGISTRY_OK)
        registry_abandon(registry, entry);
}

static void *writer(void *arg)
{
    unsigned state = 1000 + (unsigned)(uintptr_t)arg;
    char a[32], b[32];
    rcu_reader_begin();
    for (unsigned i = 0; i < ROUNDS; i++) {
        rcu_reader_online();
        struct slice from = kind_name(a, "churn", (unsigned)rand_r(&state) % CHURN);
        struct slice to = kind_name(b, "churn", (unsigned)rand_r(&state) % CHURN);
        switch (rand_r(&state) % 8) {
        case 0:
            registry_delete(registry, from);
            break;
        case 1:
            registry_rename(registry, from, to, false, NULL);
            break;
        case 2:
            registry_persist(registry, from);
            break;
        case 3:
            publish(from, (unsigned)rand_r(&state));
            break;
        case 4:
        case 5:
            registry_expire(registry, from, now_ms() + rand_r(&state) % 4 - 1, 0);
            break;
        default:
            make(from);
            break;
        }
        struct slice safe = kind_name(a, "safe", (unsigned)rand_r(&state) % SAFE);
        if (rand_r(&state) % 4)
            registry_expire(registry, safe, now_ms() + 3600000, 0);
        else
            registry_persist(registry, safe);
        rcu_reader_offline();
    }
    rcu_reader_end();
    atomic_fetch_sub(&running_writers, 1);
    return NULL;
}

static void count_safe(struct slice name, unsigned *n)
{
    *n += name.len > 5 && memcmp(name.ptr, "safe:", 5) == 0;
}

static void on_scanned(void *ctx, struct slice name, struct entry *entry)
{
    (void)entry;
    count_safe(name, ctx);
}

static void *scanner(void *arg)
{
    (void)arg;
    rcu_reader_begin();
    while (atomic_load(&running_writers)) {
        unsigned n = 0;
        uint64_t cursor = 0;
        do {
            rcu_reader_online();
            cursor = registry_scan(registry, cursor, 50, on_scanned, &n);
            rcu_reader_offline();
        } while (cursor);
        EXPECT(n == SAFE, "a sweep returned %u of %u names that are always there", n, SAFE);
    }
    rcu_reader_end();
    return NULL;
}

static void *walker(void *arg)
{
    (void)arg;
    while (atomic_load(&running_writers)) {
        struct registry_item item;
        unsigned n = 0;
        static unsigned char yielded[MAX_ID];
        registry_walk_begin(registry, NULL, NULL);
        while (registry_walk_next(registry, &item) == 1) {
            EXPECT(item.id < MAX_ID, "more ids than the test has room for");
            bool before = yielded[item.id];
            if (item.entry) {
                (void)bloom_filter_items(entry_filter(item.entry));
                if (!before)
                    count_safe(item.name, &n);
            }
            yielded[item.id] = item.entry != NULL;
            registry_walk_release(&item);
        }
        registry_walk_end(registry);
        memset(yielded, 0, registry_next_id(registry));
        EXPECT(n == SAFE, "a walk yielded %u of %u names that are always there", n, SAFE);
    }
    return NULL;
}

int main(void)
{
    struct expirer *expirer;
    char text[32];
    registry_rig_init(0);
    EXPECT(expirer_create(&expirer, registry, NULL, NULL) == 0, "setup");
    registry_on_effect(registry, on_effect, NULL);
    for (unsigned i = 0; i < SAFE; i++)
        make(kind_name(text, "safe", i));

    void *(*const mixed[])(void *) = {reader, reader, writer, writer, racer, racer, scanner, walker};
    running_writers = WRITERS;
    run_threads(mixed, 8);

    EXPECT(expired > 100, "only %ld filters have expired: the test has lost its meaning", (long)expired);
    registry_barrier(registry);
    EXPECT(registry_count(registry) == (size_t)alive, "%zu filters are counted, %ld were told",
           registry_count(registry), (long)alive);
    expirer_destroy(expirer);
    registry_rig_deinit(0);
    EXPECT(alive == 0, "%ld filters have not ended", (long)alive);
    return 0;
}
