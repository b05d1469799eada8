/* registry_effect: reports a registry's changes to one listener, in the order in which they take effect. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "slice.h"

struct entry;
struct registry;

enum registry_effect_kind {
    REGISTRY_CREATED, /* empty */
    REGISTRY_LOADED,  /* published with contents */
    REGISTRY_DELETED,
    REGISTRY_EXPIRED,
    REGISTRY_RENAMED,
    REGISTRY_EXPIRY,           /* its expiry was set, changed or removed */
    REGISTRY_CLEARED,          /* all filters were deleted */
    REGISTRY_DATABASE_CLEARED, /* all of one database */
    REGISTRY_SWAPPED,          /* two of the clients' numbers of databases represent each other's; `numbers` */
};

/* The effect on the filter `id`. Fields that do not apply are 0. Valid during the call. */
struct registry_effect {
    enum registry_effect_kind kind;
    uint64_t id;
    struct slice name;    /* its name, before a rename */
    struct slice to;      /* RENAMED */
    uint64_t replaced_id; /* CREATED, LOADED, RENAMED: id of the filter that had the name, deleted now; 0: none */
    int64_t expires_ms;   /* CREATED, LOADED, RENAMED, EXPIRY: the new expiry. 0: never */
    struct entry *entry;  /* the filter's entry, alive during the call */
    const void *payload;  /* CREATED, LOADED: that of the publication */
    const char *event;    /* likewise */
    size_t count;         /* CLEARED, DATABASE_CLEARED: number of filters */
    unsigned database;    /* DATABASE_CLEARED: its internal number */
    unsigned numbers[2];  /* SWAPPED */
};

/* `fn` is called for every effect, in their true order, under the registry's mutex. It must be quick and must not call
 * the registry. It may take only locks under which no thread calls the registry. Effects of loading go unreported. */
void registry_on_effect(struct registry *registry, void (*fn)(void *ctx, const struct registry_effect *effect),
                        void *ctx);

/* Returns when every effect that began before the call has been reported. */
void registry_barrier(struct registry *registry);

/* Returns when every change has been reported whose outcome this thread has seen: look-ups see a change a moment before
 * it is reported. Nearly always at once. Thread: any. */
void registry_await_records(struct registry *registry);
