#include "model_internal.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 30 /* of one command */
#define MAX_ARGS  (MAX_ITEMS + 12)

enum kind {
    ADD,
    MADD,
    INSERT,
    EXISTS,
    RESERVE,
    DEL,
    RENAME,
    RENAMENX,
    EXPIRE,
    PERSIST,
    CLEAR,
    SELECT,
    MOVE,
    SWAPDB,
    IN_EXEC, /* the kinds above can be part of a transaction */
    EXPIRE_SOON = IN_EXEC,
    FLUSHALL,
    FLUSHDB,
    COPY,
    MERGE,
    RESTORE,
    CHUNKS,
    SAVE,
    REWRITE,
    EXEC,
    NKINDS,
};

/* Relative frequencies. */
static const unsigned weights[NKINDS] = {
    [ADD] = 200,    [MADD] = 100,      [INSERT] = 60, [EXISTS] = 40, [RESERVE] = 30, [DEL] = 8,
    [RENAME] = 8,   [RENAMENX] = 4,    [COPY] = 8,    [EXPIRE] = 8,  [PERSIST] = 4,  [CLEAR] = 5,
    [FLUSHALL] = 1, [EXPIRE_SOON] = 2, [MERGE] = 10,  [RESTORE] = 5, [CHUNKS] = 4,   [SAVE] = 4,
    [REWRITE] = 3,  [EXEC] = 20,       [SELECT] = 20, [MOVE] = 8,    [SWAPDB] = 5,   [FLUSHDB] = 2,
};

struct op {
    enum kind kind;
    unsigned a, b;      /* names */
    unsigned db, other; /* indexes of databases */
    bool across;        /* COPY: to database `db` */
    unsigned nitems;
    unsigned items[MAX_ITEMS];
    unsigned choice; /* which of the parameter sets */
    bool flag;       /* REPLACE, NOCREATE */
};

struct parameters {
    const char *rate;
    const char *capacity;
    const char *expansion; /* NULL: NONSCALING; "": the default */
};

static const struct parameters choices[] = {
    {"0.01", "100", ""},    {"0.001", "100", "1"},  {"0.001", "50", "4"},    {"0.0001", "1000", "2"},
    {"0.001", "200", NULL}, {"0.01", "3000", NULL}, {"0.001", "50000", "2"},
};
#define NCHOICES (sizeof(choices) / sizeof(choices[0]))

/* ---- commands and replies ---- */

struct command {
    char text[MAX_ARGS][32];
    const char *argv[MAX_ARGS];
    size_t len[MAX_ARGS];
    int argc;
};

__attribute__((format(printf, 2, 3))) static void put(struct command *command, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int n = command->argc++;
    command->len[n] = (size_t)vsnprintf(command->text[n], sizeof(command->text[n]), fmt, args);
    command->argv[n] = command->text[n];
    va_end(args);
}

static void append(redisContext *client, const struct command *command)
{
    redisAppendCommandArgv(client, command->argc, (const char **)command->argv, command->len);
}

static void note(struct model *model, const struct command *command)
{
    char *text = model->history[model->changes++ % MODEL_HISTORY];
    int len = snprintf(text, 64, "%8llu:", (unsigned long long)model->commands);

    for (int i = 0; i < command->argc && len < 64; i++)
        len += snprintf(text + len, 64 - (size_t)len, " %s", command->text[i]);
}

/* ---- planning, from random numbers alone ---- */

static enum kind plan_kind(struct model *model, unsigned nkinds)
{
    unsigned sum = 0, at;

    for (unsigned i = 0; i < nkinds; i++)
        sum += weights[i];
    at = (unsigned)rng_below(&model->rng, sum);
    for (unsigned i = 0;; i++) {
        if (at < weights[i])
            return (enum kind)i;
        at -= weights[i];
    }
}

static void plan(struct model *model, struct op *op, unsigned nkinds)
{
    struct rng *rng = &model->rng;

    memset(op, 0, sizeof(*op));
    op->kind = plan_kind(model, nkinds);
    op->a = (unsigned)rng_below(rng, MODEL_NAMES);
    op->b = (unsigned)rng_below(rng, MODEL_NAMES);
    op->db = (unsigned)rng_below(rng, MODEL_DATABASES);
    op->other = (unsigned)rng_below(rng, MODEL_DATABASES);
    op->across = rng_below(rng, 2);
    op->choice = (unsigned)rng_below(rng, NCHOICES);
    op->flag = rng_below(rng, 2);
    op->nitems = op->kind == MADD || op->kind == INSERT ? 1 + (unsigned)rng_below(rng, MAX_ITEMS) : 1;
    for (unsigned i = 0; i < op->nitems; i++)
        op->items[i] = (unsigned)rng_below(rng, MODEL_ITEMS);
}

