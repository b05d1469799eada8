#include "followed.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "glob_match.h"
#include "lock.h"
#include "move_internal.h"

struct followed_name {
    struct followed_name *next; /* of the marked ones */
    struct slice name;
    bool marked;
    bool sent; /* the target may have it */
    bool ended;
    enum move_outcome outcome; /* if it has ended */
    char bytes[];
};

struct followed {
    struct lock lock;
    struct slice match; /* ptr NULL: all */
    void *names;        /* a tree of struct followed_name, in the order of their bytes */
    struct followed_name *first, **last;
    uint64_t marked;
    uint64_t of_round; /* of the marked ones, those still to come in this round */
    bool must_scan;
};

/* ---- the tree ---- */

static int compare(const void *a, const void *b)
{
    const struct slice *left = &((const struct followed_name *)a)->name,
                       *right = &((const struct followed_name *)b)->name;
    size_t len = left->len < right->len ? left->len : right->len;
    int order = len ? memcmp(left->ptr, right->ptr, len) : 0;
    return order ? order : (left->len > right->len) - (left->len < right->len);
}

static struct followed_name *find(const struct followed *followed, struct slice name)
{
    const struct followed_name wanted = {.name = name};
    void *found = tfind(&wanted, &followed->names, compare);
    return found ? *(struct followed_name **)found : NULL;
}

/* NULL: no memory. */
static struct followed_name *find_or_add(struct followed *followed, struct slice name)
{
    struct followed_name *entry = find(followed, name);
    if (entry)
        return entry;
    entry = calloc(1, sizeof(*entry) + name.len + 1);
    if (!entry)
        return NULL;
    if (name.len)
        memcpy(entry->bytes, name.ptr, name.len);
    entry->name = (struct slice){entry->bytes, name.len};
    if (tsearch(entry, &followed->names, compare))
        return entry;
    free(entry);
    return NULL;
}

static void mark(struct followed *followed, struct followed_name *entry)
{
    if (entry->marked)
        return;
    entry->marked = true;
    entry->next = NULL;
    *followed->last = entry;
    followed->last = &entry->next;
    followed->marked++;
}

/* ---- the whole ---- */

struct followed *followed_create(const char *match)
{
    struct followed *followed = calloc(1, sizeof(*followed));
    if (!followed)
        return NULL;
    lock_init(&followed->lock, RANK_MOVE);
    followed->match = match ? slice_of(match) : (struct slice){NULL, 0};
    followed->last = &followed->first;
    return followed;
}

void followed_destroy(struct followed *followed)
{
    if (!followed)
        return;
    tdestroy(followed->names, free);
    lock_deinit(&followed->lock);
    free(followed);
}

/* ---- changes ---- */

void followed_changed(struct followed *followed, struct slice name)
{
    if (move_is_temporary(name) || (followed->match.ptr && !glob_match(followed->match, name, false)))
        return;
    lock_take(&followed->lock);
    struct followed_name *entry = find_or_add(followed, name);
    if (entry)
        mark(followed, entry);
    else
        followed->must_scan = true;
    lock_give(&followed->lock);
}

void followed_all_changed(struct followed *followed)
{
    lock_take(&followed->lock);
    followed->must_scan = true;
    lock_give(&followed->lock);
}

/* ---- rounds ---- */

static void mark_one(const void *node, VISIT visit, void *followed)
{
    if (visit == postorder || visit == leaf)
        mark(followed, *(struct followed_name *const *)node);
}

bool followed_must_scan(struct followed *followed)
{
    lock_take(&followed->lock);
    bool must = followed->must_scan;
    followed->must_scan = false;
    if (must)
        twalk_r(followed->names, mark_one, followed);
    lock_give(&followed->lock);
    return must;
}

static bool is_bad(const struct followed_name *entry)
{
    return entry->ended && entry->outcome != MOVE_MOVED && entry->outcome != MOVE_THERE;
}

static void retry_one(const void *node, VISIT visit, void *followed)
{
    struct followed_name *entry = *(struct followed_name *const *)node;
    if ((visit == postorder || visit == leaf) && is_bad(entry))
        mark(followed, entry);
}

void followed_retry(struct followed *followed)
{
    lock_take(&followed->lock);
    twalk_r(followed->names, retry_one, followed);
    lock_give(&followed->lock);
}

uint64_t followed_begin_round(struct followed *followed)
{
    lock_take(&followed->lock);
    uint64_t n = followed->of_round = followed->marked;
    lock_give(&followed->lock);
    return n;
}

static void count_one(const void *node, VISIT visit, void *filters)
{
    const struct followed_name *entry = *(struct followed_name *const *)node;
    if ((visit == postorder || visit == leaf) && entry->ended)
        ((uint64_t *)filters)[entry->outcome]++;
}

void followed_count(struct followed *followed, uint64_t filters[MOVE_OUTCOMES])
{
    lock_take(&followed->lock);
    twalk_r(followed->names, count_one, filters);
    lock_give(&followed->lock);
}

/* ---- within a round ---- */

bool followed_next(struct followed *followed, struct slice *name_out)
{
    lock_take(&followed->lock);
    struct followed_name *entry = followed->of_round > 0 ? followed->first : NULL;
    if (entry) {
        followed->first = entry->next;
        if (!followed->first)
            followed->last = &followed->first;
        followed->of_round--;
        followed->marked--;
        entry->marked = false;
        *name_out = entry->name;
    }
    lock_give(&followed->lock);
    return entry != NULL;
}

bool followed_knows(struct followed *followed, struct slice name)
{
    lock_take(&followed->lock);
    bool known = find(followed, name) != NULL;
    lock_give(&followed->lock);
    return known;
}

bool followed_sends(struct followed *followed, struct slice name)
{
    lock_take(&followed->lock);
    struct followed_name *entry = find_or_add(followed, name);
    if (entry)
        entry->sent = true;
    lock_give(&followed->lock);
    return entry != NULL;
}

/* With the lock. One that is marked is checked again. */
static void forget(struct followed *followed, struct followed_name *entry)
{
    entry->sent = entry->ended = false;
    if (entry->marked)
        return;
    tdelete(entry, &followed->names, compare);
    free(entry);
}

bool followed_vanished(struct followed *followed, struct slice name)
{
    lock_take(&followed->lock);
    struct followed_name *entry = find(followed, name);
    bool sent = entry && entry->sent;
    if (entry && !sent)
        forget(followed, entry);
    lock_give(&followed->lock);
    return sent;
}

bool followed_ended(struct followed *followed, struct slice name, enum move_outcome outcome)
{
    bool news = true;
    lock_take(&followed->lock);
    struct followed_name *entry = find_or_add(followed, name);
    if (entry && outcome == MOVE_DELETED) {
        forget(followed, entry);
    } else if (entry && outcome == MOVE_GONE) {
        mark(followed, entry); /* the next round finds that it has disappeared */
    } else if (entry) {
        news = !entry->ended || entry->outcome != outcome;
        entry->ended = true;
        entry->outcome = outcome;
        if (outcome == MOVE_CHANGING)
            mark(followed, entry);
    }
    lock_give(&followed->lock);
    return news;
}
