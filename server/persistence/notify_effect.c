/* The events of an effect of the registry, in Redis's order and words where Redis has them: docs/EVENTS.md. */
#include <string.h>

#include "notify.h"
#include "registry_effect.h"
#include "registry_key.h"

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

void notify_effect(struct notify *notify, const struct registry_effect *effect)
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
