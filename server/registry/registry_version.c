#include "registry_version.h"

#include "entry.h"

static struct registry_version version_of(const struct registry *registry, uint64_t hash, struct slice name,
                                          uint64_t (*changes)(const struct bloom_filter *filter))
{
    struct registry_version version = {0};
    struct entry *entry = registry_find_expiry(registry, hash, name, &version.expires_ms);
    if (!entry)
        return (struct registry_version){0};
    struct bloom_filter *filter = entry_shape(entry);
    version.id = entry->id;
    version.items = filter ? changes(filter) : 0;
    return version;
}

struct registry_version registry_version(const struct registry *registry, uint64_t hash, struct slice name)
{
    return version_of(registry, hash, name, bloom_filter_changes);
}

struct registry_version registry_version_settled(const struct registry *registry, uint64_t hash, struct slice name)
{
    return version_of(registry, hash, name, bloom_filter_changes_settled);
}
