/* model: what a daemon should hold, as exact sets, beside the real one: random commands go to both, and every reply is
 * compared. After a restart the whole of it is compared.
 *
 * A failure fails the test with the seed of the model in its message. Thread: one at a time. */
#ifndef BLOOMERY_TEST_MODEL_H
#define BLOOMERY_TEST_MODEL_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

#include "rng.h"

#define MODEL_DATABASES 3
#define MODEL_NAMES     4 /* in each */
#define MODEL_ITEMS     1500
#define MODEL_HISTORY   24

struct model_filter {
    bool exists;
    bool adopted; /* taken from the daemon after a crash: parameters are not known */
    bool fixed;   /* NONSCALING */
    bool expires; /* far away */
    double rate;
    uint64_t capacity;  /* as reserved */
    uint64_t count;     /* what BF.CARD says */
    int64_t changed_ms; /* when it was last made, deleted, replaced or given a time */
    bool in[MODEL_ITEMS];
    int64_t in_ms[MODEL_ITEMS];    /* when the add was answered */
    int64_t count_ms[MODEL_ITEMS]; /* when it was answered 1 */
};

struct model {
    struct rng rng;
    uint64_t seed;
    bool without_log;
    const char *when; /* for messages */
    unsigned db;      /* the client's: an index of `filters` */
    struct model_filter filters[MODEL_DATABASES][MODEL_NAMES];
    struct model_filter saved[MODEL_DATABASES][MODEL_NAMES]; /* as of the last SAVE */
    char history[MODEL_HISTORY][64]; /* the last changes that were not mere adds, for messages */
    uint64_t changes;
    uint64_t commands;
    uint64_t asked, present; /* queries for what was never added, and how many said "present" */
    double expected;         /* of these at most */
};

void model_init(struct model *model, uint64_t seed);

/* A connection to the daemon for the model, as all that follow need it. The caller frees it. */
redisContext *model_connect(struct model *model, int port);

/* One random command, or a transaction of some, and the comparison of its replies. */
void model_step(struct model *model, redisContext *client);

/* The daemon holds what the model holds. */
void model_check(struct model *model, redisContext *client);

/* After a crash that lost everything since the last SAVE. */
void model_revert(struct model *model);

/* After a crash that may have lost what was answered after `horizon_ms` (of model_now_ms()): all before is there; what
 * came later is taken from the daemon. */
void model_reconcile(struct model *model, redisContext *client, int64_t horizon_ms);

/* At the end: the false positives seen are within the rates. */
void model_finish(const struct model *model);

int64_t model_now_ms(void);

#endif
