/* A name is a string of bits: for each byte a 1 and its 8 bits, and a 0 behind the last byte. So no name is a prefix of
 * another one, and the order of the bits is that of the bytes. A bit's number is 16 times the byte's plus 0 for the
 * leading 1, 1 to 8 for the byte's bits from the highest on.
 *
 * Readers go down while nodes come and go. A new node takes the place of the subtree that becomes its child, and the
 * sibling of a removed name takes the place of its parent, each by one store. A reader in a node that was removed finds
 * the same names below it as before: the node keeps its children until the grace period is over. */
#include "name_index.h"

#include <string.h>

#include "check.h"
#include "entry.h"
#include "rcu.h"
#include "slab.h"

/* A link is an address of 48 bits, to a node if the lowest bit is set, otherwise to an entry. The 16 bits above it hold
 * a part of the bit number of the node that the link is in: the byte's number in the first link, the bit's number
 * within the byte in the second one. So a node is two words. */
#define ADDRESS ((UINT64_C(1) << 48) - 1)
#define IS_NODE UINT64_C(1)
#define NO_BIT  UINT32_MAX

#define AHEAD 16 /* holders whose cache lines are fetched together */
#define PATH  64 /* links on the way to a leaf, the last ones, that an insertion remembers; a power of two */

struct name_node {
    _Atomic uint64_t child[2];
};

_Static_assert(sizeof(struct name_node) == NAME_INDEX_NODE_BYTES, "as it is reported");

static uint64_t load(const _Atomic uint64_t *link)
{
    return atomic_load_explicit(link, memory_order_acquire);
}

static bool is_node(uint64_t link)
{
    return link & IS_NODE;
}

static struct name_node *node_of(uint64_t link)
{
    return (struct name_node *)(uintptr_t)(link & ADDRESS & ~IS_NODE);
}

static struct entry *entry_of(uint64_t link)
{
    return (struct entry *)(uintptr_t)(link & ADDRESS);
}

static uint32_t node_bit(const struct name_node *node)
{
    return (uint32_t)(load(&node->child[0]) >> 48 << 4 | load(&node->child[1]) >> 48);
}

static void node_init(struct name_node *node, uint32_t bit, uint64_t zero, uint64_t one)
{
    atomic_init(&node->child[0], (zero & ADDRESS) | (uint64_t)(bit >> 4) << 48);
    atomic_init(&node->child[1], (one & ADDRESS) | (uint64_t)(bit & 15) << 48);
}

/* Exchanges the address in a link. */
static void link_set(_Atomic uint64_t *link, uint64_t address)
{
    uint64_t bits = atomic_load_explicit(link, memory_order_relaxed) & ~ADDRESS;
    atomic_store_explicit(link, bits | (address & ADDRESS), memory_order_release);
}

/* ---- bits of names ---- */

static unsigned bit_within(struct slice name, size_t byte, unsigned within)
{
    return byte < name.len ? (0x100u | (unsigned char)name.ptr[byte]) >> (8 - within) & 1 : 0;
}

static unsigned name_bit(struct slice name, uint32_t bit)
{
    return bit_within(name, bit >> 4, bit & 15);
}

/* The first bit in which the names differ; NO_BIT if they are the same. */
static uint32_t first_difference(struct slice a, struct slice b)
{
    size_t len = a.len < b.len ? a.len : b.len, i = 0;
    while (i + 8 <= len && memcmp(a.ptr + i, b.ptr + i, 8) == 0)
        i += 8;
    while (i < len && a.ptr[i] == b.ptr[i])
        i++;
    if (i < len) {
        unsigned differing = (unsigned char)(a.ptr[i] ^ b.ptr[i]);
        return (uint32_t)(i << 4) + (uint32_t)__builtin_clz(differing) - 24 + 1;
    }
    return a.len == b.len ? NO_BIT : (uint32_t)(len << 4);
}

/* ---- going down ---- */

/* The child of a node on the name's path. */
static _Atomic uint64_t *child_for(struct name_node *node, struct slice name)
{
    return &node->child[bit_within(name, load(&node->child[0]) >> 48, (unsigned)(load(&node->child[1]) >> 48))];
}

/* A leaf below the link, that of the name if it is there. */
static struct entry *descend(uint64_t link, struct slice name)
{
    while (is_node(link))
        link = load(child_for(node_of(link), name));
    return entry_of(link);
}

