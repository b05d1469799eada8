/* registry_effect: what changes in a registry, told to one listener in the order in which it takes effect. */
#ifndef BLOOMERY_REGISTRY_EFFECT_H
#define BLOOMERY_REGISTRY_EFFECT_H

#include "registry.h"

enum registry_effect_kind {
    REGISTRY_CREATED, /* empty */
    REGISTRY_LOADED,  /* published with contents */
    REGISTRY_DELETED,
    REGISTRY_EXPIRED,
    REGISTRY_RENAMED,
    REGISTRY_EXPIRY,  /* its time was set, changed or removed */
    REGISTRY_CLEARED, /* all filters were deleted */
};

/* What has just happened to the filter `id`. Fields that do not apply are 0. Valid during the call. */
struct registry_effect {
    enum registry_effect_kind kind;
    uint64_t id;
    struct slice name; /* under which it was, before a rename */
    struct slice to;   /* RENAMED */
    uint64_t
        replaced_id;     /* CREATED, LOADED, RENAMED: of the filter that had the name and is deleted by this; 0: none */
    int64_t expires_ms;  /* CREATED, LOADED, RENAMED, EXPIRY: from now on. 0: never */
    struct entry *entry; /* whose filter it is, alive during the call */
    const void *payload; /* CREATED, LOADED: of the publication */
    const char *event;   /* likewise */
    size_t count;        /* CLEARED: how many */
};

/* `fn` is called for every effect, in their true order, under the registry's mutex: it must be quick, must not call the
 * registry, and may take only locks under which nobody calls the registry. What was done before this call (loading) is
 * not told. */
void registry_on_effect(struct registry *registry, void (*fn)(void *ctx, const struct registry_effect *effect),
                        void *ctx);

/* Returns when every effect that began before the call has been told. */
void registry_barrier(struct registry *registry);

#endif
