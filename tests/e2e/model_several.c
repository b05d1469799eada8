/* Actions of the model that take several commands: they wait, or pass the reply to one command on to another. */
#include <string.h>
#include <unistd.h>

#include "model_internal.h"

#define PATIENCE_MS 300000

void model_expire_soon(struct model *model, redisContext *client, unsigned a)
{
    struct model_filter *filter = model_at(model, a);
    int64_t deadline = model_now_ms() + PATIENCE_MS;

    demand(model, model_ask_number(model, client, "PEXPIRE f%u 5", a) == filter->exists, "PEXPIRE");
    while (model_ask_number(model, client, "EXISTS f%u", a) == 1)
        demand(model, model_now_ms() < deadline, "f%u does not expire", a);
    model_drop(filter);
}

void model_merge(struct model *model, redisContext *client, unsigned a, unsigned b)
{
    struct model_filter *to = model_at(model, a), *from = model_at(model, b);
    redisReply *reply = model_ask(model, client, "BF.MERGE f%u f%u", a, b);
    bool ok = reply_is_ok(reply);

    demand(model, ok || reply_is_error(reply), "BF.MERGE: %s", reply_shown(reply));
    demand(model, !ok || from->exists, "a merge of nothing");
    freeReplyObject(reply);
    if (!ok)
        return;
    uint64_t card = (uint64_t)model_ask_number(model, client, "BF.CARD f%u", a);
    uint64_t most = to->count > from->count ? to->count : from->count;
    if (!to->exists) {
        *to = *from;
        to->expires = false;
    }
    for (unsigned i = 0; i < MODEL_ITEMS; i++)
        to->in[i] = to->in[i] || from->in[i];
    demand(model, card >= most && card <= to->count + from->count, "a merge of %llu and %llu items has %llu",
           (unsigned long long)to->count, (unsigned long long)from->count, (unsigned long long)card);
    to->count = card;
    model_change(to);
}

static void copied(struct model *model, unsigned a, unsigned b, bool expires)
{
    *model_at(model, b) = *model_at(model, a);
    model_at(model, b)->expires = expires;
    model_change(model_at(model, b));
}

void model_restore(struct model *model, redisContext *client, unsigned a, unsigned b, bool expires)
{
    redisReply *dump = model_ask(model, client, "DUMP f%u", a);

    if (!model_at(model, a)->exists) {
        demand(model, dump->type == REDIS_REPLY_NIL, "a dump of nothing: %s", reply_shown(dump));
    } else {
        demand(model, dump->type == REDIS_REPLY_STRING, "DUMP: %s", reply_shown(dump));
        redisReply *reply =
            model_ask(model, client, "RESTORE f%u %s %b REPLACE", b, expires ? "100000000" : "0", dump->str, dump->len);
        demand(model, reply_is_ok(reply), "RESTORE: %s", reply_shown(reply));
        freeReplyObject(reply);
        copied(model, a, b, expires);
    }
    freeReplyObject(dump);
}

void model_chunks(struct model *model, redisContext *client, unsigned a, unsigned b)
{
    long long iterator = 0;

    if (!model_at(model, a)->exists || a == b)
        return;
    (void)model_ask_number(model, client, "DEL f%u", b);
    model_drop(model_at(model, b));
    for (;;) {
        redisReply *chunk = model_ask(model, client, "BF.SCANDUMP f%u %lld", a, iterator);
        demand(model, chunk->type == REDIS_REPLY_ARRAY && chunk->elements == 2, "BF.SCANDUMP: %s", reply_shown(chunk));
        iterator = chunk->element[0]->integer;
        if (iterator == 0) {
            freeReplyObject(chunk);
            break;
        }
        redisReply *reply = model_ask(model, client, "BF.LOADCHUNK f%u %lld %b", b, iterator, chunk->element[1]->str,
                                      chunk->element[1]->len);
        demand(model, reply_is_ok(reply), "BF.LOADCHUNK: %s", reply_shown(reply));
        freeReplyObject(reply);
        freeReplyObject(chunk);
    }
    copied(model, a, b, false);
}

/* Another save may be running (the log has grown): then the save is requested again. */
void model_save(struct model *model, redisContext *client)
{
    int64_t deadline = model_now_ms() + PATIENCE_MS;

    for (;;) {
        redisReply *reply = model_ask(model, client, "SAVE");
        bool ok = reply_is_ok(reply);
        demand(model, ok || (reply_is_error(reply) && strstr(reply->str, "in progress")), "SAVE: %s",
               reply_shown(reply));
        freeReplyObject(reply);
        if (ok)
            break;
        demand(model, model_now_ms() < deadline, "the save in progress does not end");
        usleep(2000);
    }
    memcpy(model->saved, model->filters, sizeof(model->saved));
}

void model_rewrite(struct model *model, redisContext *client)
{
    redisReply *reply = model_ask(model, client, "BGREWRITEAOF");

    demand(model, reply->type == REDIS_REPLY_STATUS || reply_is_error(reply), "BGREWRITEAOF: %s", reply_shown(reply));
    freeReplyObject(reply);
    if (model->without_log) /* it is a background save: wait for it, to know its content */
        model_save(model, client);
}
