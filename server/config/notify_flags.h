/* notify_flags: the classes of keyspace events, as the setting notify-keyspace-events names them. Pure functions. */
#pragma once

#include <stdbool.h>

#include "resp_parse.h"

/* One letter each. Classes of types that do not exist here (strings, lists ...) are accepted and kept, because clients
 * and operators set them routinely. */
enum notify_flags {
    NOTIFY_KEYSPACE = 1 << 0,  /* K: channel __keyspace@0__:<name>, message <event> */
    NOTIFY_KEYEVENT = 1 << 1,  /* E: channel __keyevent@0__:<event>, message <name> */
    NOTIFY_GENERIC = 1 << 2,   /* g: del, expire, persist, rename_from, rename_to, copy_to, restore */
    NOTIFY_STRING = 1 << 3,    /* $ */
    NOTIFY_LIST = 1 << 4,      /* l */
    NOTIFY_SET = 1 << 5,       /* s */
    NOTIFY_HASH = 1 << 6,      /* h */
    NOTIFY_ZSET = 1 << 7,      /* z */
    NOTIFY_EXPIRED = 1 << 8,   /* x */
    NOTIFY_EVICTED = 1 << 9,   /* e: nothing is ever evicted */
    NOTIFY_STREAM = 1 << 10,   /* t */
    NOTIFY_MODULE = 1 << 11,   /* d: bloom.reserve, bloom.grow, bloom.full, bloom.load, bloom.clear, bloom.merge */
    NOTIFY_KEY_MISS = 1 << 12, /* m: accepted, never sent: a query of a missing filter must not cost more than
                                * another */
    NOTIFY_NEW = 1 << 13,      /* n: new */
};

/* A: all classes but m and n. */
#define NOTIFY_ALL                                                                                            \
    (NOTIFY_GENERIC | NOTIFY_STRING | NOTIFY_LIST | NOTIFY_SET | NOTIFY_HASH | NOTIFY_ZSET | NOTIFY_EXPIRED | \
     NOTIFY_EVICTED | NOTIFY_STREAM | NOTIFY_MODULE)

#define NOTIFY_FLAGS_TEXT 20 /* room for the text of all flags and a NUL */
