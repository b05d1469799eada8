/* The model as a whole: comparison with the daemon, and the possible states after a crash. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client.h"
#include "model_internal.h"

int64_t model_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void model_init(struct model *model, uint64_t seed)
{
    memset(model, 0, sizeof(*model));
    model->seed = seed;
    model->when = "at first";
    rng_init(&model->rng, seed);
}

void model_fail(const struct model *model, const char *text)
{
    uint64_t from = model->changes > MODEL_HISTORY ? model->changes - MODEL_HISTORY : 0;

    for (uint64_t i = from; i < model->changes; i++)
        printf("%s\n", model->history[i % MODEL_HISTORY]);
    cr_assert_fail("seed %llu, command %llu, %s: %s", (unsigned long long)model->seed,
                   (unsigned long long)model->commands, model->when, text);
}

redisReply *model_reply(struct model *model, redisContext *client)
{
    redisReply *reply = NULL;

    demand(model, redisGetReply(client, (void **)&reply) == REDIS_OK, "no reply: %s", client->errstr);
    return reply;
}

redisReply *model_ask(struct model *model, redisContext *client, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    redisvAppendCommand(client, fmt, args);
    va_end(args);
    return model_reply(model, client);
}

int64_t model_ask_number(struct model *model, redisContext *client, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    redisvAppendCommand(client, fmt, args);
    va_end(args);
    redisReply *reply = model_reply(model, client);
    demand(model, reply->type == REDIS_REPLY_INTEGER, "%s: not a number: %s", fmt, reply->str ? reply->str : "?");
    int64_t number = reply->integer;
    freeReplyObject(reply);
    return number;
}

const char *reply_shown(const redisReply *reply)
{
    static char text[64];

    if (reply->type == REDIS_REPLY_INTEGER) {
        snprintf(text, sizeof(text), ":%lld", reply->integer);
        return text;
    }
    return reply->str ? reply->str : reply->type == REDIS_REPLY_NIL ? "nil" : "(array)";
}

bool reply_is_number(const redisReply *reply, long long number)
{
    return reply->type == REDIS_REPLY_INTEGER && reply->integer == number;
}

void model_change(struct model_filter *filter)
{
    filter->changed_ms = model_now_ms();
}

void model_drop(struct model_filter *filter)
{
    memset(filter, 0, sizeof(*filter));
    model_change(filter);
}

/* ---- the whole ---- */

const unsigned model_numbers[MODEL_DATABASES] = {0, 1, 9};

static void select_database(struct model *model, redisContext *client, unsigned db)
{
    redisReply *reply = model_ask(model, client, "SELECT %u", model_numbers[db]);
    demand(model, reply_is_ok(reply), "SELECT: %s", reply_shown(reply));
    freeReplyObject(reply);
    model->db = db;
}

redisContext *model_connect(struct model *model, int port)
{
    model->db = 0;
    return client_open(port);
}

/* Queries all items at once. */
static redisReply *ask_all(struct model *model, redisContext *client, unsigned name)
{
    static char text[MODEL_ITEMS + 2][16];
    static const char *argv[MODEL_ITEMS + 2];
    static size_t len[MODEL_ITEMS + 2];
    int argc = 0;

    len[argc] = (size_t)snprintf(text[argc], 16, "BF.MEXISTS");
    argv[argc] = text[argc];
    argc++;
    len[argc] = (size_t)snprintf(text[argc], 16, "f%u", name);
    argv[argc] = text[argc];
    argc++;
    for (unsigned i = 0; i < MODEL_ITEMS; i++, argc++) {
        len[argc] = (size_t)snprintf(text[argc], 16, "item:%u", i);
        argv[argc] = text[argc];
    }
    redisAppendCommandArgv(client, argc, argv, len);
    redisReply *reply = model_reply(model, client);
    demand(model, reply->type == REDIS_REPLY_ARRAY && reply->elements == MODEL_ITEMS, "BF.MEXISTS: %s",
           reply_shown(reply));
    return reply;
}

