#include "sim_filter.h"

#include <stddef.h>

#define FALSE_AT_ONCE 12 /* false positives of one filter among all items */
#define MANY          UINT8_MAX
#define LATE_NS       UINT64_C(50000000) /* a window may forget an item so much later than it says */

struct window_kind filter_window;

static uint64_t bit(unsigned item)
{
    return UINT64_C(1) << item;
}

static int bits_in(uint64_t items)
{
    return __builtin_popcountll(items);
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int max(int a, int b)
{
    return a > b ? a : b;
}

struct model_filter filter_absent(void)
{
    return (struct model_filter){.presence = ABSENT, .expire_lo = NEVER_MS, .expire_hi = NEVER_MS};
}

struct model_filter filter_empty(void)
{
    return (struct model_filter){.presence = PRESENT, .expire_lo = NEVER_MS, .expire_hi = NEVER_MS};
}

/* ---- windows of a number of items ---- */

static uint64_t part_items(void)
{
    return (filter_window.items + filter_window.parts - 1) / filter_window.parts;
}

/* An item is there for so many adds at most. */
static uint64_t places_most(void)
{
    return (filter_window.parts + 1) * part_items() - 1;
}

static void age_by_places(struct model_filter *filter)
{
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        if (filter->places.hi > filter->until.must[i])
            filter->must &= ~bit(i);
        if (filter->places.lo > filter->until.may[i])
            filter->may &= ~bit(i);
    }
}

/* With REFRESH: whether an add of a present item takes a place; not if the newest part has the item. */
static enum answer takes_place(const struct model_filter *filter, unsigned item)
{
    uint64_t now = filter->places.lo, place = filter->until.may[item] - places_most();
    if (now != filter->places.hi || filter->places.shifted || !(filter->must & bit(item)))
        return NO_ANSWER;
    return now % part_items() == 0 || (place - 1) / part_items() != (now - 1) / part_items() ? ANSWER_YES : ANSWER_NO;
}

static bool add_to_latest(struct model_filter *filter, unsigned item, enum answer answer)
{
    bool must = filter->must & bit(item), may = filter->may & bit(item), fits = true;
    enum answer takes = answer == ANSWER_NO ? takes_place(filter, item) : answer;
    if (answer != NO_ANSWER)
        fits = answer == ANSWER_YES ? !must : may;
    if (answer == ANSWER_NO && !filter_window.refresh)
        return fits;
    filter->places.lo += takes == ANSWER_YES;
    filter->places.hi += takes != ANSWER_NO;
    if (answer != NO_ANSWER) { /* it is the latest one */
        filter->until.must[item] = filter->places.lo + filter_window.items - 1;
        filter->must |= bit(item);
    } else if (!must) {
        filter->until.must[item] = 0;
    }
    if (takes != ANSWER_NO)
        filter->until.may[item] = filter->places.hi + places_most();
    filter->may |= bit(item);
    age_by_places(filter);
    return fits;
}

/* Only the difference of the places counts from here on. */
static void shift_places(struct model_filter *filter)
{
    uint64_t unsure = filter->places.hi - filter->places.lo;
    filter->places.lo = filter->places.hi;
    filter->places.shifted |= unsure > 0;
    for (unsigned i = 0; i < MODEL_ITEMS; i++)
        filter->until.may[i] = filter->places.lo + places_most() < filter->until.may[i] + unsure
                                   ? filter->places.lo + places_most()
                                   : filter->until.may[i] + unsure;
}

/* ---- all filters ---- */

void filter_forget(enum family family, struct model_filter *filter)
{
    filter->must = 0;
    filter->places.lo = filter->places.hi;
    filter->places.shifted = true;
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        if (family_is_cuckoo(family)) {
            filter->copies.lo[i] = 0;
            filter->copies.hi[i] = filter->may & bit(i) ? MANY : 0;
        } else if (family_is_window(family)) {
            filter->until.must[i] = 0;
            filter->until.may[i] = family == FAMILY_WINDOW ? UINT64_MAX : filter->places.hi + places_most();
        }
    }
}

static uint64_t max_ns(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void join_items(enum family family, struct model_filter *filter, const struct model_filter *other)
{
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        if (family_is_cuckoo(family)) {
            filter->copies.lo[i] = (uint8_t)min(filter->copies.lo[i], other->copies.lo[i]);
            filter->copies.hi[i] = (uint8_t)max(filter->copies.hi[i], other->copies.hi[i]);
        } else if (family_is_window(family)) {
            uint64_t *must = &filter->until.must[i], *may = &filter->until.may[i];
            filter->places.shifted |= *must != other->until.must[i] || *may != other->until.may[i];
            if (*must > other->until.must[i])
                *must = other->until.must[i];
            *may = !(filter->may & bit(i))  ? other->until.may[i]
                   : !(other->may & bit(i)) ? *may
                                            : max_ns(*may, other->until.may[i]);
        }
    }
}

