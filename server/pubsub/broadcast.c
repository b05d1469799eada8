/* A prefix has a part for each loop with clients of it; a client's subscription is in the list of its loop's part. The
 * hub's lock guards the table of prefixes, their lists of parts, and the changes collected in a part. The subscriptions
 * of a part, and so the part's end, are its loop's alone, which makes the lists of names outside of the lock. */
#include "broadcast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "buf.h"
#include "hash_table.h"
#include "prefix_table.h"
#include "reply.h"
#include "lock.h"
#include "check.h"

#define NAME_OVERHEAD 16 /* bytes of a name on the wire beside its own, at most */

struct change {
    struct hash_link hashed;
    struct change *next; /* in the order of the first changes */
    uint64_t author;     /* 0: several, or one that wants to be told of it */
    size_t len;
    char name[];
};

struct changes {
    struct hash_table by_name;
    struct change *first, *last;
};

struct prefix {
    struct prefix_entry entry;
    struct part *parts;
    char name[];
};

struct part {
    struct prefix *prefix;
    struct part *next;                   /* of the prefix */
    struct part *next_dirty, **at_dirty; /* of the loop; at_dirty NULL: it is not in that list */
    unsigned loop;
    size_t nclients;
    struct changes changes;
    struct subscription *subscriptions; /* the loop's alone, and the following */
    struct changes taken;               /* that are being delivered */
    struct part *next_taken;
};

struct subscription {
    struct prefix_entry entry; /* in client->prefixes */
    struct broadcast_client *client;
    struct part *part;
    struct subscription *prev, *next; /* of the part */
};

struct broadcast_client {
    struct broadcast *hub;
    unsigned loop;
    void *owner;
    uint64_t left_out;
    struct prefix_table prefixes;
    struct broadcast_client *prev, *next; /* of the loop; the loop's alone */
};

struct loop {
    struct part *dirty;
    size_t bytes; /* that it will have to write, about */
    bool all;     /* no longer collected: all names may have changed */
    bool woken;
    struct broadcast_client *clients; /* the loop's alone */
};

struct broadcast {
    _Atomic size_t nprefixes;
    _Atomic size_t bytes;
    struct lock lock;
    struct prefix_table prefixes;
    uint64_t seed;
    void (*wake)(void *ctx, unsigned loop);
    void *ctx;
    struct loop loops[];
};

static _Thread_local uint64_t author_now;

uint64_t broadcast_author(void)
{
    return author_now;
}

void broadcast_set_author(uint64_t author)
{
    author_now = author;
}

static void account(struct broadcast *hub, size_t more, size_t less)
{
    atomic_fetch_add_explicit(&hub->bytes, more - less, memory_order_relaxed);
}

/* ---- collecting, under the lock ---- */

static struct change *change_of(struct hash_link *link)
{
    return HASH_OBJECT(link, struct change, hashed);
}

static struct change *find_change(const struct changes *changes, struct slice name, uint64_t hash)
{
    struct hash_link *link = hash_table_first(&changes->by_name, hash);
    while (link && !(change_of(link)->len == name.len &&
                     (name.len == 0 || memcmp(change_of(link)->name, name.ptr, name.len) == 0)))
        link = hash_table_next(link);
    return link ? change_of(link) : NULL;
}

/* False without memory. */
static bool add_change(struct broadcast *hub, struct changes *changes, struct slice name, uint64_t hash,
                       uint64_t author)
{
    struct change *change = malloc(sizeof(*change) + name.len);
    if (!change)
        return false;
    *change = (struct change){.hashed = {.hash = hash}, .author = author, .len = name.len};
    if (name.len)
        memcpy(change->name, name.ptr, name.len);
    size_t before = hash_table_bytes(&changes->by_name);
    if (hash_table_insert(&changes->by_name, &change->hashed) != 0) {
        free(change);
        return false;
    }
    if (changes->last)
        changes->last->next = change;
    else
        changes->first = change;
    changes->last = change;
    account(hub, sizeof(*change) + name.len + hash_table_bytes(&changes->by_name), before);
    return true;
}

static void free_changes(struct broadcast *hub, struct changes *changes)
{
    size_t bytes = hash_table_bytes(&changes->by_name);
    for (struct change *change = changes->first, *next; change; change = next) {
        next = change->next;
        bytes += sizeof(*change) + change->len;
        free(change);
    }
    hash_table_deinit(&changes->by_name);
    *changes = (struct changes){.first = NULL};
    account(hub, 0, bytes);
}

