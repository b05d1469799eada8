/* bf_info: the replies of BF.INFO, BF.DEBUG and BF.PLAN. The first fields of BF.INFO are RedisBloom's; FULL adds
 * fields that are computed from the bits. Each field can also be requested alone.
 *
 * Thread: any; the filter may be added to meanwhile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bf_out.h"
#include "bf_request.h"
#include "bloom_filter.h"
#include "bloom_plan.h"
#include "errbuf.h"

/* The host's counters of the filter. */
struct bf_usage {
    uint64_t hits;   /* queries answered "present" */
    uint64_t misses; /* queries answered "absent" */
    uint64_t wrong;  /* hits that clients reported as false (BF.FALSEPOSITIVE) */
    int64_t since_s; /* Unix time since which these are complete; 0: nothing counted */
};

/* A range of the table of fields. */
struct bf_choice {
    size_t first, n;
    bool needs_bits; /* a field counts the bits: about 1 ms per 10 MB */
    bool evicted;    /* set by a host: the filter's bits are not in memory, and these fields are null */
    uint64_t limit;  /* set by a host: the most bytes of a filter; 0: none */
    bool valkey;     /* in valkey-bloom's form: never a map, a single field without an array around it */
};

/* BF.INFO key [field|FULL]; without the third word RedisBloom's fields, or valkey-bloom's. False: `error` replies. */
bool bf_read_info(const struct bf_args *args, struct bf_choice *choice_out, struct errbuf *error);

/* Whether the filter has the chosen field, if that is a single one. */
bool bf_info_has(const struct bloom_filter *filter, const struct bf_choice *choice, struct errbuf *error);

/* Replies with the chosen fields of a filter. A single field is an array of its value where the protocol has no maps.
 * 0, or -ENOMEM with nothing written. */
int bf_reply_info(const struct bf_out *out, const struct bloom_filter *filter, const struct bf_usage *usage,
                  const struct bf_choice *choice);

/* BF.DEBUG: RedisBloom's lines, with the numbers of our layers. hashwidth is 64, as its hash values and ours have. */
void bf_reply_debug(const struct bf_out *out, const struct bloom_filter *filter);

/* Replies with the plan of a filter. Some microseconds for each of its layers. */
void bf_reply_plan(const struct bf_out *out, const struct bf_plan *requested);

/* Whether a new filter will exceed twice the requested error rate when its first layer is full, and the message for the
 * operator. Small filters at low rates do so in RedisBloom's layout. */
bool bf_rate_is_off(const struct bloom_filter *filter, struct errbuf *text_out);
