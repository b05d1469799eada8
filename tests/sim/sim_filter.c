#include "sim_filter.h"

#include <stddef.h>

#define FALSE_AT_ONCE 12 /* false positives of one filter among all items */

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

void filter_join(enum family family, struct model_filter *filter, const struct model_filter *other)
{
    (void)family;
    if (other->presence == ABSENT || filter->presence == ABSENT) {
        struct model_filter sum = other->presence == ABSENT ? *filter : *other;
        sum.presence |= other->presence | filter->presence;
        sum.ghost = filter->ghost || other->ghost;
        *filter = sum;
        return;
    }
    filter->presence |= other->presence;
    filter->ghost |= other->ghost;
    filter->must &= other->must;
    filter->may |= other->may;
    filter->more_lo = min(filter->more_lo, other->more_lo);
    filter->more_hi = max(filter->more_hi, other->more_hi);
    filter->expire_lo = filter->expire_lo < other->expire_lo ? filter->expire_lo : other->expire_lo;
    filter->expire_hi = filter->expire_hi > other->expire_hi ? filter->expire_hi : other->expire_hi;
}

void filter_age(enum family family, struct model_filter *filter, const struct moment *when)
{
    (void)family;
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

bool filter_add(enum family family, struct model_filter *filter, unsigned item, enum answer answer,
                const struct moment *when)
{
    bool must = filter->must & bit(item), may = filter->may & bit(item);
    (void)when;
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
    if (answer == ANSWER_NO)
        filter->may &= ~bit(item);
    else if (family != FAMILY_VALKEY)
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

bool filter_card(enum family family, struct model_filter *filter, int64_t number)
{
    (void)family;
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

/* The count of a union is an estimate between the larger of both counts and their sum. */
void filter_merge(enum family family, struct model_filter *filter, const struct model_filter *source)
{
    (void)family;
    int least = max(least_of(filter), least_of(source)), most = most_of(filter) + most_of(source);
    filter->must |= source->must;
    filter->may |= source->may;
    filter->more_lo = least - bits_in(filter->may);
    filter->more_hi = most - bits_in(filter->must);
}

void filter_expire(struct model_filter *filter, uint64_t lo_ms, uint64_t hi_ms)
{
    filter->expire_lo = lo_ms;
    filter->expire_hi = hi_ms;
}

/* ---- after a restart ---- */

const char *filter_see(enum family family, struct model_filter *filter, const struct model_seen *seen, bool counts_more)
{
    struct model_filter was = *filter;
    uint64_t more = seen->items & ~was.may;
    int items = bits_in(seen->items), shift_lo = was.more_lo, shift_hi = counts_more ? MODEL_ITEMS : was.more_hi;
    *filter = seen->present ? filter_empty() : filter_absent();
    if (!seen->present)
        filter->ghost = was.ghost;
    filter->must = filter->may = seen->items;
    filter->more_lo = filter->more_hi = (int)seen->count - items;
    filter_expire(filter, seen->expire_ms, seen->expire_ms);
    if (!(was.presence & (seen->present ? PRESENT : ABSENT)))
        return seen->present ? "is there" : "is not there";
    if (!seen->present)
        return seen->items ? "is not there and has items" : NULL;
    if (was.must & ~seen->items)
        return "lacks items";
    if (more && (family != FAMILY_VALKEY || bits_in(more) > FALSE_AT_ONCE))
        return "has items that it never had";
    if (seen->expire_ms < was.expire_lo || seen->expire_ms > was.expire_hi)
        return "expires at another time";
    if (family == FAMILY_VALKEY)
        shift_lo = min(shift_lo, bits_in(was.must) + was.more_lo - items);
    if (seen->count < items + shift_lo || seen->count > items + shift_hi)
        return "has a wrong count";
    return NULL;
}