static void join_places(struct model_filter *filter, const struct model_filter *other)
{
    filter->places.shifted |= other->places.shifted || filter->places.lo != other->places.lo;
    if (filter->places.lo > other->places.lo)
        filter->places.lo = other->places.lo;
    if (filter->places.hi < other->places.hi)
        filter->places.hi = other->places.hi;
}

/* What was known of a filter before it expired is kept for a clock that is set back. */
static bool has_content(const struct model_filter *filter)
{
    return (filter->presence & PRESENT) || filter->ghost;
}

void filter_join(enum family family, struct model_filter *filter, const struct model_filter *other)
{
    unsigned presence = filter->presence | other->presence;
    bool ghost = filter->ghost || other->ghost;
    if (!has_content(filter))
        *filter = *other;
    else if (has_content(other)) {
        join_items(family, filter, other);
        join_places(filter, other);
        filter->must &= other->must;
        filter->may |= other->may;
        filter->more_lo = min(filter->more_lo, other->more_lo);
        filter->more_hi = max(filter->more_hi, other->more_hi);
        filter->expire_lo = filter->expire_lo < other->expire_lo ? filter->expire_lo : other->expire_lo;
        filter->expire_hi = filter->expire_hi > other->expire_hi ? filter->expire_hi : other->expire_hi;
    }
    filter->presence = presence;
    filter->ghost = ghost;
}

static void age_items(struct model_filter *filter, const struct moment *when)
{
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        if (when->replied_ns > filter->until.must[i])
            filter->must &= ~bit(i);
        if (when->sent_ns > filter->until.may[i])
            filter->may &= ~bit(i);
    }
}

void filter_age(enum family family, struct model_filter *filter, const struct moment *when)
{
    if (family == FAMILY_WINDOW)
        age_items(filter, when);
    if (family == FAMILY_LATEST)
        age_by_places(filter);
    if (!(filter->presence & PRESENT) || when->replied_ms < filter->expire_lo)
        return;
    filter->presence = when->sent_ms > filter->expire_hi ? ABSENT : filter->presence | ABSENT;
    filter->ghost = true;
}

void filter_set_back(struct model_filter *filter, uint64_t was_ms)
{
    if (filter->ghost || ((filter->presence & PRESENT) && filter->expire_lo <= was_ms))
        filter->presence = UNSURE;
}

/* ---- a filter that is there ---- */

/* An item that is there less than before, or more. */
static void set_copies(struct model_filter *filter, unsigned item, int lo, int hi)
{
    filter->copies.lo[item] = (uint8_t)max(0, min(lo, MANY));
    filter->copies.hi[item] = (uint8_t)max(0, min(hi, MANY));
    filter->must = lo > 0 ? filter->must | bit(item) : filter->must & ~bit(item);
    filter->may = hi > 0 ? filter->may | bit(item) : filter->may & ~bit(item);
}

static bool add_copy(struct model_filter *filter, unsigned item, enum answer answer)
{
    int lo = filter->copies.lo[item], hi = filter->copies.hi[item];
    set_copies(filter, item, answer == ANSWER_YES ? lo + 1 : lo, answer == ANSWER_NO ? hi : hi + 1);
    return answer != ANSWER_NO;
}

bool filter_add_new(struct model_filter *filter, unsigned item, enum answer answer)
{
    int lo = filter->copies.lo[item], hi = filter->copies.hi[item];
    if (answer == NO_ANSWER)
        set_copies(filter, item, lo, max(1, hi));
    else if (answer == ANSWER_YES)
        set_copies(filter, item, 1, 1);
    else
        set_copies(filter, item, max(1, lo), hi);
    return answer == NO_ANSWER || (answer == ANSWER_YES ? lo == 0 : hi > 0);
}

bool filter_delete(struct model_filter *filter, unsigned item, enum answer answer)
{
    int lo = filter->copies.lo[item], hi = filter->copies.hi[item];
    if (answer == ANSWER_NO)
        set_copies(filter, item, 0, 0);
    else
        set_copies(filter, item, lo - 1, answer == ANSWER_YES && hi < MANY ? hi - 1 : hi);
    return answer == NO_ANSWER || (answer == ANSWER_YES ? hi > 0 : lo == 0);
}

