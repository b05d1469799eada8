/* sim_filter: what the model knows about one filter: what must be there, and what may be. Both are equal while the
 * clients have each reply; they differ after faults, near the end of a time to live, and in filters that have false
 * positives or forget.
 *
 * Each check narrows the knowledge; a false result is a contradiction.
 *
 * Thread: one at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MODEL_ITEMS 48
#define NEVER_MS    UINT64_MAX

/* The kind of a filter follows from its name. Those of FAMILY_VALKEY have false positives. FAMILY_LATEST are windows of
 * a number of items. Those of the last three are multisets; of these the last two keep an error rate. */
enum family {
    FAMILY_PLAIN,
    FAMILY_BLOCKED,
    FAMILY_KEYED,
    FAMILY_VALKEY,
    FAMILY_WINDOW,
    FAMILY_LATEST,
    FAMILY_CUCKOO,
    FAMILY_CUCKOO_RATE,
    FAMILY_CUCKOO_KEYED,
    FAMILIES
};

static inline bool family_is_keyed(enum family family)
{
    return family == FAMILY_KEYED || family == FAMILY_CUCKOO_KEYED;
}

static inline bool family_is_window(enum family family)
{
    return family == FAMILY_WINDOW || family == FAMILY_LATEST;
}

static inline bool family_is_cuckoo(enum family family)
{
    return family >= FAMILY_CUCKOO;
}

/* The windows of a seed. */
struct window_kind {
    uint64_t ns;           /* its length */
    unsigned parts, items; /* of FAMILY_LATEST: items, which are no fewer than the parts */
    bool refresh;
};
extern struct window_kind filter_window;

enum { ABSENT = 1, PRESENT = 2, UNSURE = ABSENT | PRESENT };

struct model_filter {
    unsigned presence;
    bool ghost; /* has expired: a clock that is set back may show it again */
    uint64_t must, may;
    int more_lo, more_hi;          /* its count less the number of its items; of a window more_hi has lost ones only */
    uint64_t expire_lo, expire_hi; /* Unix time in ms; NEVER_MS */
    union {
        struct { /* of a cuckoo filter, for each item */
            uint8_t lo[MODEL_ITEMS], hi[MODEL_ITEMS];
        } copies;
        struct { /* of a window: an item of `must` and of `may` is there until then, in ns or in places */
            uint64_t must[MODEL_ITEMS], may[MODEL_ITEMS];
        } until;
    };
    struct { /* of FAMILY_LATEST: adds that took a place so far */
        uint64_t lo, hi;
        bool shifted; /* a part begins at any of them */
    } places;
};

/* The time from a command's departure to its reply: by the run's clock and by the time of day. */
struct moment {
    uint64_t sent_ns, replied_ns;
    uint64_t sent_ms, replied_ms;
};

/* False positives: seen, and queries that could have been some. */
struct model_false {
    uint64_t seen, asked;
};

struct model_filter filter_absent(void);
struct model_filter filter_empty(void);

/* Nothing is sure: any items of `may` may be there, any number of times and for any time. */
void filter_forget(enum family family, struct model_filter *filter);

/* Either of the two. */
void filter_join(enum family family, struct model_filter *filter, const struct model_filter *other);

/* Time has passed. */
void filter_age(enum family family, struct model_filter *filter, const struct moment *when);

/* The time of day was set back from `was_ms`. */
void filter_set_back(struct model_filter *filter, uint64_t was_ms);

/* ---- a filter that is there ---- */

enum answer { NO_ANSWER = -1, ANSWER_NO, ANSWER_YES };

bool filter_add(enum family family, struct model_filter *filter, unsigned item, enum answer answer,
                const struct moment *when);
bool filter_query(enum family family, struct model_filter *filter, unsigned item, enum answer answer,
                  struct model_false *count);
bool filter_card(enum family family, struct model_filter *filter, int64_t number);
bool filter_add_new(struct model_filter *filter, unsigned item, enum answer answer);
bool filter_delete(struct model_filter *filter, unsigned item, enum answer answer);
bool filter_count(struct model_filter *filter, unsigned item, int64_t number);
void filter_clear(struct model_filter *filter);
void filter_merge(enum family family, struct model_filter *filter, const struct model_filter *source);
void filter_expire(struct model_filter *filter, uint64_t lo_ms, uint64_t hi_ms);

/* ---- after a restart ---- */

struct model_seen {
    bool present;
    uint64_t items;
    int64_t count;
    uint64_t expire_ms;
    uint8_t copies[MODEL_ITEMS]; /* CF.COUNT */
};

/* NULL, or the contradiction. The filter becomes what was seen. `counts_more`: its count may include items that it
 * lacks. */
const char *filter_see(enum family family, struct model_filter *filter, const struct model_seen *seen,
                       bool counts_more);