static void enter_dirty(struct loop *loop, struct part *part)
{
    if (part->at_dirty)
        return;
    part->next_dirty = loop->dirty;
    part->at_dirty = &loop->dirty;
    if (part->next_dirty)
        part->next_dirty->at_dirty = &part->next_dirty;
    loop->dirty = part;
}

static void leave_dirty(struct part *part)
{
    if (!part->at_dirty)
        return;
    *part->at_dirty = part->next_dirty;
    if (part->next_dirty)
        part->next_dirty->at_dirty = part->at_dirty;
    part->at_dirty = NULL;
}

static void collect(struct broadcast *hub, struct part *part, struct slice name, uint64_t hash, uint64_t author)
{
    struct loop *loop = &hub->loops[part->loop];
    if (loop->all)
        return;
    struct change *change = find_change(&part->changes, name, hash);
    if (change) {
        change->author = change->author == author ? author : 0;
        return;
    }
    size_t bytes = (name.len + NAME_OVERHEAD) * part->nclients;
    if (bytes > BROADCAST_MAX_BYTES - loop->bytes || !add_change(hub, &part->changes, name, hash, author)) {
        loop->all = true;
    } else {
        loop->bytes += bytes;
        enter_dirty(loop, part);
    }
    if (!loop->woken) {
        loop->woken = true;
        hub->wake(hub->ctx, part->loop);
    }
}

bool broadcast_has_clients(const struct broadcast *hub)
{
    return atomic_load_explicit(&hub->nprefixes, memory_order_relaxed) != 0;
}

void broadcast_change(struct broadcast *hub, struct slice name, uint64_t author)
{
    if (!broadcast_has_clients(hub))
        return;
    uint64_t hash = XXH3_64bits_withSeed(name.ptr, name.len, hub->seed);
    lock_take(&hub->lock);
    for (struct prefix_entry *entry = prefix_table_longest(&hub->prefixes, name.ptr, name.len); entry;
         entry = entry->parent) {
        struct prefix *prefix = (struct prefix *)(void *)entry; /* its first member */
        for (struct part *part = prefix->parts; part; part = part->next)
            collect(hub, part, name, hash, author);
    }
    lock_give(&hub->lock);
}

/* ---- delivery ---- */

/* Of the changes that are not by `left_out`. ptr NULL without memory; len 0: none. */
static struct slice list_names(const struct changes *changes, uint64_t left_out, struct buf *space)
{
    struct reply reply = {.buf = space, .version = 3};
    size_t n = 0;
    buf_truncate(space, 0);
    for (const struct change *change = changes->first; change; change = change->next)
        n += left_out == 0 || change->author != left_out;
    if (n == 0)
        return (struct slice){"", 0};
    reply_array(&reply, n);
    for (const struct change *change = changes->first; change; change = change->next) {
        if (left_out == 0 || change->author != left_out)
            reply_bulk(&reply, change->name, change->len);
    }
    return buf_failed(space) ? (struct slice){NULL, 0} : (struct slice){buf_head(space), buf_len(space)};
}

static void tell_part(const struct part *part, void (*tell)(void *owner, struct slice names))
{
    struct buf for_all, for_one;
    buf_init(&for_all, SIZE_MAX);
    buf_init(&for_one, SIZE_MAX);
    struct slice names = list_names(&part->taken, 0, &for_all);
    for (const struct subscription *at = part->subscriptions; at; at = at->next) {
        uint64_t left_out = at->client->left_out;
        struct slice its = left_out && names.ptr ? list_names(&part->taken, left_out, &for_one) : names;
        if (its.len || !its.ptr)
            tell(at->client->owner, its);
    }
    buf_deinit(&for_all);
    buf_deinit(&for_one);
}

/* Takes the changes that the loop's parts have collected. Returns these parts. */
static struct part *take(struct broadcast *hub, struct loop *loop, bool *all_out)
{
    struct part *taken = NULL;
    lock_take(&hub->lock);
    while (loop->dirty) {
        struct part *part = loop->dirty;
        leave_dirty(part);
        part->taken = part->changes;
        part->changes = (struct changes){.first = NULL};
        part->next_taken = taken;
        taken = part;
    }
    *all_out = loop->all;
    loop->bytes = 0;
    loop->all = loop->woken = false;
    lock_give(&hub->lock);
    return taken;
}

