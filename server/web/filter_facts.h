/* filter_facts: the numbers of one filter as metrics and the status page show them.
 *
 * Thread: an online RCU reader. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bloom_state.h"
#include "registry.h"
#include "usage.h"

struct acl_user;
struct server;

#define NAME_TEXT_MAX  128 /* bytes of a name that are shown */
#define NAME_TEXT_SIZE (4 * NAME_TEXT_MAX + 24)

struct name_text {
    size_t len;
    char text[NAME_TEXT_SIZE]; /* valid UTF-8 without control characters */
};

/* Short names of valid UTF-8 without control characters are shown as they are. In other names each unprintable byte is
 * \xHH, and bytes after NAME_TEXT_MAX are left out. A '~' with 16 digits of the name's hash follows, so different names
 * have different texts. */
void name_text(struct slice name, struct name_text *text_out);

struct filter_kind {
    bool fixed;         /* it does not grow */
    bool cuckoo;        /* a cuckoo filter: slots represent bits */
    bool window;        /* it forgets */
    uint64_t key;       /* of a KEYED filter the id of its key; otherwise 0 */
    const char *layout; /* "na", "redisbloom" ...; "" where it is unknown */
};

struct filter_facts {
    bool sstable;     /* a filter of an SSTable */
    bool unread;      /* it has not been read yet; all numbers are 0 then */
    bool quarantined; /* all numbers are 0 then */
    bool evicted;     /* by filter_facts_measure(): its bits are not in memory; facts that follow from them are 0 */
    struct filter_kind kind;
    uint64_t items;
    uint64_t capacity; /* of the layers that exist */
    unsigned layers;
    uint64_t bytes;        /* of bits */
    double requested_rate; /* the rate of false positives that was asked for */
    double oldest_s;       /* of a window: the age of its oldest part that is not forgotten; otherwise NAN */
    double rate;           /* the present one, expected from the numbers of items */

    unsigned db;        /* the number of its database */
    int64_t expires_ms; /* Unix time; 0: never */
    struct name_text name;

    /* by filter_facts_measure() */
    double bits_set;      /* share of the bits that are set, 0..1 */
    double measured_rate; /* from the bits: of a sample in large layers */
    struct usage_counts usage;
};

/* Whether the user may see the facts of the filter with this key: by BF.INFO, or CF.INFO. `entry` NULL: none. */
bool filter_facts_allowed(const struct registry *registry, const struct acl_user *user, struct slice key,
                          struct entry *entry);

/* The fields before the name, without and with `rate`, which costs a power for each layer. */
void filter_facts_count(struct entry *entry, bool with_rate, struct filter_facts *facts_out);

/* The filter with this key: of the data directory, or else of an SSTable; NULL: there is none. */
struct entry *filter_facts_find(const struct server *server, struct slice key);

/* All but the last fields, of the filter with this key. */
void filter_facts(const struct server *server, struct slice key, struct entry *entry, struct filter_facts *facts_out);

/* The last fields. Looks at 64 kB of the filter's bits, so it takes microseconds for a filter of any size. */
void filter_facts_measure(struct server *server, struct entry *entry, struct filter_facts *facts);

/* The share of queries for absent items that clients reported as wrongly present; false if none was reported. */
bool filter_facts_observed(const struct filter_facts *facts, double *rate_out);

/* Words of a layer of a filter with `nlayers` to check: for bloom_layer_state_sampled(). */
uint64_t filter_facts_sample(unsigned nlayers);
