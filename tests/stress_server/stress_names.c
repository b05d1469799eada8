/* The index of names under many threads: names are created, deleted, renamed and given times while others walk
 * through all names with a prefix.
 *
 * Claims: a walk yields the names that exist throughout exactly once, in order; it yields no name without its
 * prefix; an entry that it yields can be used until the reader goes offline; in the end the index is empty. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry_rig.h"

#define STABLE  200
#define CHURN   300
#define ROUNDS  60000
#define READERS 2
#define WRITERS 2

/* Names mixed in the order of bytes, so that stable names continually lose and get neighbours and parents. */
static struct slice name_in(char *text, const char *kind, unsigned i)
{
    int len = sprintf(text, "ks%u/%u%s", i % 3, i, kind);
    return (struct slice){text, (size_t)len};
}

struct sweep {
    char prefix[8];
    char last[48];
    unsigned stable, n;
};

static void visit(void *ctx, struct slice name, struct entry *entry)
{
    struct sweep *sweep = ctx;
    char text[48];
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    EXPECT(strncmp(text, sweep->prefix, strlen(sweep->prefix)) == 0, "%s with prefix %s", text, sweep->prefix);
    EXPECT(sweep->n == 0 || strcmp(sweep->last, text) < 0, "%s behind %s", text, sweep->last);
    strcpy(sweep->last, text);
    sweep->n++;
    sweep->stable += strstr(text, "stable") != NULL;
    if (entry)
        EXPECT(bloom_filter_capacity(entry_filter(entry)) >= 100, "%s", text);
}

static unsigned stable_with(const char *prefix)
{
    char text[48];
    unsigned n = 0;
    for (unsigned i = 0; i < STABLE; i++)
        n += strncmp(name_in(text, "stable", i).ptr, prefix, strlen(prefix)) == 0;
    return n;
}

static void *reader(void *arg)
{
    static const char *const prefixes[] = {"", "ks1/", "ks2/1", "ks"};
    unsigned state = (unsigned)(uintptr_t)arg;
    rcu_reader_begin();
    while (atomic_load(&running_writers)) {
        struct sweep sweep = {.n = 0};
        size_t n, most = 1 + (size_t)rand_r(&state) % 100;
        strcpy(sweep.prefix, prefixes[rand_r(&state) % 4]);
        do { /* offline between two pieces: only the name is remembered */
            char from[48];
            strcpy(from, sweep.last);
            struct slice after = {from, strlen(from)};
            rcu_reader_online();
            n = registry_scan_prefix(registry, slice_of(sweep.prefix), sweep.n ? &after : NULL, most, visit, &sweep);
            rcu_reader_offline();
        } while (n == most);
        EXPECT(sweep.stable == stable_with(sweep.prefix), "%u stable names with prefix '%s' instead of %u",
               sweep.stable, sweep.prefix, stable_with(sweep.prefix));
    }
    rcu_reader_end();
    return NULL;
}

static void *writer(void *arg)
{
    unsigned state = 1000 + (unsigned)(uintptr_t)arg;
    char a[48], b[48];
    struct entry *entry;
    rcu_reader_begin();
    for (unsigned i = 0; i < ROUNDS; i++) {
        rcu_reader_online();
        struct slice one = name_in(a, "churn", (unsigned)rand_r(&state) % CHURN);
        struct slice stable, other;
        switch (rand_r(&state) % 5) {
        case 0:
        case 1:
            (void)create(one, &entry);
            break;
        case 2:
            (void)registry_delete(registry, one);
            break;
        case 3:
            other = name_in(b, "churn", (unsigned)rand_r(&state) % CHURN);
            (void)registry_rename(registry, one, other, false, NULL);
            break;
        default: /* another holder of the same name */
            stable = name_in(b, "stable", (unsigned)rand_r(&state) % STABLE);
            if (rand_r(&state) % 2)
                (void)registry_expire(registry, stable, INT64_MAX / 2 - (int64_t)i, 0);
            else
                (void)registry_persist(registry, stable);
        }
        rcu_reader_offline();
    }
    rcu_reader_end();
    atomic_fetch_sub(&running_writers, 1);
    return NULL;
}

int main(void)
{
    void *(*const mixed[READERS + WRITERS])(void *) = {reader, reader, writer, writer};
    struct entry *entry;
    char text[48];

    registry_rig_init(2);
    for (unsigned i = 0; i < STABLE; i++)
        EXPECT(create(name_in(text, "stable", i), &entry) == 0, "setup");
    atomic_store(&running_writers, WRITERS);
    run_threads(mixed, READERS + WRITERS);
    registry_rig_deinit(STABLE);
    return 0;
}