/* In a small filter an item may count twice. */
bool filter_count(struct model_filter *filter, unsigned item, int64_t number)
{
    int lo = filter->copies.lo[item], hi = filter->copies.hi[item], seen = (int)number;
    bool fits = seen >= lo && (hi == MANY || seen <= 2 * hi);
    set_copies(filter, item, max(lo, (seen + 1) / 2), min(hi, seen));
    return fits;
}

/* An add of a present item renews its time only with REFRESH. */
static bool add_to_window(struct model_filter *filter, unsigned item, enum answer answer, const struct moment *when)
{
    bool must = filter->must & bit(item), may = filter->may & bit(item);
    uint64_t *must_ns = &filter->until.must[item], *may_ns = &filter->until.may[item];
    uint64_t end_ns = when->replied_ns + filter_window.ns + filter_window.ns / filter_window.parts + LATE_NS;
    if (answer == NO_ANSWER) {
        *must_ns = must ? *must_ns : 0;
        *may_ns = may ? max_ns(*may_ns, end_ns) : end_ns;
        filter->may |= bit(item);
        return true;
    }
    if (answer == ANSWER_YES || filter_window.refresh) {
        *must_ns = when->sent_ns + filter_window.ns;
        *may_ns = may && answer == ANSWER_NO ? max_ns(*may_ns, end_ns) : end_ns;
        filter->must |= bit(item);
        filter->may |= bit(item);
        age_items(filter, when);
    }
    return answer == ANSWER_YES ? !must : may;
}

bool filter_add(enum family family, struct model_filter *filter, unsigned item, enum answer answer,
                const struct moment *when)
{
    bool must = filter->must & bit(item), may = filter->may & bit(item);
    if (family_is_cuckoo(family))
        return add_copy(filter, item, answer);
    if (family == FAMILY_WINDOW)
        return add_to_window(filter, item, answer, when);
    if (family == FAMILY_LATEST)
        return add_to_latest(filter, item, answer);
    if (answer == NO_ANSWER) {
        filter->may |= bit(item);
        return true;
    }
    if (answer == ANSWER_NO && !must && family == FAMILY_VALKEY)
        filter->more_lo--; /* it is there by the bits of others, and is not counted */
    if (answer == ANSWER_NO && !may && family == FAMILY_VALKEY)
        filter->more_hi--;
    filter->must |= bit(item);
    filter->may |= bit(item);
    return answer == ANSWER_YES ? !must : may || family == FAMILY_VALKEY;
}

bool filter_query(enum family family, struct model_filter *filter, unsigned item, enum answer answer,
                  struct model_false *count)
{
    bool must = filter->must & bit(item), may = filter->may & bit(item);
    if (family == FAMILY_VALKEY && !may) {
        count->asked++;
        count->seen += answer == ANSWER_YES;
        return true;
    }
    if (family_is_cuckoo(family) && answer == ANSWER_NO)
        set_copies(filter, item, 0, 0);
    else if (family_is_cuckoo(family))
        set_copies(filter, item, max(1, filter->copies.lo[item]), filter->copies.hi[item]);
    else if (answer == ANSWER_NO)
        filter->may &= ~bit(item);
    else if (family != FAMILY_VALKEY && !family_is_window(family))
        filter->must |= bit(item);
    return answer == ANSWER_YES ? may : !must;
}

static int least_of(const struct model_filter *filter)
{
    return max(0, bits_in(filter->must) + filter->more_lo);
}

static int most_of(const struct model_filter *filter)
{
    return bits_in(filter->may) + filter->more_hi;
}

/* With REFRESH an item counts once for each part that has it. Of a union the parts' counts are estimates. A
 * copy of chunks, or a save without a log, may count adds that come after its bits: `more_hi` of them. */
static bool window_counts(const struct model_filter *filter, int64_t number)
{
    int parts = filter_window.refresh ? (int)filter_window.parts + 2 : 1;
    return number >= bits_in(filter->must) + min(0, filter->more_lo) &&
           number <= bits_in(filter->may) * parts + filter->more_hi;
}

bool filter_card(enum family family, struct model_filter *filter, int64_t number)
{
    if (family_is_window(family))
        return window_counts(filter, number);
    bool fits = number >= least_of(filter) && number <= most_of(filter);
    if (filter->must == filter->may)
        filter->more_lo = filter->more_hi = (int)number - bits_in(filter->must);
    return fits;
}

