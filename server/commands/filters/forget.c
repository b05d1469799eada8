#include "forget.h"

#include "bloom_window.h"
#include "registry.h"

static int clean(void *object)
{
    struct entry *entry = object;
    if (entry_filter(entry))
        bloom_window_clean(entry_filter(entry));
    entry_unpin(entry);
    return 0;
}

void forget_tidy(struct server *server, struct slice name, struct bloom_filter *filter)
{
    if (!bloom_window_wants_clean(filter))
        return;
    struct entry *entry = registry_pin(server->registry, name);
    if (entry && entry_filter(entry) == filter) {
        reclaimer_defer(server->reclaimer, clean, entry, 0);
        return;
    }
    bloom_window_clean_later(filter); /* it has been deleted, or has another name, under which it will be used */
    if (entry)
        entry_unpin(entry);
}