void broadcast_deliver(struct broadcast *hub, unsigned index, void (*tell)(void *owner, struct slice names))
{
    struct loop *loop = &hub->loops[index];
    bool all;
    struct part *taken = take(hub, loop, &all);
    for (struct broadcast_client *client = all ? loop->clients : NULL; client; client = client->next)
        tell(client->owner, (struct slice){NULL, 0});
    for (struct part *part = taken; part; part = part->next_taken) {
        if (!all)
            tell_part(part, tell);
        free_changes(hub, &part->taken);
    }
}

/* ---- subscriptions ---- */

static size_t prefix_bytes(const struct prefix *prefix)
{
    return sizeof(*prefix) + prefix->entry.len + sizeof(struct prefix_entry *);
}

/* Under the lock, like those that follow. */
static struct prefix *find_or_add_prefix(struct broadcast *hub, struct slice name, int *status_out)
{
    struct prefix *prefix = (struct prefix *)(void *)prefix_table_find(&hub->prefixes, name.ptr, name.len);
    if (prefix)
        return prefix;
    *status_out = hub->prefixes.count < BROADCAST_MAX_PREFIXES ? -ENOMEM : BROADCAST_LIMIT;
    if (*status_out == BROADCAST_LIMIT || !(prefix = malloc(sizeof(*prefix) + name.len)))
        return NULL;
    if (name.len)
        memcpy(prefix->name, name.ptr, name.len);
    prefix->entry = (struct prefix_entry){.name = prefix->name, .len = name.len};
    prefix->parts = NULL;
    if (prefix_table_insert(&hub->prefixes, &prefix->entry) != 0) {
        free(prefix);
        return NULL;
    }
    atomic_store_explicit(&hub->nprefixes, hub->prefixes.count, memory_order_relaxed);
    account(hub, prefix_bytes(prefix), 0);
    return prefix;
}

static void drop_prefix_without_parts(struct broadcast *hub, struct prefix *prefix)
{
    if (prefix->parts)
        return;
    prefix_table_remove(&hub->prefixes, &prefix->entry);
    atomic_store_explicit(&hub->nprefixes, hub->prefixes.count, memory_order_relaxed);
    account(hub, 0, prefix_bytes(prefix));
    free(prefix);
}

static struct part *find_or_add_part(struct broadcast *hub, struct prefix *prefix, unsigned loop)
{
    struct part *part = prefix->parts;
    while (part && part->loop != loop)
        part = part->next;
    if (part || !(part = calloc(1, sizeof(*part))))
        return part;
    part->prefix = prefix;
    part->loop = loop;
    part->next = prefix->parts;
    prefix->parts = part;
    account(hub, sizeof(*part), 0);
    return part;
}

static void drop_part_without_clients(struct broadcast *hub, struct part *part)
{
    if (part->nclients)
        return;
    struct part **at = &part->prefix->parts;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    leave_dirty(part);
    free_changes(hub, &part->changes);
    drop_prefix_without_parts(hub, part->prefix);
    account(hub, 0, sizeof(*part));
    free(part);
}

int broadcast_subscribe(struct broadcast_client *client, struct slice name)
{
    struct broadcast *hub = client->hub;
    if (prefix_table_find(&client->prefixes, name.ptr, name.len))
        return BROADCAST_SAME;
    struct subscription *subscription = calloc(1, sizeof(*subscription));
    int status = -ENOMEM;
    if (!subscription)
        return status;
    lock_take(&hub->lock);
    struct prefix *prefix = find_or_add_prefix(hub, name, &status);
    struct part *part = prefix ? find_or_add_part(hub, prefix, client->loop) : NULL;
    subscription->entry = (struct prefix_entry){.name = prefix ? prefix->name : NULL, .len = name.len};
    if (part && prefix_table_insert(&client->prefixes, &subscription->entry) == 0) {
        part->nclients++;
        status = BROADCAST_OK;
    } else if (part) {
        drop_part_without_clients(hub, part);
    } else if (prefix) {
        drop_prefix_without_parts(hub, prefix);
    }
    lock_give(&hub->lock);
    if (status != BROADCAST_OK) {
        free(subscription);
        return status;
    }
    CHECK(part);
    subscription->client = client;
    subscription->part = part;
    subscription->next = part->subscriptions;
    if (subscription->next)
        subscription->next->prev = subscription;
    part->subscriptions = subscription;
    return BROADCAST_OK;
}

