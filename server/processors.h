/* processors: on which processors the threads of the daemon run, by the settings server-cpulist, bio-cpulist and
 * bgsave-cpulist.
 *
 * A list of which the process can have none is refused: whoever has written it relies on it. One of which some are missing,
 * as a file meant for machines of several sizes has, is followed as far as that goes, and reported. */
#ifndef BLOOMERY_PROCESSORS_H
#define BLOOMERY_PROCESSORS_H

#include "config.h"
#include "errbuf.h"

#define PROCESSORS_LISTS 3

/* What is to be warned of, a text for each list; "" where there is nothing. */
struct processors_missing {
    struct errbuf texts[PROCESSORS_LISTS];
};

/* For the main thread, before there are others. 0, or -errno with the reason. */
int processors_take(const struct config *config, struct processors_missing *missing_out, struct errbuf *err)
    __attribute__((warn_unused_result));

#endif
