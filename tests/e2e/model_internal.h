/* model_internal: what the two parts of the model share. */
#ifndef BLOOMERY_TEST_MODEL_INTERNAL_H
#define BLOOMERY_TEST_MODEL_INTERNAL_H

#include <stdio.h>

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
bool reply_is_number(const redisReply *reply, long long number);

/* It is another filter, or none, from now on. */
void model_change(struct model_filter *filter);
void model_drop(struct model_filter *filter);

#endif
