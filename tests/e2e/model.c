#include "model_internal.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_ITEMS   30 /* of one command */
#define MAX_ARGS    (MAX_ITEMS + 12)
#define PATIENCE_MS 60000

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
    IN_EXEC, /* the kinds before can be part of a transaction */
    EXPIRE_SOON = IN_EXEC,
    FLUSHALL,
    COPY,
    MERGE,
    RESTORE,
    CHUNKS,
    SAVE,
    REWRITE,
    EXEC,
    NKINDS,
};

/* How often, relative to each other. */
static const unsigned weights[NKINDS] = {
    [ADD] = 200,    [MADD] = 100,  [INSERT] = 60, [EXISTS] = 40, [RESERVE] = 30, [DEL] = 8,      [RENAME] = 8,
    [RENAMENX] = 4, [COPY] = 8,    [EXPIRE] = 8,  [PERSIST] = 4, [CLEAR] = 5,    [FLUSHALL] = 1, [EXPIRE_SOON] = 2,
    [MERGE] = 10,   [RESTORE] = 5, [CHUNKS] = 4,  [SAVE] = 4,    [REWRITE] = 3,  [EXEC] = 20,
};

struct op {
    enum kind kind;
    unsigned a, b; /* names */
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

static bool is_ok(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
}

static bool is_error(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR;
}

static void note(struct model *model, const struct command *command)
{
    char *text = model->history[model->changes++ % MODEL_HISTORY];
    int len = snprintf(text, 64, "%8llu:", (unsigned long long)model->commands);

    for (int i = 0; i < command->argc && len < 64; i++)
        len += snprintf(text + len, 64 - (size_t)len, " %s", command->text[i]);
}

/* ---- planning: from random numbers alone ---- */

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

static void format(struct model *model, const struct op *op, struct command *command)
{
    static const char *const names[NKINDS] = {
        [ADD] = "BF.ADD",
        [MADD] = "BF.MADD",
        [INSERT] = "BF.INSERT",
        [EXISTS] = "BF.EXISTS",
        [RESERVE] = "BF.RESERVE",
        [DEL] = "DEL",
        [RENAME] = "RENAME",
        [RENAMENX] = "RENAMENX",
        [COPY] = "COPY",
        [EXPIRE] = "EXPIRE",
        [PERSIST] = "PERSIST",
        [CLEAR] = "BF.CLEAR",
        [FLUSHALL] = "FLUSHALL",
        [EXPIRE_SOON] = "PEXPIRE",
        [MERGE] = "BF.MERGE",
        [SAVE] = "SAVE",
        [REWRITE] = "BGREWRITEAOF",
        [RESTORE] = "RESTORE",
        [CHUNKS] = "BF.LOADCHUNK",
        [EXEC] = "EXEC",
    };
    const struct parameters *p = &choices[op->choice];

    command->argc = 0;
    put(command, "%s", names[op->kind]);
    if (op->kind == FLUSHALL || op->kind == SAVE || op->kind == REWRITE || op->kind == EXEC) {
        note(model, command);
        return;
    }
    put(command, "f%u", op->a);
    if (op->kind == RENAME || op->kind == RENAMENX || op->kind == COPY || op->kind == MERGE || op->kind == RESTORE ||
        op->kind == CHUNKS || (op->kind == DEL && op->flag))
        put(command, "f%u", op->b);
    if (op->kind == COPY && op->flag)
        put(command, "REPLACE");
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

/* ---- what a reply says, and what it makes of the model ---- */

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
    if (is_error(reply)) {
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
    struct model_filter *filter = &model->filters[op->a];

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
           reply->elements == op->nitems || (reply->elements > 0 && is_error(reply->element[reply->elements - 1])),
           "%zu answers to %u adds", reply->elements, op->nitems);
}

static void check_copy(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *a = &model->filters[op->a], *b = &model->filters[op->b];

    if (a == b) {
        demand(model, is_error(reply), "a copy to itself: %s", reply_shown(reply));
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
    struct model_filter *a = &model->filters[op->a], *b = &model->filters[op->b];

    if (!a->exists) {
        demand(model, is_error(reply), "a rename of nothing: %s", reply_shown(reply));
    } else if (op->kind == RENAME) {
        demand(model, is_ok(reply), "RENAME: %s", reply_shown(reply));
        move(a, b);
    } else {
        demand(model, reply_is_number(reply, !b->exists), "RENAMENX: %s", reply_shown(reply));
        if (!b->exists)
            move(a, b);
    }
}

static void check_del(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *a = &model->filters[op->a], *b = &model->filters[op->b];

    demand(model, reply_is_number(reply, a->exists + (op->flag && a != b && b->exists)), "DEL: %s", reply_shown(reply));
    model_drop(a);
    if (op->flag)
        model_drop(b);
}

static void check_time(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *filter = &model->filters[op->a];
    bool did = op->kind == PERSIST ? filter->exists && filter->expires : filter->exists;

    demand(model, reply_is_number(reply, did), "the time of f%u: %s", op->a, reply_shown(reply));
    if (!did)
        return;
    filter->expires = op->kind == EXPIRE;
    model_change(filter);
}

static void check_simple(struct model *model, const struct op *op, const redisReply *reply)
{
    struct model_filter *filter = &model->filters[op->a];

    switch (op->kind) {
    case EXISTS:
        demand(model, reply->type == REDIS_REPLY_INTEGER, "BF.EXISTS: %s", reply_shown(reply));
        demand(model, !filter->in[op->items[0]] || reply->integer == 1, "item:%u of f%u is absent", op->items[0],
               op->a);
        demand(model, filter->exists || reply->integer == 0, "an item of a filter that is not there");
        break;
    case RESERVE:
        demand(model, filter->exists ? is_error(reply) : is_ok(reply), "BF.RESERVE: %s", reply_shown(reply));
        if (!filter->exists)
            make(filter, &choices[op->choice]);
        break;
    case CLEAR:
        demand(model, filter->exists ? is_ok(reply) : is_error(reply), "BF.CLEAR: %s", reply_shown(reply));
        if (!filter->exists)
            break;
        memset(filter->in, 0, sizeof(filter->in));
        memset(filter->count_ms, 0, sizeof(filter->count_ms));
        filter->count = 0;
        model_change(filter);
        break;
    case FLUSHALL:
        demand(model, is_ok(reply), "FLUSHALL: %s", reply_shown(reply));
        for (unsigned i = 0; i < MODEL_NAMES; i++)
            model_drop(&model->filters[i]);
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
    default:
        check_simple(model, op, reply);
    }
}

/* ---- commands that are more than one ---- */

static void run_expire_soon(struct model *model, redisContext *client, const struct op *op)
{
    struct model_filter *filter = &model->filters[op->a];
    int64_t deadline = model_now_ms() + PATIENCE_MS;

    demand(model, model_ask_number(model, client, "PEXPIRE f%u 5", op->a) == filter->exists, "PEXPIRE");
    while (model_ask_number(model, client, "EXISTS f%u", op->a) == 1)
        demand(model, model_now_ms() < deadline, "f%u does not expire", op->a);
    model_drop(filter);
}

static void run_merge(struct model *model, redisContext *client, const struct op *op)
{
    struct model_filter *a = &model->filters[op->a], *b = &model->filters[op->b];
    redisReply *reply = model_ask(model, client, "BF.MERGE f%u f%u", op->a, op->b);
    bool ok = is_ok(reply);

    demand(model, ok || is_error(reply), "BF.MERGE: %s", reply_shown(reply));
    demand(model, !ok || b->exists, "a merge of nothing");
    freeReplyObject(reply);
    if (!ok)
        return;
    uint64_t card = (uint64_t)model_ask_number(model, client, "BF.CARD f%u", op->a);
    uint64_t most = a->count > b->count ? a->count : b->count;
    if (!a->exists) {
        *a = *b;
        a->expires = false;
    }
    for (unsigned i = 0; i < MODEL_ITEMS; i++)
        a->in[i] = a->in[i] || b->in[i];
    demand(model, card >= most && card <= a->count + b->count, "a merge of %llu and %llu items has %llu",
           (unsigned long long)a->count, (unsigned long long)b->count, (unsigned long long)card);
    a->count = card;
    model_change(a);
}

static void copied(struct model *model, const struct op *op, bool expires)
{
    model->filters[op->b] = model->filters[op->a];
    model->filters[op->b].expires = expires;
    model_change(&model->filters[op->b]);
}

static void run_restore(struct model *model, redisContext *client, const struct op *op)
{
    redisReply *dump = model_ask(model, client, "DUMP f%u", op->a);

    if (!model->filters[op->a].exists) {
        demand(model, dump->type == REDIS_REPLY_NIL, "a dump of nothing: %s", reply_shown(dump));
    } else {
        demand(model, dump->type == REDIS_REPLY_STRING, "DUMP: %s", reply_shown(dump));
        redisReply *reply = model_ask(model, client, "RESTORE f%u %s %b REPLACE", op->b, op->flag ? "100000000" : "0",
                                      dump->str, dump->len);
        demand(model, is_ok(reply), "RESTORE: %s", reply_shown(reply));
        freeReplyObject(reply);
        copied(model, op, op->flag);
    }
    freeReplyObject(dump);
}

static void run_chunks(struct model *model, redisContext *client, const struct op *op)
{
    long long iterator = 0;

    if (!model->filters[op->a].exists || op->a == op->b)
        return;
    (void)model_ask_number(model, client, "DEL f%u", op->b);
    model_drop(&model->filters[op->b]);
    for (;;) {
        redisReply *chunk = model_ask(model, client, "BF.SCANDUMP f%u %lld", op->a, iterator);
        demand(model, chunk->type == REDIS_REPLY_ARRAY && chunk->elements == 2, "BF.SCANDUMP: %s", reply_shown(chunk));
        iterator = chunk->element[0]->integer;
        if (iterator == 0) {
            freeReplyObject(chunk);
            break;
        }
        redisReply *reply = model_ask(model, client, "BF.LOADCHUNK f%u %lld %b", op->b, iterator,
                                      chunk->element[1]->str, chunk->element[1]->len);
        demand(model, is_ok(reply), "BF.LOADCHUNK: %s", reply_shown(reply));
        freeReplyObject(reply);
        freeReplyObject(chunk);
    }
    copied(model, op, false);
}

/* A save may be running for other reasons (the log has grown): then it is asked for again. */
static void run_save(struct model *model, redisContext *client)
{
    int64_t deadline = model_now_ms() + PATIENCE_MS;

    for (;;) {
        redisReply *reply = model_ask(model, client, "SAVE");
        bool ok = is_ok(reply);
        demand(model, ok || (is_error(reply) && strstr(reply->str, "in progress")), "SAVE: %s", reply_shown(reply));
        freeReplyObject(reply);
        if (ok)
            break;
        demand(model, model_now_ms() < deadline, "the save in progress does not end");
        usleep(2000);
    }
    memcpy(model->saved, model->filters, sizeof(model->saved));
}

static void run_rewrite(struct model *model, redisContext *client)
{
    redisReply *reply = model_ask(model, client, "BGREWRITEAOF");

    demand(model, reply->type == REDIS_REPLY_STATUS || is_error(reply), "BGREWRITEAOF: %s", reply_shown(reply));
    freeReplyObject(reply);
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
        run_expire_soon(model, client, &op);
        return;
    case MERGE:
        run_merge(model, client, &op);
        return;
    case RESTORE:
        run_restore(model, client, &op);
        return;
    case CHUNKS:
        run_chunks(model, client, &op);
        return;
    case SAVE:
        run_save(model, client);
        return;
    case REWRITE:
        run_rewrite(model, client);
        if (model->without_log) /* it is a save in the background: wait for it, to know what it has */
            run_save(model, client);
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
