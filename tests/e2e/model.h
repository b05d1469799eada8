/* model: the expected filters of a daemon as exact sets. Random commands go to the model and to the daemon, and every
 * reply is compared; after a restart all filters are compared.
 *
 * A failure fails the test, with the seed of the model in its message. Thread: one at a time. */
#pragma once

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
    bool adopted; /* taken from the daemon after a crash: parameters unknown */
    bool fixed;   /* NONSCALING */
    bool expires; /* far away */
    double rate;
    uint64_t capacity;  /* as reserved */
    uint64_t count;     /* of BF.CARD */
    int64_t changed_ms; /* time of its last creation, deletion, replacement or new expiry */
    bool in[MODEL_ITEMS];
    int64_t in_ms[MODEL_ITEMS];    /* time of the reply to the add */
    int64_t count_ms[MODEL_ITEMS]; /* time of the reply 1 */
};

struct model {
    struct rng rng;
    uint64_t seed;
    bool without_log;
    const char *when; /* for messages */
    unsigned db;      /* the client's: an index of `filters` */
    struct model_filter filters[MODEL_DATABASES][MODEL_NAMES];
    struct model_filter saved[MODEL_DATABASES][MODEL_NAMES]; /* as of the last SAVE */
    char history[MODEL_HISTORY][64];                         /* the last changes other than adds, for messages */
    uint64_t changes;
    uint64_t commands;
    uint64_t asked, present; /* queries for items never added, and those answered "present" */
    double expected;         /* upper bound of the latter */
};

void model_init(struct model *model, uint64_t seed);

/* Connects to the daemon, for the functions below. The caller frees the connection. */
redisContext *model_connect(struct model *model, int port);

/* Runs one random command, or a transaction, and compares the replies. */
void model_step(struct model *model, redisContext *client);

/* Asserts that the daemon has the filters of the model. */
void model_check(struct model *model, redisContext *client);

/* After a crash that lost all changes since the last SAVE. */
void model_revert(struct model *model);

/* After a crash that may have lost changes acknowledged after `horizon_ms` (of model_now_ms()): asserts that all
 * earlier changes are there, and takes the later ones from the daemon. */
void model_reconcile(struct model *model, redisContext *client, int64_t horizon_ms);

/* At the end: asserts that the number of false positives is within the rates. */
void model_finish(const struct model *model);

int64_t model_now_ms(void);
