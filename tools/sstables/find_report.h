/* find_report: the output of `bloomery find`: for each key of a block its possible places, or with --absent the keys
 * that are nowhere. Lifetime: caller's storage. Thread: one. */
#ifndef BLOOMERY_TOOL_FIND_REPORT_H
#define BLOOMERY_TOOL_FIND_REPORT_H

#include "find_keys.h"
#include "output.h"
#include "sstable_walk.h"

#define FIND_COMMAND "find"

struct find_report {
    struct find_keys keys;
    bool *present;  /* of the block's keys; with --absent, otherwise NULL */
    bool name_keys; /* in lines */
    struct output out;
    uint64_t found;
    int status; /* TOOL_OK, or another one: some could not be asked, so no key is known to be absent */
};

/* Where a key may be: an SSTable of a directory, or a filter of a server. */
struct find_place {
    struct slice shown;
    const struct sstable_name *sstable; /* NULL: of a server */
};

/* A key of the block may be there; `filter` is the reason: "may hold it", "missing", "unreadable". */
void find_report_key(struct find_report *report, size_t key, const struct find_place *place, const char *filter);

/* All keys of the block may be there. */
void find_report_all(struct find_report *report, const struct find_place *place, const char *filter);

/* The end of a block, for --absent. */
void find_report_absent(struct find_report *report);

#endif
