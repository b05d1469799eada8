#include "bloom_keyring.h"

#include <errno.h>

#include "bloom_shared.h"
#include "lock.h"
#include "alloc.h"

#define PAGE_BYTES 4096

/* Keys are made and found rarely, by a walk over all of them. */
struct bloom_key_page {
    struct bloom_key_page *next;
    struct bloom_key keys[(PAGE_BYTES - sizeof(void *)) / sizeof(struct bloom_key)];
};

_Static_assert(sizeof(struct bloom_key_page) <= PAGE_BYTES, "one page");

static int add_page(struct bloom_keyring *ring)
{
    struct bloom_key_page *page = secret_alloc(sizeof(*page));

    if (!page)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof(page->keys) / sizeof(page->keys[0]); i++) {
        page->keys[i].next = ring->unused;
        ring->unused = &page->keys[i];
    }
    page->next = ring->pages;
    ring->pages = page;
    return 0;
}

static struct bloom_key *find(const struct bloom_keyring *ring, uint64_t id)
{
    struct bloom_key *key = ring->keys;

    while (key && key->secret.id != id)
        key = key->next;
    return key;
}

struct bloom_key *bloom_keyring_get(struct bloom_pool *pool, uint64_t id)
{
    struct bloom_keyring *ring = &pool->keyring;
    struct bloom_key *key = find(ring, id);

    if (!key) {
        if (!ring->unused && add_page(ring) != 0)
            return NULL;
        key = ring->unused;
        ring->unused = key->next;
        *key = (struct bloom_key){.secret.id = id, .next = ring->keys};
        ring->keys = key;
    }
    key->refs++;
    return key;
}

void bloom_keyring_release(struct bloom_pool *pool, struct bloom_key *key)
{
    struct bloom_keyring *ring = &pool->keyring;
    struct bloom_key **link = &ring->keys;

    if (--key->refs > 0 || key->kept)
        return;
    while (*link != key)
        link = &(*link)->next;
    *link = key->next;
    key->next = ring->unused;
    ring->unused = key;
}

int bloom_keyring_set(struct bloom_pool *pool, const struct bloom_secret *secrets, size_t n)
{
    size_t got = 0;
    lock_take(&pool->lock);
    while (got < n && bloom_keyring_get(pool, secrets[got].id)) /* a reference to each, so that the rest cannot fail */
        got++;
    int rc = got == n ? 0 : -ENOMEM;
    for (struct bloom_key *key = rc == 0 ? pool->keyring.keys : NULL; key; key = key->next) {
        bool here = false;

        for (size_t i = 0; i < n; i++) {
            if (secrets[i].id != key->secret.id)
                continue;
            if (!key->kept) /* otherwise threads may be reading it */
                key->secret = secrets[i];
            key->kept = here = true;
        }
        atomic_store_explicit(&key->here, here, memory_order_release);
    }
    for (size_t i = 0; i < got; i++)
        bloom_keyring_release(pool, find(&pool->keyring, secrets[i].id));
    if (rc == 0) {
        atomic_store_explicit(&pool->keyring.first, n ? secrets[0].id : 0, memory_order_release);
    }
    lock_give(&pool->lock);
    return rc;
}

static size_t list_used(struct bloom_pool *pool, bool all, uint64_t *ids, size_t max)
{
    size_t n = 0;

    lock_take(&pool->lock);
    for (const struct bloom_key *key = pool->keyring.keys; key && n < max; key = key->next)
        if (key->refs && (all || !bloom_key_is_here(key)))
            ids[n++] = key->secret.id;
    lock_give(&pool->lock);
    return n;
}

size_t bloom_keyring_missing(struct bloom_pool *pool, uint64_t *ids, size_t max)
{
    return list_used(pool, false, ids, max);
}

size_t bloom_keyring_used(struct bloom_pool *pool, uint64_t *ids, size_t max)
{
    return list_used(pool, true, ids, max);
}

uint64_t bloom_keyring_first(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->keyring.first, memory_order_acquire);
}

void bloom_keyring_deinit(struct bloom_pool *pool)
{
    for (struct bloom_key_page *page = pool->keyring.pages, *next; page; page = next) {
        next = page->next;
        secret_free(page, sizeof(*page));
    }
}
