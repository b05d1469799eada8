/* datadir_start: the daemon's own start on a data directory, without workers and clients, and its end.
 *
 * Thread: one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"

struct started {
    bool refused_by_store; /* the MANIFEST cannot be trusted: no file has been changed */
    bool refused;          /* for that or any other reason in `err` */
    struct errbuf err;
    uint64_t digest; /* of the content, as in datadir_make() */
    size_t filters, quarantined;
    bool out_of_memory; /* refused, or a filter is in quarantine, for lack of memory */
    uint64_t bytes;     /* of bits */
    bool saved;         /* requested, and successful */
};

/* With `save` the loaded filters are saved before the end. */
void datadir_start(const char *dir, bool accept_damage, bool save, struct started *started_out);