static void check_filter(struct model *model, redisContext *client, unsigned name)
{
    struct model_filter *filter = model_at(model, name);

    demand(model, model_ask_number(model, client, "EXISTS f%u", name) == filter->exists, "f%u is there or not", name);
    if (!filter->exists)
        return;
    int64_t card = model_ask_number(model, client, "BF.CARD f%u", name);
    demand(model, card == (int64_t)filter->count, "f%u has %lld items instead of %llu", name, (long long)card,
           (unsigned long long)filter->count);
    int64_t ttl = model_ask_number(model, client, "PTTL f%u", name);
    demand(model, filter->expires ? ttl > 0 : ttl == -1, "f%u has %lld ms to live", name, (long long)ttl);
    redisReply *reply = ask_all(model, client, name);
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        bool present = reply_is_number(reply->element[i], 1);
        demand(model, present || !filter->in[i], "item:%u of f%u is absent", i, name);
        if (filter->in[i] || filter->adopted)
            continue;
        model->asked++;
        model->present += present;
        model->expected += filter->rate;
    }
    freeReplyObject(reply);
}

/* Compares every filter in its database; afterwards the client is in its previous database. */
static void for_all(struct model *model, redisContext *client, void (*visit)(struct model *, redisContext *, unsigned))
{
    unsigned before = model->db;
    for (unsigned db = 0; db < MODEL_DATABASES; db++) {
        select_database(model, client, db);
        for (unsigned i = 0; i < MODEL_NAMES; i++)
            visit(model, client, i);
    }
    select_database(model, client, before);
}

void model_check(struct model *model, redisContext *client)
{
    for_all(model, client, check_filter);
}

void model_revert(struct model *model)
{
    memcpy(model->filters, model->saved, sizeof(model->filters));
}

/* The daemon's state of a filter that was changed as a whole within the horizon: any of its versions. */
static void adopt(struct model *model, redisContext *client, unsigned name)
{
    struct model_filter *filter = model_at(model, name);
    bool exists = model_ask_number(model, client, "EXISTS f%u", name) == 1;

    model_drop(filter);
    if (!exists)
        return;
    filter->exists = filter->adopted = true;
    filter->count = (uint64_t)model_ask_number(model, client, "BF.CARD f%u", name);
    filter->expires = model_ask_number(model, client, "PTTL f%u", name) > 0;
    redisReply *reply = ask_all(model, client, name);
    for (unsigned i = 0; i < MODEL_ITEMS; i++)
        filter->in[i] = reply_is_number(reply->element[i], 1);
    freeReplyObject(reply);
}

static int64_t the_horizon_ms; /* of the current comparison */

static void reconcile(struct model *model, redisContext *client, unsigned name)
{
    struct model_filter *filter = model_at(model, name);
    uint64_t young = 0;

    demand(model, model_ask_number(model, client, "EXISTS f%u", name) == filter->exists, "f%u is there or not", name);
    if (!filter->exists)
        return;
    redisReply *reply = ask_all(model, client, name);
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        bool present = reply_is_number(reply->element[i], 1);
        demand(model, present || !filter->in[i] || filter->in_ms[i] > the_horizon_ms, "item:%u of f%u is lost", i,
               name);
        filter->in[i] = filter->in[i] && present;
        young += filter->count_ms[i] > the_horizon_ms;
    }
    freeReplyObject(reply);
    uint64_t card = (uint64_t)model_ask_number(model, client, "BF.CARD f%u", name);
    demand(model, card <= filter->count && card + young >= filter->count,
           "f%u has %llu items: not between %llu less %llu and these", name, (unsigned long long)card,
           (unsigned long long)filter->count, (unsigned long long)young);
    filter->count = card;
}

static void adopt_or_reconcile(struct model *model, redisContext *client, unsigned name)
{
    if (model_at(model, name)->changed_ms > the_horizon_ms)
        adopt(model, client, name);
    else
        reconcile(model, client, name);
}

void model_reconcile(struct model *model, redisContext *client, int64_t horizon_ms)
{
    the_horizon_ms = horizon_ms;
    for_all(model, client, adopt_or_reconcile);
    model_check(model, client);
}

void model_finish(const struct model *model)
{
    demand(model, (double)model->present <= 1.5 * model->expected + 30,
           "%llu of %llu queries were false positives, %.0f expected", (unsigned long long)model->present,
           (unsigned long long)model->asked, model->expected);
}
