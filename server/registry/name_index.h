/* name_index: the registry's names in the order of their bytes, for patterns with a literal beginning. Internal to the
 * registry.
 *
 * A crit-bit tree (D. J. Bernstein; PATRICIA of D. R. Morrison, 1968): a node has the first bit in which the names
 * below it differ and two children. All names below a node share the bits before its own, so a prefix is one subtree. A
 * descent finds it with one bit comparison per node and one name comparison in all. The names below are visited without
 * a comparison. A change is one store of a child, so readers take no lock and never see a name twice or miss one that
 * stays. A node is 16 bytes, and there is one for each name but the first.
 *
 * Chosen over a B+-tree, whose readers would have to notice that entries move in a leaf, and over a skip list, which
 * compares whole names on the way down. Its weakness: a path has as many nodes as other names branch off it. So names
 * that are prefixes of one another (a, aa, aaa, ...) make paths as long as their number. With 10,000 of them, 50 MB of
 * names, a creation costs about 0.1 ms. A name of n bytes has at most 9 n nodes on its path.
 *
 * Thread: changes under the registry's mutex; walks by any RCU reader. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

#define NAME_INDEX_NODE_BYTES 16 /* one node for each name but the first */

struct entry;
struct reclaimer;
struct slab;

struct name_node;

#define NAME_INDEX_NEW 32

struct name_new {
    struct entry *holder;
    struct name_node *node; /* for its place in the tree */
};

/* Zero-initialise, with `slab` and `reclaimer` set. */
struct name_index {
    _Atomic uint64_t root; /* a link; 0: no names */
    struct name_node *spare;
    struct slab *slab;
    struct reclaimer *reclaimer;
    _Atomic unsigned nadded;               /* new names that are not in the tree yet */
    struct name_new added[NAME_INDEX_NEW]; /* their holders */
};

/* Makes sure that the next name_index_add() succeeds. False without memory. */
bool name_index_reserve(struct name_index *index);

/* Adds the holder of a new name, after name_index_reserve(). */
void name_index_add(struct name_index *index, struct entry *holder);

/* Puts the holder of a name that is in the index in the place of the former one. */
void name_index_replace(struct name_index *index, struct entry *holder);

/* Puts the new names into the tree. Walks see those that were added before the latest call. */
void name_index_settle(struct name_index *index);

/* Whether walks see all names. Any thread. */
static inline bool name_index_is_settled(const struct name_index *index)
{
    return atomic_load_explicit(&index->nadded, memory_order_acquire) == 0;
}

/* Fills an empty index with the holders of `n` names, no two of which are the same; a million in a quarter of the time
 * of as many name_index_add(). `bits` is for its own use. False without memory, and the index is empty. */
struct name_item {
    uint64_t bits;
    struct entry *holder;
};
bool name_index_build(struct name_index *index, struct name_item *items, size_t n);

/* Removes a name that is in the index. Its holder may be freed after the grace period that begins now. */
void name_index_remove(struct name_index *index, struct slice name);

/* Removes all names at one moment, and frees the nodes later. */
void name_index_clear(struct name_index *index);

/* Frees the spare node; the index is empty. */
void name_index_deinit(struct name_index *index);

/* Calls `visit` for the holders of at most `max` names that begin with `prefix` and come after `after` (NULL: all), in
 * the order of their bytes. Returns how many there were; fewer than `max`: there are no more. Holders whose names are
 * in the index throughout are visited exactly once. */
size_t name_index_walk(const struct name_index *index, struct slice prefix, const struct slice *after, size_t max,
                       void (*visit)(void *ctx, struct entry *holder), void *ctx);
