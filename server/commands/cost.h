/* cost: how long a command takes, in one table (cost.c).
 *
 * The unit is a nanosecond of the machine on which tests/bench/command_costs.py has measured the table. A cost is an
 * estimate from above: layers times items, pages touched for the first time, names compared with patterns. It decides
 * whether a transaction, for which all clients wait, is short enough (transactions/transaction_cost.h), and whether
 * BF.INFO answers on the loop.
 *
 * Thread: any. */
#ifndef BLOOMERY_COST_H
#define BLOOMERY_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command_row.h"
#include "resp_parse.h"

struct bloom_filter;
struct bloom_params;
struct bloom_shape;

#define COST_TRANSACTION UINT64_C(8192000) /* of all commands of a transaction together, at most */
#define COST_NAME        UINT64_C(300)    /* a filter out of the cache, by its name: BF.EXISTS of 600,000 filters 700 */
#define COST_USER_BYTE   UINT64_C(2)      /* of the users' memory: ACL LIST of 1,000 users with 7 rules 3,400,000 */
#define COST_INLINE      UINT64_C(500000) /* a command that may defer takes no more on the loop */

#define COST_CUCKOO_LAYER UINT64_C(8000) /* a cuckoo filter gets a layer: CF.INSERT of 3,000 equal items 2,900,000 */

/* The facts besides its words that determine the cost of a command. */
enum cost_by {
    COST_BY_WORDS,   /* nothing else */
    COST_BY_ASKED,   /* items, which are looked for in each layer */
    COST_BY_ADDED,   /* the same, growth, and pages that do not exist yet */
    COST_BY_MADE,    /* a new filter, if there is none */
    COST_BY_LAYERS,  /* each layer */
    COST_BY_INFO,    /* each layer; with a field its bits, too */
    COST_BY_CLEARED, /* each layer, the bits that are checked, and a new filter */
    COST_BY_FOUND,   /* items times the layers of all filters that are named */
    COST_BY_USERS,   /* the users and their rules */
    COST_BY_DELETED, /* of a cuckoo filter: items in each layer, and a compaction */
    COST_BY_COMPACTED,
};

/* A filter, as far as costs follow from it. Zeroed: there is none. Commands only make it more expensive: one that would
 * make it cheaper may fail. */
struct cost_filter {
    bool exists;
    bool may_be_removed; /* the next add may make another one */
    bool is_sized;       /* a filter with the same parameters has been made a moment ago */
    unsigned layers;
    unsigned k;
    uint64_t bytes;     /* of its newest layer */
    uint64_t young;     /* pages of that layer that may not exist yet */
    uint64_t unread;    /* of these, pages that no query has met */
    uint64_t room;      /* items for which it has room without another layer */
    uint64_t next;      /* the capacity of that layer */
    uint32_t expansion; /* 0: it never has another layer */
    struct {
        uint64_t bytes, capacity;
    } first; /* layer */

    /* Of a cuckoo filter, whose `k` are the slots of a bucket; otherwise 0. */
    unsigned iterations; /* evictions of an add */
    uint64_t slots;      /* of all layers */
    uint64_t holes;      /* deletions before it is compacted by itself */
    uint64_t holes_then; /* and after that */
    bool compacting;     /* changes continue with a compaction */
    unsigned most;       /* layers with which a command adds nothing (cf-max-expansions); to be set by the caller */
};

/* As it is now. Takes the same time for any number of layers, but those of a cuckoo filter. */
struct cost_filter cost_filter_of(const struct bloom_filter *filter);

/* As it would be made with these parameters. */
struct cost_filter cost_filter_new(const struct bloom_params *params);

/* The same of a cuckoo filter. */
struct cost_filter cost_filter_cuckoo(const struct bloom_params *params, const struct bloom_shape *shape);

/* Makes `filter` the more expensive of both in each respect. */
void cost_filter_join(struct cost_filter *filter, const struct cost_filter *other);

/* The facts that determine the row's cost. */
enum cost_by cost_by(const struct command *row);

/* The cost by words and bytes: no estimate is less. `npatterns`: those of the client's rights, with which each name is
 * compared; 0: it may use all names. */
uint64_t cost_of_words(const struct command *row, const struct resp_command *cmd, size_t npatterns);

/* The cost of a call with this many items, beyond that of its words. `made`: the filter that it makes if there is none.
 * Changes `filter` as the call may do. */
uint64_t cost_of_filter(const struct command *row, struct cost_filter *filter, size_t items,
                        const struct cost_filter *made);

/* BF.INFO of a filter with this many layers and bytes; the bits are counted or not. */
uint64_t cost_of_info(uint64_t layers, uint64_t bytes, bool counts_bits);

#endif