static void put_parameters(struct command *command, const struct parameters *p)
{
    if (!p->expansion)
        put(command, "NONSCALING");
    else if (*p->expansion) {
        put(command, "EXPANSION");
        put(command, "%s", p->expansion);
    }
}

static bool has_no_name(enum kind kind)
{
    return kind == FLUSHALL || kind == FLUSHDB || kind == SELECT || kind == SWAPDB || kind == SAVE || kind == REWRITE ||
           kind == EXEC;
}

static void format(struct model *model, const struct op *op, struct command *command)
{
    static const char *const names[NKINDS] = {
        [ADD] = "BF.ADD",        [MADD] = "BF.MADD",        [INSERT] = "BF.INSERT",
        [EXISTS] = "BF.EXISTS",  [RESERVE] = "BF.RESERVE",  [DEL] = "DEL",
        [RENAME] = "RENAME",     [RENAMENX] = "RENAMENX",   [COPY] = "COPY",
        [EXPIRE] = "EXPIRE",     [PERSIST] = "PERSIST",     [CLEAR] = "BF.CLEAR",
        [FLUSHALL] = "FLUSHALL", [FLUSHDB] = "FLUSHDB",     [SELECT] = "SELECT",
        [MOVE] = "MOVE",         [SWAPDB] = "SWAPDB",       [EXPIRE_SOON] = "PEXPIRE",
        [MERGE] = "BF.MERGE",    [SAVE] = "SAVE",           [REWRITE] = "BGREWRITEAOF",
        [RESTORE] = "RESTORE",   [CHUNKS] = "BF.LOADCHUNK", [EXEC] = "EXEC",
    };
    const struct parameters *p = &choices[op->choice];

    command->argc = 0;
    put(command, "%s", names[op->kind]);
    if (op->kind == SELECT || op->kind == SWAPDB)
        put(command, "%u", model_numbers[op->db]);
    if (op->kind == SWAPDB)
        put(command, "%u", model_numbers[op->other]);
    if (has_no_name(op->kind)) {
        note(model, command);
        return;
    }
    put(command, "f%u", op->a);
    if (op->kind == MOVE)
        put(command, "%u", model_numbers[op->db]);
    if (op->kind == RENAME || op->kind == RENAMENX || op->kind == COPY || op->kind == MERGE || op->kind == RESTORE ||
        op->kind == CHUNKS || (op->kind == DEL && op->flag))
        put(command, "f%u", op->b);
    if (op->kind == COPY && op->flag)
        put(command, "REPLACE");
    if (op->kind == COPY && op->across) {
        put(command, "DB");
        put(command, "%u", model_numbers[op->db]);
    }
    if (op->kind == EXPIRE)
        put(command, "100000");
    if (op->kind == EXPIRE_SOON)
        put(command, "5");
    if (op->kind == RESERVE) {
        put(command, "%s", p->rate);
        put(command, "%s", p->capacity);
        put_parameters(command, p);
    }
    if (op->kind == INSERT) {
        put(command, "CAPACITY");
        put(command, "%s", p->capacity);
        put(command, "ERROR");
        put(command, "%s", p->rate);
        put_parameters(command, p);
        put(command, "ITEMS");
    }
    if (op->kind > EXISTS)
        note(model, command);
    for (unsigned i = 0; op->kind <= EXISTS && i < op->nitems; i++)
        put(command, "item:%u", op->items[i]);
}

/* ---- expected replies, and their effect on the model ---- */

static void make(struct model_filter *filter, const struct parameters *p)
{
    model_drop(filter);
    filter->exists = true;
    filter->rate = atof(p->rate);
    filter->capacity = strtoull(p->capacity, NULL, 10);
    filter->fixed = p->expansion == NULL;
}

static void move(struct model_filter *from, struct model_filter *to)
{
    if (from == to)
        return;
    *to = *from;
    model_change(to);
    model_drop(from);
}

