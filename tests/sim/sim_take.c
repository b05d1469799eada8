/* What a command does to the states of a client's names, and which replies it can have. */
#include <string.h>

#include "sim_model.h"

#define SECOND_MS 1000

bool model_says(const struct resp_reply *reply, const char *words)
{
    const struct resp_reply_node *node = &reply->nodes[0];
    return node->kind <= RESP_REPLY_ERROR && memmem(reply->base + node->off, node->len, words, strlen(words));
}

enum answer model_answer(const struct op *op, const struct resp_reply *reply, unsigned i)
{
    if (!reply)
        return NO_ANSWER;
    const struct resp_reply_node *node = &reply->nodes[0];
    if (node->kind == RESP_REPLY_ARRAY) {
        if (i >= (unsigned)node->number)
            return NO_ANSWER;
        node = &reply->nodes[1 + i];
    } else if (i > 0 || op->many) {
        return NO_ANSWER;
    }
    if (node->kind != RESP_REPLY_INTEGER || node->number < 0)
        return NO_ANSWER;
    return node->number ? ANSWER_YES : ANSWER_NO;
}

/* ---- commands that succeed or not, by what is there ---- */

enum outcome { UNKNOWN, REFUSED, NOT_DONE, DONE };

static bool denies(const struct resp_reply *reply)
{
    static const char *const words[] = {"exists", "no such key", "not found", "Not found", "BUSYKEY"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (model_says(reply, words[i]))
            return true;
    return false;
}

/* SWAPDB and FLUSHDB concern all names of a client's databases. */
static bool is_of_databases(const struct op *op)
{
    return op->kind == OP_SWAPDB || op->kind == OP_FLUSHDB;
}

static enum outcome outcome_of(const struct resp_reply *reply)
{
    if (!reply)
        return UNKNOWN;
    const struct resp_reply_node *node = &reply->nodes[0];
    switch (node->kind) {
    case RESP_REPLY_ERROR:
        return denies(reply) ? NOT_DONE : REFUSED;
    case RESP_REPLY_INTEGER:
        return node->number > 0 ? DONE : NOT_DONE;
    case RESP_REPLY_NULL:
        return NOT_DONE;
    default:
        return DONE;
    }
}

/* Whether the command does something to names of which both are there or not. */
static bool can(const struct model_state *state, const struct op *op)
{
    const struct model_filter *filter = &state->names[op->name];
    bool is = filter->presence == PRESENT, free = op->replace || state->names[op->to].presence == ABSENT;
    switch (op->kind) {
    case OP_RESERVE:
        return !is;
    case OP_COPY:
    case OP_MOVE:
        return is && free;
    case OP_RESTORE:
        return op->replace || !is;
    case OP_LOAD:
        return !is && op->last;
    case OP_SWAPDB:
    case OP_FLUSHDB:
        return true;
    default:
        return is;
    }
}

static void swap(struct model_filter *a, struct model_filter *b)
{
    struct model_filter was = *a;
    *a = *b;
    *b = was;
}

static void merge(enum family family, struct model_filter *to, const struct model_filter *from)
{
    if (to->presence == PRESENT) {
        filter_merge(family, to, from);
        return;
    }
    *to = *from;
    filter_expire(to, NEVER_MS, NEVER_MS);
}

static void effect(enum family family, struct model_state *state, const struct op *op)
{
    struct model_filter *filter = &state->names[op->name], *to = &state->names[op->to];
    switch (op->kind) {
    case OP_RESERVE:
        *filter = filter_empty();
        if (op->ms)
            filter_expire(filter, op->when.sent_ms + op->ms, op->when.replied_ms + op->ms);
        break;
    case OP_DEL:
        *filter = filter_absent();
        break;
    case OP_RENAME:
        *to = *filter;
        *filter = filter_absent();
        break;
    case OP_MOVE:
        *to = *filter;
        *filter = filter_absent();
        break;
    case OP_COPY:
        *to = *filter;
        break;
    case OP_MERGE:
        merge(family, to, filter);
        break;
    case OP_CLEAR:
        filter_clear(filter);
        break;
    case OP_LOAD:
        *filter = op->value;
        break;
    case OP_RESTORE:
        *filter = op->value;
        if (op->ms)
            filter_expire(filter, op->when.sent_ms + op->ms, op->when.replied_ms + op->ms);
        break;
    case OP_SWAPDB:
        for (unsigned i = 0; i < MODEL_OWN; i++)
            swap(&state->names[MODEL_PLAIN + i], &state->names[MODEL_PLAIN + MODEL_OWN + i]);
        break;
    case OP_FLUSHDB:
        for (unsigned i = op->name - (op->name - MODEL_PLAIN) % MODEL_OWN, n = 0; n < MODEL_OWN; n++)
            state->names[i + n] = filter_absent();
        break;
    case OP_PEXPIRE:
        filter_expire(filter, op->when.sent_ms + op->ms, op->when.replied_ms + op->ms);
        break;
    case OP_PEXPIREAT:
        filter_expire(filter, op->ms, op->ms);
        break;
    default:
        break;
    }
}

static void join_states(enum family own, struct model_state *state, const struct model_state *other)
{
    for (unsigned i = 0; i < MODEL_NAMES; i++)
        filter_join(model_family_of(own, i), &state->names[i], &other->names[i]);
}

/* ---- queries and adds ---- */

static bool take_add(enum family family, struct model_filter *filter, const struct op *op,
                     const struct resp_reply *reply)
{
    bool fits = true, was = filter->presence == PRESENT, is = was;
    struct model_filter before = *filter;
    if (!was)
        *filter = filter_empty();
    for (unsigned i = 0; i < op->n; i++) {
        enum answer answer = model_answer(op, reply, i);
        bool full = answer == ANSWER_NO && op->kind == OP_ADD && op->many && family_is_cuckoo(family); /* in RESP3 */
        if ((answer == NO_ANSWER && reply) || full)
            continue; /* nothing was added */
        fits = (op->kind == OP_ADDNX ? filter_add_new(filter, op->items[i], answer)
                                     : filter_add(family, filter, op->items[i], answer, &op->when)) &&
               fits;
        is |= answer != NO_ANSWER;
    }
    filter->presence = is ? PRESENT : UNSURE;
    if (!is && before.ghost) /* the expired one is still stored, unless a new one has replaced it */
        filter_join(family, filter, &before);
    return fits;
}

static bool take_exists(struct model *model, enum family family, struct model_filter *filter, const struct op *op,
                        const struct resp_reply *reply)
{
    bool fits = true;
    for (unsigned i = 0; i < op->n; i++) {
        enum answer answer = model_answer(op, reply, i);
        if (answer != NO_ANSWER && !(model->maybe && answer == ANSWER_YES))
            fits = (filter->presence == PRESENT ? filter_query(family, filter, op->items[i], answer, &model->falses)
                                                : answer == ANSWER_NO) &&
                   fits;
    }
    return fits;
}

static bool take_persist(struct model_filter *filter, const struct resp_reply *reply)
{
    enum outcome outcome = outcome_of(reply);
    bool never = filter->expire_hi == NEVER_MS, ever = filter->expire_lo != NEVER_MS;
    if (filter->presence == ABSENT || outcome == REFUSED)
        return outcome != DONE;
    if (outcome == UNKNOWN)
        filter->expire_hi = NEVER_MS;
    else
        filter_expire(filter, NEVER_MS, NEVER_MS);
    return outcome == UNKNOWN || (outcome == DONE ? ever : never);
}

static bool take_pttl(struct model_filter *filter, const struct op *op, int64_t number)
{
    if (filter->presence == ABSENT || number == -2)
        return filter->presence == ABSENT && number == -2;
    if (number == -1) {
        bool never = filter->expire_hi == NEVER_MS;
        filter_expire(filter, NEVER_MS, NEVER_MS);
        return never;
    }
    return (uint64_t)number + op->when.replied_ms + 1 >= filter->expire_lo &&
           (filter->expire_hi == NEVER_MS || (uint64_t)number + op->when.sent_ms <= filter->expire_hi + 1);
}

/* With names of which each is there or not. */
static bool take_definite(struct model *model, enum family own, struct model_state *state, const struct op *op,
                          const struct resp_reply *reply)
{
    struct model_filter *filter = &state->names[op->name];
    enum family family = model_family_of(own, op->name);
    enum outcome outcome = outcome_of(reply);
    bool is_number = reply && reply->nodes[0].kind == RESP_REPLY_INTEGER;
    switch (op->kind) {
    case OP_ADD:
    case OP_ADDNX:
        return take_add(family, filter, op, reply);
    case OP_DELETE:
        if (filter->presence == ABSENT)
            return outcome != DONE;
        return reply && !is_number ? outcome == REFUSED
                                   : filter_delete(filter, op->items[0], model_answer(op, reply, 0));
    case OP_COUNT:
        if (!is_number)
            return true;
        return filter->presence == PRESENT ? filter_count(filter, op->items[0], reply->nodes[0].number)
                                           : reply->nodes[0].number == 0;
    case OP_EXISTS:
        return take_exists(model, family, filter, op, reply);
    case OP_CARD:
        if (!is_number)
            return true;
        return filter->presence == PRESENT ? filter_card(family, filter, reply->nodes[0].number)
                                           : reply->nodes[0].number == 0;
    case OP_PERSIST:
        return take_persist(filter, reply);
    case OP_PTTL:
        return !is_number || take_pttl(filter, op, reply->nodes[0].number);
    default:
        break;
    }
    bool possible = can(state, op);
    if (op->kind == OP_MERGE && family == FAMILY_LATEST && outcome == DONE)
        return false; /* the adds of two filters have no common order */
    if (op->kind == OP_LOAD && (outcome == NOT_DONE || (outcome == DONE && !op->last)))
        return true; /* another filter has the name, or a chunk before has failed */
    if (outcome == DONE || outcome == NOT_DONE) {
        if (outcome == DONE)
            effect(family, state, op);
        return possible == (outcome == DONE);
    }
    if (possible && (outcome == UNKNOWN || op->kind == OP_RESERVE)) { /* an error may come after the creation */
        struct model_state before = *state;
        effect(family, state, op);
        join_states(own, state, &before);
    }
    return true;
}

/* The filter, if this is what is known of its presence. */
static bool suppose(struct model_filter *filter, unsigned presence)
{
    if (!(filter->presence & presence))
        return false;
    if (presence == ABSENT && !filter->ghost)
        *filter = filter_absent();
    filter->presence = presence;
    return true;
}

bool model_take(struct model *model, enum family own, struct model_state *state, const struct op *op,
                const struct resp_reply *reply)
{
    struct model_state sum, one;
    bool any = false, two = op->to != op->name;
    enum family family = model_family_of(own, op->name);
    if (is_of_databases(op))
        return take_definite(model, own, state, op, reply);
    filter_age(family, &state->names[op->name], &op->when);
    if (two)
        filter_age(family, &state->names[op->to], &op->when);
    for (unsigned name = ABSENT; name <= PRESENT; name++)
        for (unsigned to = ABSENT; to <= (two ? PRESENT : ABSENT); to++) {
            one = *state;
            if (!suppose(&one.names[op->name], name) || (two && !suppose(&one.names[op->to], to)) ||
                !take_definite(model, own, &one, op, reply))
                continue;
            if (any)
                join_states(own, &sum, &one);
            else
                sum = one;
            any = true;
        }
    if (any)
        *state = sum;
    return any;
}

/* A cuckoo filter that has no room is full: an error, or -1 among the answers. */
static bool is_full(const struct resp_reply *reply)
{
    if (model_says(reply, "full") || model_says(reply, "xpansion"))
        return true;
    for (size_t i = 1; i < reply->count; i++)
        if (reply->nodes[i].kind == RESP_REPLY_INTEGER && reply->nodes[i].number == -1)
            return true;
    return false;
}

static bool begins(const struct resp_reply *reply, size_t node, const char *words)
{
    return reply->nodes[node].len >= strlen(words) &&
           memcmp(reply->base + reply->nodes[node].off, words, strlen(words)) == 0;
}

/* The whole command, a transaction, or the growth that an item needs. */
static bool is_out_of_memory(const struct resp_reply *reply)
{
    for (size_t i = 0; i < reply->count; i++)
        if (reply->nodes[i].kind == RESP_REPLY_ERROR &&
            (begins(reply, i, "OOM") || begins(reply, i, "EXECABORT") || begins(reply, i, "ERR problem inserting") ||
             begins(reply, i, "ERR Insufficient memory")))
            return true;
    return false;
}

bool model_is_refused(const struct model *model, const struct op *op, const struct resp_reply *reply)
{
    if (model->scarce && is_out_of_memory(reply))
        return false;
    /* Filters of a merge may not fit; a scan or a load may have begun with another filter. */
    if (op->kind == OP_MERGE || op->kind == OP_SCAN || op->kind == OP_LOAD || is_full(reply))
        return false;
    if (reply->nodes[0].kind == RESP_REPLY_ERROR)
        return op->kind == OP_SAVE || op->kind == OP_BGSAVE ? !model_says(reply, "in progress") : !denies(reply);
    for (unsigned i = 0; i < op->n && (op->kind == OP_ADD || op->kind == OP_ADDNX || op->kind == OP_EXISTS); i++)
        if (model_answer(op, reply, i) == NO_ANSWER)
            return true;
    return false;
}
