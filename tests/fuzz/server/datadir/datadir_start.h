/* datadir_start: the daemon's own start on a data directory, without workers and clients, and its end.
 *
 * Thread: one. */
#ifndef BLOOMERY_FUZZ_DATADIR_START_H
#define BLOOMERY_FUZZ_DATADIR_START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"

struct started {
    bool refused_by_store; /* the MANIFEST cannot be trusted: nothing has been changed */
    bool refused;          /* by that or anything else; `err` says why */
    struct errbuf err;
    uint64_t digest; /* of what there is, as of datadir_make() */
    size_t filters, quarantined;
    bool out_of_memory; /* refused, or a filter is in quarantine, for lack of it */
    uint64_t bytes;     /* of bits */
    bool saved;         /* asked to, and it succeeded */
};

/* With `save` what has been loaded is saved before the end. */
void datadir_start(const char *dir, bool accept_damage, bool save, struct started *started_out);

#endif