static void check_add(struct model *model, struct model_filter *filter, unsigned item, const redisReply *reply)
{
    if (reply_is_error(reply)) {
        demand(model, (filter->fixed && filter->count == filter->capacity) || filter->adopted, "an add was refused: %s",
               reply->str);
        demand(model, !filter->in[item], "item:%u is there, and yet it was refused: %s", item, reply->str);
        return;
    }
    demand(model, reply->type == REDIS_REPLY_INTEGER, "an add was answered %s", reply_shown(reply));
    int64_t now = model_now_ms();
    if (filter->in[item]) {
        demand(model, reply->integer == 0, "item:%u was added a second time", item);
        return;
    }
    filter->in[item] = true;
    filter->in_ms[item] = now;
    if (reply->integer == 1) {
        filter->count++;
        filter->count_ms[item] = now;
    }
    if (filter->adopted)
        return;
    model->asked++;
    model->present += reply->integer == 0;
    model->expected += filter->rate;
    demand(model, !filter->fixed || filter->count <= filter->capacity,
           "a fixed filter has taken more than its capacity");
}

static void check_adds(struct model *model, const struct op *op, const redisReply *reply)
{
    static const struct parameters defaults = {"0.01", "100", ""};
    struct model_filter *filter = model_at(model, op->a);

    if (!filter->exists)
        make(filter, op->kind == INSERT ? &choices[op->choice] : &defaults);
    if (op->kind == ADD) {
        check_add(model, filter, op->items[0], reply);
        return;
    }
    demand(model, reply->type == REDIS_REPLY_ARRAY && reply->elements <= op->nitems, "adds were answered %s",
           reply_shown(reply));
    for (size_t i = 0; i < reply->elements; i++)
        check_add(model, filter, op->items[i], reply->element[i]);
    demand(model,
           reply->elements == op->nitems ||
               (reply->elements > 0 && reply_is_error(reply->element[reply->elements - 1])),
           "%zu answers to %u adds", reply->elements, op->nitems);
}

static void check_copy(struct model *model, const struct op *op, const redisReply *reply)
{
    unsigned db = op->across ? op->db : model->db;
    struct model_filter *a = model_at(model, op->a), *b = &model->filters[db][op->b];

    if (a == b) {
        demand(model, reply_is_error(reply), "a copy to itself: %s", reply_shown(reply));
        return;
    }
    bool copied = a->exists && (!b->exists || op->flag);
    demand(model, reply_is_number(reply, copied), "COPY: %s", reply_shown(reply));
    if (copied) {
        *b = *a;
        model_change(b);
    }
}

static void check_rename(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *a = model_at(model, op->a), *b = model_at(model, op->b);

    if (!a->exists) {
        demand(model, reply_is_error(reply), "a rename of nothing: %s", reply_shown(reply));
    } else if (op->kind == RENAME) {
        demand(model, reply_is_ok(reply), "RENAME: %s", reply_shown(reply));
        move(a, b);
    } else {
        demand(model, reply_is_number(reply, !b->exists), "RENAMENX: %s", reply_shown(reply));
        if (!b->exists)
            move(a, b);
    }
}

static void check_del(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *a = model_at(model, op->a), *b = model_at(model, op->b);

    demand(model, reply_is_number(reply, a->exists + (op->flag && a != b && b->exists)), "DEL: %s", reply_shown(reply));
    model_drop(a);
    if (op->flag)
        model_drop(b);
}

static void check_time(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *filter = model_at(model, op->a);
    bool did = op->kind == PERSIST ? filter->exists && filter->expires : filter->exists;

    demand(model, reply_is_number(reply, did), "the time of f%u: %s", op->a, reply_shown(reply));
    if (!did)
        return;
    filter->expires = op->kind == EXPIRE;
    model_change(filter);
}

static void check_move(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *from = model_at(model, op->a), *to = &model->filters[op->db][op->a];

    if (from == to) {
        demand(model, reply_is_error(reply), "a move to where it is: %s", reply_shown(reply));
        return;
    }
    bool moved = from->exists && !to->exists;
    demand(model, reply_is_number(reply, moved), "MOVE: %s", reply_shown(reply));
    if (moved)
        move(from, to);
}

static void check_swap(struct model *model, const struct op *op, const redisReply *reply)
{
    demand(model, reply_is_ok(reply), "SWAPDB: %s", reply_shown(reply));
    for (unsigned i = 0; i < MODEL_NAMES && op->db != op->other; i++) {
        struct model_filter *one = &model->filters[op->db][i], *other = &model->filters[op->other][i], filter = *one;
        *one = *other;
        *other = filter;
        model_change(one);
        model_change(other);
    }
}

