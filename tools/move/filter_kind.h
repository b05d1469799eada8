/* filter_kind: the arguments of BF.RESERVE for a filter like an existing one: rate, capacity, growth, layout, window,
 * KEYED. Its time to live is apart (PTTL). Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server_call.h"

#define FILTER_KIND_WORDS 16 /* at most, of filter_kind_options() */

struct filter_kind {
    bool exists; /* otherwise nothing else is set */
    bool keyed, fixed;
    double rate; /* 0: the server does not report it, like RedisBloom */
    uint64_t capacity;
    char expansion[PEER_NUMBER_SIZE]; /* of one that grows */
    char layout[16];                  /* empty: the server knows one only */
    char window[PEER_NUMBER_SIZE];    /* its length; empty: it is none */
    char parts[PEER_NUMBER_SIZE];
    bool by_items, refresh; /* of a window */
};

/* Asks the server. TOOL_OK, also if there is no such filter; or TOOL_FAILED after a message. */
int filter_kind_read(struct server_call *call, struct slice name, struct filter_kind *out);

/* The options after the capacity, which point into `kind`. Returns their number. */
size_t filter_kind_options(const struct filter_kind *kind, struct slice words[FILTER_KIND_WORDS]);