void filter_clear(struct model_filter *filter)
{
    struct model_filter was = *filter;
    *filter = filter_empty();
    filter_expire(filter, was.expire_lo, was.expire_hi);
}

/* In a union of windows an item stays a part longer. */
static void merge_times(struct model_filter *filter, const struct model_filter *source)
{
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        uint64_t must_ns = filter->must & bit(i) ? filter->until.must[i] : 0;
        uint64_t may_ns = filter->may & bit(i) ? filter->until.may[i] : 0;
        if (source->must & bit(i))
            must_ns = max_ns(must_ns, source->until.must[i]);
        if (source->may & bit(i))
            may_ns = max_ns(may_ns, source->until.may[i]);
        filter->until.must[i] = must_ns;
        filter->until.may[i] = may_ns == UINT64_MAX ? may_ns : may_ns + filter_window.ns / filter_window.parts;
    }
}

/* The count of a union is an estimate between the larger of both counts and their sum. */
void filter_merge(enum family family, struct model_filter *filter, const struct model_filter *source)
{
    if (family == FAMILY_WINDOW)
        merge_times(filter, source);
    int least = max(least_of(filter), least_of(source)), most = most_of(filter) + most_of(source);
    filter->must |= source->must;
    filter->may |= source->may;
    filter->more_lo = least - bits_in(filter->may);
    filter->more_hi = family_is_window(family) ? filter->more_hi + source->more_hi : most - bits_in(filter->must);
}

void filter_expire(struct model_filter *filter, uint64_t lo_ms, uint64_t hi_ms)
{
    filter->expire_lo = lo_ms;
    filter->expire_hi = hi_ms;
}

/* ---- after a restart ---- */

static const char *see_copies(struct model_filter *filter, const struct model_filter *was,
                              const struct model_seen *seen)
{
    int lo = 0, hi = 0;
    bool fits = true;
    filter->copies = was->copies;
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        fits = filter_count(filter, i, seen->copies[i]) && fits;
        lo += filter->copies.lo[i];
        hi += filter->copies.hi[i];
    }
    return !fits ? "has wrong numbers of items" : seen->count < lo || seen->count > hi ? "has a wrong sum" : NULL;
}

static const char *see_items(enum family family, struct model_filter *filter, const struct model_filter *was,
                             const struct model_seen *seen, bool counts_more)
{
    uint64_t more = seen->items & ~was->may;
    int items = bits_in(seen->items), lo = was->more_lo, hi = counts_more ? MODEL_ITEMS : was->more_hi;
    filter->must = filter->may = seen->items;
    filter->more_lo = filter->more_hi = (int)seen->count - items;
    if (was->must & ~seen->items)
        return "lacks items";
    if (more && (family != FAMILY_VALKEY || bits_in(more) > FALSE_AT_ONCE))
        return "has items that it never had";
    if (family_is_window(family)) {
        int lost = counts_more ? bits_in(was->may & ~seen->items) : 0;
        filter->more_hi = max(0, min(filter->more_hi, was->more_hi + lost));
        filter->must &= was->must;
        filter->until = was->until;
        filter->places = was->places;
        if (family == FAMILY_LATEST)
            shift_places(filter);
        return window_counts(was, seen->count) ? NULL : "has a wrong count";
    }
    if (family == FAMILY_VALKEY)
        lo = min(lo, bits_in(was->must) + was->more_lo - items);
    return seen->count < items + lo || seen->count > items + hi ? "has a wrong count" : NULL;
}

const char *filter_see(enum family family, struct model_filter *filter, const struct model_seen *seen, bool counts_more)
{
    struct model_filter was = *filter;
    *filter = seen->present ? filter_empty() : filter_absent();
    if (!(was.presence & (seen->present ? PRESENT : ABSENT)))
        return seen->present ? "is there" : "is not there";
    if (!seen->present) {
        if (was.ghost || was.expire_lo != NEVER_MS)
            *filter = was;
        filter->ghost = was.ghost || was.expire_lo != NEVER_MS;
        filter->presence = ABSENT;
        return seen->items ? "is not there and has items" : NULL;
    }
    filter_expire(filter, seen->expire_ms, seen->expire_ms);
    if (seen->expire_ms < was.expire_lo || seen->expire_ms > was.expire_hi)
        return "expires at another time";
    return family_is_cuckoo(family) ? see_copies(filter, &was, seen)
                                    : see_items(family, filter, &was, seen, counts_more);
}
