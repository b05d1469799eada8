/* model_internal: declarations shared by the parts of the model. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "model.h"

#define demand(model, ok, ...)                                       \
    do {                                                             \
        if (!(ok)) {                                                 \
            char demand_text[512];                                   \
            snprintf(demand_text, sizeof(demand_text), __VA_ARGS__); \
            model_fail(model, demand_text);                          \
        }                                                            \
    } while (0)

void model_fail(const struct model *model, const char *text);

redisReply *model_reply(struct model *model, redisContext *client);

/* In hiredis's format. */
redisReply *model_ask(struct model *model, redisContext *client, const char *fmt, ...);
int64_t model_ask_number(struct model *model, redisContext *client, const char *fmt, ...);

const char *reply_shown(const redisReply *reply); /* valid until the next call */
static inline bool reply_is_ok(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
}

static inline bool reply_is_error(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR;
}

bool reply_is_number(const redisReply *reply, long long number);

extern const unsigned model_numbers[MODEL_DATABASES]; /* the numbers of its databases in the daemon */

/* The filter of that name in the client's database. */
static inline struct model_filter *model_at(struct model *model, unsigned name)
{
    return &model->filters[model->db][name];
}

/* From now on the name has another filter, or none. */
void model_change(struct model_filter *filter);
void model_drop(struct model_filter *filter);

/* ---- model_several.c: actions of several commands; `a` and `b` are names in the client's database ---- */

void model_expire_soon(struct model *model, redisContext *client, unsigned a);
void model_merge(struct model *model, redisContext *client, unsigned a, unsigned b);
void model_restore(struct model *model, redisContext *client, unsigned a, unsigned b, bool expires);
void model_chunks(struct model *model, redisContext *client, unsigned a, unsigned b);
void model_save(struct model *model, redisContext *client);
void model_rewrite(struct model *model, redisContext *client);
