/* processors: pins the daemon's threads to processors, by the settings server-cpulist, bio-cpulist and bgsave-cpulist.
 *
 * A list without any usable processor is refused, because the operator relies on it. Unusable processors in other lists
 * are reported and left out: one file may serve machines of several sizes. */
#ifndef BLOOMERY_PROCESSORS_H
#define BLOOMERY_PROCESSORS_H

#include "config.h"
#include "errbuf.h"

#define PROCESSORS_LISTS 3

/* The warnings, a text for each list; "" for none. */
struct processors_missing {
    struct errbuf texts[PROCESSORS_LISTS];
};

/* Called by the main thread before there are others. 0, or -errno with the reason. */
int processors_take(const struct config *config, struct processors_missing *missing_out, struct errbuf *err)
    __attribute__((warn_unused_result));

#endif