static void end_subscription(struct subscription *subscription)
{
    struct broadcast_client *client = subscription->client;
    struct part *part = subscription->part;
    prefix_table_remove(&client->prefixes, &subscription->entry);
    if (subscription->next)
        subscription->next->prev = subscription->prev;
    if (subscription->prev)
        subscription->prev->next = subscription->next;
    else
        part->subscriptions = subscription->next;
    lock_take(&client->hub->lock);
    part->nclients--;
    drop_part_without_clients(client->hub, part);
    lock_give(&client->hub->lock);
    free(subscription);
}

void broadcast_unsubscribe(struct broadcast_client *client, struct slice prefix)
{
    end_subscription((struct subscription *)(void *)prefix_table_find(&client->prefixes, prefix.ptr, prefix.len));
}

size_t broadcast_client_count(const struct broadcast_client *client)
{
    return client->prefixes.count;
}

struct slice broadcast_client_prefix(const struct broadcast_client *client, size_t i)
{
    const struct prefix_entry *entry = client->prefixes.sorted[i];
    return (struct slice){entry->name, entry->len};
}

bool broadcast_overlaps(const struct broadcast_client *client, struct slice prefix, struct slice *with_out)
{
    const struct prefix_entry *entry = prefix_table_longest(&client->prefixes, prefix.ptr, prefix.len);
    while (entry && entry->parent)
        entry = entry->parent;
    if (!entry)
        entry = prefix_table_first(&client->prefixes, prefix.ptr, prefix.len);
    if (entry)
        *with_out = (struct slice){entry->name, entry->len};
    return entry != NULL;
}

size_t broadcast_client_bytes(const struct broadcast_client *client)
{
    return sizeof(*client) + client->prefixes.size * sizeof(struct prefix_entry *) +
           client->prefixes.count * sizeof(struct subscription);
}

/* ---- clients and the hub ---- */

int broadcast_client_create(struct broadcast_client **client_out, struct broadcast *hub, unsigned loop, void *owner)
{
    struct broadcast_client *client = calloc(1, sizeof(*client));
    if (!client)
        return -ENOMEM;
    *client = (struct broadcast_client){.hub = hub, .loop = loop, .owner = owner, .next = hub->loops[loop].clients};
    if (client->next)
        client->next->prev = client;
    hub->loops[loop].clients = client;
    *client_out = client;
    return 0;
}

void broadcast_client_destroy(struct broadcast_client *client)
{
    if (!client)
        return;
    while (client->prefixes.count) /* from the end: nothing is moved */
        end_subscription((struct subscription *)(void *)client->prefixes.sorted[client->prefixes.count - 1]);
    if (client->next)
        client->next->prev = client->prev;
    if (client->prev)
        client->prev->next = client->next;
    else
        client->hub->loops[client->loop].clients = client->next;
    free(client);
}

void broadcast_client_leave_out(struct broadcast_client *client, uint64_t author)
{
    client->left_out = author;
}

int broadcast_create(struct broadcast **hub_out, unsigned nloops, void (*wake)(void *ctx, unsigned loop), void *ctx)
{
    struct broadcast *hub = calloc(1, sizeof(*hub) + nloops * sizeof(hub->loops[0]));
    if (!hub)
        return -ENOMEM;
    hub->wake = wake;
    hub->ctx = ctx;
    if (getrandom(&hub->seed, sizeof(hub->seed), 0) != (ssize_t)sizeof(hub->seed))
        hub->seed = (uintptr_t)hub; /* early in a boot: the address is random as well */
    lock_init(&hub->lock, RANK_BROADCAST);
    *hub_out = hub;
    return 0;
}

void broadcast_destroy(struct broadcast *hub)
{
    if (!hub)
        return;
    prefix_table_deinit(&hub->prefixes);
    lock_deinit(&hub->lock);
    free(hub);
}

size_t broadcast_prefixes(const struct broadcast *hub)
{
    return atomic_load_explicit(&hub->nprefixes, memory_order_relaxed);
}

size_t broadcast_bytes(const struct broadcast *hub)
{
    return atomic_load_explicit(&hub->bytes, memory_order_relaxed);
}
