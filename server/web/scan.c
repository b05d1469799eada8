#include "scan.h"

#include <stddef.h>

#include "clock.h"
#include "rcu.h"

static void append(struct scans *scans, struct scan *scan)
{
    scan->next = NULL;
    if (scans->last)
        scans->last->next = scan;
    else
        scans->first = scan;
    scans->last = scan;
}

void scan_begin(struct scans *scans, struct scan *scan)
{
    scan->cursor = 0;
    scan->busy_ns = 0;
    append(scans, scan);
}

static struct scan *take_first(struct scans *scans)
{
    struct scan *scan = scans->first;
    if (scan)
        scans->first = scan->next;
    if (!scans->first)
        scans->last = NULL;
    return scan;
}

bool scan_step(struct scans *scans, const struct registry *registry)
{
    struct scan *scan = take_first(scans);
    if (!scan)
        return false;
    uint64_t began_ns = clock_ns();
    rcu_reader_online();
    scan->cursor = registry_scan(registry, scan->cursor, SCAN_SLICE, scan->visit, scan->ctx);
    rcu_reader_offline();
    scan->busy_ns += clock_ns() - began_ns;
    if (scan->cursor != 0)
        append(scans, scan);
    else
        scan->done(scan->ctx, scan->busy_ns);
    return true;
}

void scan_end_all(struct scans *scans)
{
    for (struct scan *scan; (scan = take_first(scans)) != NULL;)
        scan->done(scan->ctx, scan->busy_ns);
}
