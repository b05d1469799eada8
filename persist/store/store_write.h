/* store_write: filters that are written outside of saves, from store_write() to the save that has them. Internal to
 * persist.
 *
 * Thread: the one that opens, loads or saves, except where noted. */
#ifndef BLOOMERY_STORE_WRITE_H
#define BLOOMERY_STORE_WRITE_H

#include "store_internal.h"

/* The states of a filter from store_write(), and the events that change them. A commit drops filters that the save has,
 * and filters in other states than PRIVATE and PUBLISHED. */
enum written_state {
    WRITTEN_PRIVATE,     /* its files are on the disk; the caller has yet to publish it */
    WRITTEN_PUBLISHED,   /* published, maybe during the running save: the walk may have missed it */
    WRITTEN_DUE,         /* published before the running save began: if the walk does not yield it, it is gone */
    WRITTEN_GONE,        /* the source of the running save has reported it as gone */
    WRITTEN_QUARANTINED, /* found by a start in the log, and could not be loaded */
    WRITTEN_FORGOTTEN,   /* the same, and an operator has given it up */
    WRITTEN_STATES,
};

enum written_event {
    WRITTEN_IS_PUBLISHED,
    WRITTEN_SAVE_BEGINS,
    WRITTEN_IS_GONE,
    WRITTEN_IS_UNREADABLE,
    WRITTEN_IS_GIVEN_UP,
    WRITTEN_EVENTS,
};

struct written {
    uint64_t id;
    enum written_state state; /* under the store's lock */
    bool stale;               /* its bits have changed since; stays set when a save fails */
    size_t len;
    char text[]; /* the record */
};

/* The caller has the store's lock. */
void written_advance(struct written *written, enum written_event event);

/* A record that is not in a MANIFEST. `filter` is valid until the deinit. 0, -EINVAL (not a record) or -ENOMEM. */
struct parsed_record {
    struct manifest_parser parser;
    struct manifest_sink sink;
    const struct manifest_filter *filter;
};
int parsed_record_init(struct parsed_record *parsed, const char *text, size_t len, struct errbuf *err);
void parsed_record_deinit(struct parsed_record *parsed);

/* The filter with this id, if its files are complete; valid until the running save ends. NULL: none. */
struct written *written_find(struct store *store, uint64_t id);

/* Called before a save: notes the published filters. After its commit: drops the filters that the save has taken over;
 * `next` is its index. */
void written_begin(struct store *store);
void written_end(struct store *store, const struct store_index *next);
void written_drop(struct store *store, uint64_t id); /* the record, not the files */
void written_deinit(struct store *store);

#endif