/* The place on the name's path where nodes with this bit or later ones begin. */
static _Atomic uint64_t *place_of(struct name_index *index, struct slice name, uint32_t bit)
{
    _Atomic uint64_t *at = &index->root;
    for (;;) {
        uint64_t link = load(at);
        if (!is_node(link) || node_bit(node_of(link)) >= bit)
            return at;
        at = child_for(node_of(link), name);
    }
}

/* ---- changes ---- */

bool name_index_reserve(struct name_index *index)
{
    if (!index->spare)
        index->spare = slab_alloc(index->slab, sizeof(struct name_node));
    return index->spare;
}

/* Walks down to a leaf, that of the name if it is there. Returns the link to it; the links before it are in the ring of
 * `path`, from number 0 on, and `depth` is the number of the returned one. */
static _Atomic uint64_t *descend_by(struct name_index *index, struct slice name, _Atomic uint64_t *path[PATH],
                                    size_t *depth)
{
    _Atomic uint64_t *at = &index->root;
    uint64_t link;
    for (*depth = 0; is_node(link = load(at)); (*depth)++) {
        path[*depth % PATH] = at;
        at = child_for(node_of(link), name);
    }
    return at;
}

/* Puts a holder into a tree that is not empty. Returns whether the node was used: not if the name was there. */
static bool insert(struct name_index *index, struct entry *holder, struct name_node *node)
{
    struct slice name = entry_name(holder);
    uint64_t leaf = (uint64_t)(uintptr_t)holder;
    _Atomic uint64_t *path[PATH];
    size_t depth, known;
    _Atomic uint64_t *at = descend_by(index, name, path, &depth);
    uint32_t bit = first_difference(name, entry_name(entry_of(load(at))));
    if (bit == NO_BIT) {
        link_set(at, leaf);
        return false;
    }
    /* The new node belongs above those with later bits: mostly a few steps back. */
    for (known = depth < PATH ? depth : PATH; known > 0; known--) {
        if (node_bit(node_of(load(path[(depth - 1) % PATH]))) < bit)
            break;
        at = path[--depth % PATH];
    }
    if (known == 0 && depth > 0)
        at = place_of(index, name, bit);
    uint64_t other = load(at);
    if (name_bit(name, bit))
        node_init(node, bit, other, leaf);
    else
        node_init(node, bit, leaf, other);
    link_set(at, (uint64_t)(uintptr_t)node | IS_NODE);
    return true;
}

/* ---- new names ----
 *
 * A descent waits for some ten nodes that are in no near cache, one after the other. So new names are collected, and
 * walk down side by side: the waits of all are one. Then each is inserted along nodes that are near. */

static void fetch_paths(const struct name_index *index, unsigned n)
{
    uint64_t links[NAME_INDEX_NEW];
    struct slice names[NAME_INDEX_NEW];
    for (unsigned i = 0; i < n; i++) {
        links[i] = load(&index->root);
        names[i] = entry_name(index->added[i].holder);
    }
    for (bool more = true; more;) {
        more = false;
        for (unsigned i = 0; i < n; i++) {
            if (!is_node(links[i]))
                continue;
            links[i] = load(child_for(node_of(links[i]), names[i]));
            __builtin_prefetch(is_node(links[i]) ? (const void *)node_of(links[i]) : (const void *)entry_of(links[i]));
            more = true;
        }
    }
}

void name_index_settle(struct name_index *index)
{
    unsigned n = atomic_load_explicit(&index->nadded, memory_order_relaxed);
    fetch_paths(index, n);
    for (unsigned i = 0; i < n; i++) {
        struct name_new *added = &index->added[i];
        bool used = load(&index->root) != 0 && insert(index, added->holder, added->node);
        if (load(&index->root) == 0)
            link_set(&index->root, (uint64_t)(uintptr_t)added->holder);
        if (!used)
            slab_free(added->node);
    }
    atomic_store_explicit(&index->nadded, 0, memory_order_release);
}

void name_index_add(struct name_index *index, struct entry *holder)
{
    unsigned n = atomic_load_explicit(&index->nadded, memory_order_relaxed);
    index->added[n] = (struct name_new){holder, index->spare};
    index->spare = NULL;
    atomic_store_explicit(&index->nadded, n + 1, memory_order_release);
    if (n + 1 == NAME_INDEX_NEW)
        name_index_settle(index);
}

void name_index_replace(struct name_index *index, struct entry *holder)
{
    name_index_settle(index);
    (void)insert(index, holder, NULL);
}

