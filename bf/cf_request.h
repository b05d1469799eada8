/* cf_request: turns the arguments of a CF.* command into a request, or into the text of the error reply; and the texts
 * and replies that follow from a cuckoo filter. Options, their order and errors are RedisBloom's.
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bf_out.h"
#include "bf_request.h"
#include "bloom_filter.h"
#include "cuckoo.h"

#define CF_EXISTS       "ERR item exists"
#define CF_NOT_FOUND    "ERR not found"
#define CF_FULL         "Filter is full"
#define CF_MANY_LAYERS  "Maximum expansions reached"
#define CF_NO_MEMORY    "ERR Insufficient memory: %s"
#define CF_DEL_MISSING  "Not found"
#define CF_COMPACT_NONE "Cuckoo filter was not found"
#define CF_BAD_POSITION "Invalid position"
#define CF_BAD_HEADER   "Invalid header"
#define CF_NOT_MADE     "Couldn't create filter!"
#define CF_NOT_LOADED   "Couldn't load chunk!"
#define CF_KEYED_NO_RATE \
    "ERR KEYED needs ERROR rate: RedisBloom's layout, which filters without ERROR have, has no keys"

/* All functions that read: true, and *out is filled; or false, and `error` has the whole text of the reply. */

/* CF.RESERVE key capacity [BUCKETSIZE n] [MAXITERATIONS n] [EXPANSION n]; or, for a filter in our layout,
 * key capacity ERROR rate [MAXITERATIONS n] [EXPANSION n] [KEYED]. The defaults are those of RedisBloom's layout. */
bool cf_read_reserve(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cuckoo_numbers *out,
                     struct errbuf *error);

/* CF.PLAN capacity [BUCKETSIZE n|ERROR rate] [MAXITERATIONS n] [EXPANSION n] [ITEMS n] */
struct cf_plan {
    struct cuckoo_numbers numbers;
    uint64_t items; /* 0: not asked */
};
bool cf_read_plan(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cf_plan *out,
                  struct errbuf *error);

/* CF.INSERT and CF.INSERTNX key [CAPACITY n] [ERROR rate [KEYED]] [NOCREATE] ITEMS item ... */
struct cf_insert {
    struct cuckoo_numbers numbers; /* of a filter that the command creates */
    bool no_create;
    size_t first_item; /* index of the first item among the arguments */
};
bool cf_read_insert(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cf_insert *out,
                    struct errbuf *error);

/* The index of the first item of a CF.INSERT that has been read without an error. */
size_t cf_first_item(const struct bf_args *args);

/* An element of CF.INSERT's list: true, or false where the filter is full; of CF.INSERTNX an integer in RESP3, too. */
void cf_reply_added(const struct bf_out *out, enum bloom_add answer, bool only_new);

/* CF.INFO key [FULL]: RedisBloom's fields. FULL adds the share of used slots, the current error rate and the bytes per
 * item. In our layout it also adds the guaranteed rate and the derived numbers. */
bool cf_read_info(const struct bf_args *args, bool *full_out, struct errbuf *error);
void cf_reply_info(const struct bf_out *out, const struct bloom_filter *filter, bool full);
/* Replies with the size and the rates of a planned filter. `most_layers`: the most sub-filters that it may have. Takes
 * milliseconds: a small filter is filled to find its capacity (cuckoo.h). */
void cf_reply_plan(const struct bf_out *out, const struct cf_plan *requested, unsigned most_layers);

void cf_reply_debug(const struct bf_out *out, const struct bloom_filter *filter);
