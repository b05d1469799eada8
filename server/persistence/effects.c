
#include <string.h>

#include "notify.h"
#include "persistence.h"
#include "registry_effect.h"
#include "registry_key.h"
#include "server.h"

/* A filter has come under its name. Redis publishes "new" for each newly created key, even if it replaces another key.
 * Changes to the contents of an existing filter have their own events. */
static void published(struct notify *notify, const struct registry_effect *effect)
{
    const char *event = effect->event;
    bool in_place =
        event && effect->replaced_id && (strcmp(event, "bloom.merge") == 0 || strcmp(event, "bloom.clear") == 0);

    if (!event)
        event = effect->kind == REGISTRY_CREATED ? "bloom.reserve" : "bloom.load";
    if (!in_place)
        notify_event(notify, NOTIFY_NEW, "new", effect->name);
    notify_event(notify, strncmp(event, "bloom.", 6) == 0 ? NOTIFY_MODULE : NOTIFY_GENERIC, event, effect->name);
    if (!effect->event && effect->expires_ms)
        notify_event(notify, NOTIFY_GENERIC, "expire", effect->name); /* BF.RESERVE with a TTL */
}

/* The events of an effect, in Redis's order and words where Redis has them: docs/EVENTS.md. */
static void notify_effect(struct notify *notify, const struct registry_effect *effect)
{
    bool moves;
    switch (effect->kind) {
    case REGISTRY_CREATED:
    case REGISTRY_LOADED:
        published(notify, effect);
        break;
    case REGISTRY_DELETED:
        notify_event(notify, NOTIFY_GENERIC, "del", effect->name);
        break;
    case REGISTRY_EXPIRED:
        notify_event(notify, NOTIFY_EXPIRED, "expired", effect->name);
        break;
    case REGISTRY_RENAMED:
        moves = key_database(effect->name) != key_database(effect->to);
        notify_event(notify, NOTIFY_NEW, "new", effect->to);
        notify_event(notify, NOTIFY_GENERIC, moves ? "move_from" : "rename_from", effect->name);
        notify_event(notify, NOTIFY_GENERIC, moves ? "move_to" : "rename_to", effect->to);
        break;
    case REGISTRY_EXPIRY:
        notify_event(notify, NOTIFY_GENERIC, effect->expires_ms ? "expire" : "persist", effect->name);
        break;
    case REGISTRY_CLEARED: /* as in Redis: FLUSHALL has no event for each key, and SWAPDB none at all */
    case REGISTRY_DATABASE_CLEARED:
    case REGISTRY_SWAPPED:
        break;
    }
}

static void on_effect(void *ctx, const struct registry_effect *effect)
{
    struct server *server = ctx;
    struct stats *stats = counters_effects(server->stats.counters); /* under the mutex this is their only writer */
    bool many = effect->kind == REGISTRY_CLEARED || effect->kind == REGISTRY_DATABASE_CLEARED;
    stats_add(&stats->changes, many ? effect->count : 1);
    stats_add(&stats->expired, effect->kind == REGISTRY_EXPIRED);
    persistence_effect(server, effect);
    if (notify_wants(server->notify, ~0u))
        notify_effect(server->notify, effect);
}

void effects_attach(struct server *server)
{
    registry_on_effect(server->registry, on_effect, server);
}

void effects_pace(void *ctx)
{
    struct server *server = ctx;
    notify_let_catch_up(server->notify);
}
