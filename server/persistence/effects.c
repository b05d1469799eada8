#include "effects.h"

#include "notify.h"
#include "persistence.h"
#include "registry_effect.h"
#include "registry_key.h"
#include "server.h"

/* The registry's mutex makes this the counters' only writer at any moment. */
static void count_effect(struct stats *stats, const struct registry_effect *effect)
{
    stats_add(&stats->changes,
              effect->kind == REGISTRY_CLEARED || effect->kind == REGISTRY_DATABASE_CLEARED ? effect->count : 1);
    if (effect->kind == REGISTRY_EXPIRED)
        stats_add(&stats->expired, 1);
}

static void on_effect(void *ctx, const struct registry_effect *effect)
{
    struct server *server = ctx;
    count_effect(counters_effects(server->stats.counters), effect);
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