/* ---- many at once ----
 *
 * Names that come one by one cost two descents each, through nodes that are not in the cache. A million at once are
 * split at their first differing bit, as in a radix sort, until each is alone: the compared bits are in one array. */

#define WINDOW 7 /* bytes of a name that `bits` has: each with the 1 before it, so 63 bits */

static uint64_t window_bits(struct slice name, size_t from)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < WINDOW && from + i < name.len; i++)
        bits |= (uint64_t)(0x100u | (unsigned char)name.ptr[from + i]) << (55 - 9 * i);
    return bits;
}

static void read_windows(struct name_item *items, size_t n, size_t from)
{
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(items[i + AHEAD].holder);
        items[i].bits = window_bits(entry_name(items[i].holder), from);
    }
}

/* Puts the items without the bit before those with it. Returns how many have it not. */
static size_t split(struct name_item *items, size_t n, uint64_t bit)
{
    size_t zeros = 0;
    for (size_t i = 0; i < n; i++) {
        struct name_item item = items[i];
        if (item.bits & bit)
            continue;
        items[i] = items[zeros];
        items[zeros++] = item;
    }
    return zeros;
}

/* Makes the subtree of these names, which are the same up to byte `from`, below the link. The larger part is the
 * loop's, so that the depth of calls is the logarithm of their number. False: no memory; some nodes are there. */
static bool build(struct name_index *index, _Atomic uint64_t *link, struct name_item *items, size_t n, size_t from)
{
    while (n > 1) {
        uint64_t differing = 0;
        for (size_t i = 1; i < n; i++)
            differing |= items[i].bits ^ items[0].bits;
        if (!differing) {
            from += WINDOW;
            read_windows(items, n, from);
            continue;
        }
        unsigned first = (unsigned)__builtin_clzll(differing);
        size_t zeros = split(items, n, UINT64_C(1) << (63 - first));
        struct name_node *node = slab_alloc(index->slab, sizeof(*node));
        if (!node)
            return false;
        node_init(node, (uint32_t)((from + first / 9) << 4 | first % 9), 0, 0);
        link_set(link, (uint64_t)(uintptr_t)node | IS_NODE);
        bool ones_are_more = zeros < n - zeros;
        if (!(ones_are_more ? build(index, &node->child[0], items, zeros, from)
                            : build(index, &node->child[1], items + zeros, n - zeros, from)))
            return false;
        link = &node->child[ones_are_more];
        items += ones_are_more ? zeros : 0;
        n = ones_are_more ? n - zeros : zeros;
    }
    link_set(link, (uint64_t)(uintptr_t)items[0].holder);
    return true;
}

static int reclaim_node(void *node)
{
    slab_free(node);
    return 0;
}

void name_index_remove(struct name_index *index, struct slice name)
{
    _Atomic uint64_t *at = &index->root, *at_parent = NULL;
    uint64_t link;
    name_index_settle(index);
    while (is_node(link = load(at))) {
        at_parent = at;
        at = child_for(node_of(link), name);
    }
    VERIFY(link && first_difference(entry_name(entry_of(link)), name) == NO_BIT); /* not another name's leaf */
    if (!at_parent) {
        link_set(&index->root, 0);
        return;
    }
    struct name_node *parent = node_of(load(at_parent));
    link_set(at_parent, load(&parent->child[at == &parent->child[0]]));
    reclaimer_defer(index->reclaimer, reclaim_node, parent, 0);
}

/* Frees a tree of nodes of any depth without a stack: a node whose first child is a node is turned below that one. */
static int reclaim_tree(void *root)
{
    uint64_t link = (uint64_t)(uintptr_t)root | IS_NODE;
    while (is_node(link)) {
        struct name_node *node = node_of(link);
        uint64_t first = load(&node->child[0]);
        if (is_node(first)) {
            link_set(&node->child[0], load(&node_of(first)->child[1]));
            link_set(&node_of(first)->child[1], link);
            link = first & ADDRESS;
        } else {
            link = load(&node->child[1]) & ADDRESS;
            slab_free(node);
        }
    }
    return 0;
}

bool name_index_build(struct name_index *index, struct name_item *items, size_t n)
{
    _Atomic uint64_t root = 0;
    read_windows(items, n, 0);
    if (n > 0 && !build(index, &root, items, n, 0)) {
        if (is_node(load(&root))) /* not even one may have been made */
            (void)reclaim_tree(node_of(load(&root)));
        return false;
    }
    link_set(&index->root, root);
    return true;
}