static void check_simple(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *filter = model_at(model, op->a);

    switch (op->kind) {
    case EXISTS:
        demand(model, reply->type == REDIS_REPLY_INTEGER, "BF.EXISTS: %s", reply_shown(reply));
        demand(model, !filter->in[op->items[0]] || reply->integer == 1, "item:%u of f%u is absent", op->items[0],
               op->a);
        demand(model, filter->exists || reply->integer == 0, "an item of a filter that is not there");
        break;
    case RESERVE:
        demand(model, filter->exists ? reply_is_error(reply) : reply_is_ok(reply), "BF.RESERVE: %s",
               reply_shown(reply));
        if (!filter->exists)
            make(filter, &choices[op->choice]);
        break;
    case CLEAR:
        demand(model, filter->exists ? reply_is_ok(reply) : reply_is_error(reply), "BF.CLEAR: %s", reply_shown(reply));
        if (!filter->exists)
            break;
        memset(filter->in, 0, sizeof(filter->in));
        memset(filter->count_ms, 0, sizeof(filter->count_ms));
        filter->count = 0;
        model_change(filter);
        break;
    case FLUSHALL:
    case FLUSHDB:
        demand(model, reply_is_ok(reply), "a flush: %s", reply_shown(reply));
        for (unsigned db = 0; db < MODEL_DATABASES; db++)
            for (unsigned i = 0; i < MODEL_NAMES && (op->kind == FLUSHALL || db == model->db); i++)
                model_drop(&model->filters[db][i]);
        break;
    default:
        demand(model, false, "not a kind that is checked here: %d", (int)op->kind);
    }
}

static void check(struct model *model, const struct op *op, const redisReply *reply)
{
    switch (op->kind) {
    case ADD:
    case MADD:
    case INSERT:
        check_adds(model, op, reply);
        break;
    case DEL:
        check_del(model, op, reply);
        break;
    case RENAME:
    case RENAMENX:
        check_rename(model, op, reply);
        break;
    case COPY:
        check_copy(model, op, reply);
        break;
    case EXPIRE:
    case PERSIST:
        check_time(model, op, reply);
        break;
    case MOVE:
        check_move(model, op, reply);
        break;
    case SWAPDB:
        check_swap(model, op, reply);
        break;
    case SELECT:
        demand(model, reply_is_ok(reply), "SELECT: %s", reply_shown(reply));
        model->db = op->db;
        break;
    default:
        check_simple(model, op, reply);
    }
}

static void run_exec(struct model *model, redisContext *client)
{
    struct op ops[6];
    struct command command;
    unsigned n = 1 + (unsigned)rng_below(&model->rng, 6);

    redisAppendCommand(client, "MULTI");
    for (unsigned i = 0; i < n; i++) {
        plan(model, &ops[i], IN_EXEC);
        format(model, &ops[i], &command);
        append(client, &command);
    }
    redisAppendCommand(client, "EXEC");
    for (unsigned i = 0; i <= n; i++) {
        redisReply *reply = model_reply(model, client);
        demand(model, reply->type == REDIS_REPLY_STATUS, "MULTI or a queued command: %s", reply_shown(reply));
        freeReplyObject(reply);
    }
    redisReply *reply = model_reply(model, client);
    demand(model, reply->type == REDIS_REPLY_ARRAY && reply->elements == n, "EXEC: %s", reply_shown(reply));
    for (unsigned i = 0; i < n; i++)
        check(model, &ops[i], reply->element[i]);
    freeReplyObject(reply);
}

void model_step(struct model *model, redisContext *client)
{
    struct command command;
    struct op op;

    model->commands++;
    plan(model, &op, NKINDS);
    format(model, &op, &command);
    switch (op.kind) {
    case EXPIRE_SOON:
        model_expire_soon(model, client, op.a);
        return;
    case MERGE:
        model_merge(model, client, op.a, op.b);
        return;
    case RESTORE:
        model_restore(model, client, op.a, op.b, op.flag);
        return;
    case CHUNKS:
        model_chunks(model, client, op.a, op.b);
        return;
    case SAVE:
        model_save(model, client);
        return;
    case REWRITE:
        model_rewrite(model, client);
        return;
    case EXEC:
        run_exec(model, client);
        return;
    default:
        break;
    }
    append(client, &command);
    redisReply *reply = model_reply(model, client);
    check(model, &op, reply);
    freeReplyObject(reply);
}
