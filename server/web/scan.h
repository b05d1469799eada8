/* scan: passes over all names of the registry in slices, so that one over millions holds up neither other requests nor
 * the freeing of removed filters.
 *
 * Thread: the status page's, an offline RCU reader. */
#ifndef BLOOMERY_SCAN_H
#define BLOOMERY_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "registry.h"

#define SCAN_SLICE 1000 /* names of a slice: some tenths of a millisecond */

/* Part of a larger object, whose owner it calls. */
struct scan {
    struct scan *next; /* internal, as are the next two */
    uint64_t cursor;
    uint64_t busy_ns;
    void (*visit)(void *ctx, struct slice name, struct entry *entry); /* as registry_scan()'s */
    void (*done)(void *ctx, uint64_t busy_ns); /* all names were visited, in so much time; may free the scan */
    void *ctx;
};

struct scans { /* zero-initialise */
    struct scan *first, *last;
};

void scan_begin(struct scans *scans, struct scan *scan);

/* Does one slice of the scan whose turn it is. False: there is none. */
bool scan_step(struct scans *scans, const struct registry *registry);

/* Ends all scans where they are, as if all names had been visited. */
void scan_end_all(struct scans *scans);

#endif