void name_index_clear(struct name_index *index)
{
    for (unsigned i = atomic_exchange(&index->nadded, 0); i > 0; i--)
        slab_free(index->added[i - 1].node);
    uint64_t root = atomic_exchange(&index->root, 0);
    if (is_node(root))
        reclaimer_defer(index->reclaimer, reclaim_tree, node_of(root), 0);
}

void name_index_deinit(struct name_index *index)
{
    if (index->spare)
        slab_free(index->spare);
    index->spare = NULL;
}

/* ---- walks ---- */

#define STACK 64 /* subtrees that are still to come, the nearest ones */

struct steps {
    uint64_t links[STACK];
    size_t bottom, top; /* a ring: places modulo STACK */
    bool dropped;       /* a farther subtree did not fit: when the others are through, its place is sought again */
};

static void push(struct steps *steps, uint64_t link)
{
    __builtin_prefetch(is_node(link) ? (const void *)node_of(link) : (const void *)entry_of(link));
    if (steps->top - steps->bottom == STACK) {
        steps->bottom++;
        steps->dropped = true;
    }
    steps->links[steps->top++ % STACK] = link;
}

static bool pop(struct steps *steps, uint64_t *link_out)
{
    if (steps->top == steps->bottom)
        return false;
    *link_out = steps->links[--steps->top % STACK];
    return true;
}

/* The subtree of all names with this prefix; false: there are none. */
static bool subtree_of(const struct name_index *index, struct slice prefix, uint64_t *link_out)
{
    uint64_t link = load(&index->root);
    if (link == 0)
        return false;
    while (is_node(link) && node_bit(node_of(link)) < prefix.len << 4)
        link = load(child_for(node_of(link), prefix));
    struct slice name =
        entry_name(descend(link, prefix)); /* one for all: they share what comes before the node's bit */
    *link_out = link;
    return name.len >= prefix.len && (prefix.len == 0 || memcmp(name.ptr, prefix.ptr, prefix.len) == 0);
}

/* Pushes all subtrees of `link` whose names come after `after`. False: the tree has changed on the way, so that it is
 * not certain on which side of `after` the last of them lies. */
static bool push_behind(struct steps *steps, uint64_t link, struct slice after)
{
    uint32_t bit = first_difference(after, entry_name(descend(link, after)));
    while (is_node(link) && node_bit(node_of(link)) < bit) {
        const struct name_node *node = node_of(link);
        unsigned side = name_bit(after, node_bit(node));
        if (side == 0)
            push(steps, load(&node->child[1]));
        link = load(&node->child[side]);
    }
    if (first_difference(after, entry_name(descend(link, after))) != bit)
        return false;
    if (bit != NO_BIT && name_bit(after, bit) == 0)
        push(steps, link);
    return true;
}

static bool start(const struct name_index *index, struct steps *steps, struct slice prefix, const struct slice *after)
{
    for (;;) {
        uint64_t link;
        *steps = (struct steps){.top = 0};
        if (!subtree_of(index, prefix, &link))
            return false;
        if (!after) {
            push(steps, link);
            return true;
        }
        if (push_behind(steps, link, *after))
            return true;
    }
}

/* Takes up to `max` holders off the steps. */
static size_t take(struct steps *steps, struct entry **holders_out, size_t max)
{
    uint64_t link;
    size_t n = 0;
    while (n < max && pop(steps, &link)) {
        while (is_node(link)) {
            push(steps, load(&node_of(link)->child[1]));
            link = load(&node_of(link)->child[0]);
        }
        __builtin_prefetch(entry_of(link));
        holders_out[n++] = entry_of(link);
    }
    return n;
}

size_t name_index_walk(const struct name_index *index, struct slice prefix, const struct slice *after, size_t max,
                       void (*visit)(void *ctx, struct entry *holder), void *ctx)
{
    struct entry *holders[AHEAD];
    struct steps steps;
    struct slice last;
    size_t visited = 0, n;
    bool more = start(index, &steps, prefix, after);
    while (more && visited < max) {
        n = take(&steps, holders, max - visited < AHEAD ? max - visited : AHEAD);
        for (size_t i = 0; i < n; i++)
            visit(ctx, holders[i]);
        visited += n;
        if (n > 0)
            last = entry_name(holders[n - 1]);
        else if (steps.dropped)
            more = start(index, &steps, prefix, &last);
        else
            more = false;
    }
    return visited;
}
