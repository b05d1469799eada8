/* traffic: clients that write until the daemon is gone. They remember all commands and the times of the replies, and
 * check afterwards whether the daemon has a possible state.
 *
 * Adders add their own items to a few growing filters, in pipelines and transactions. The mover leads one filter
 * after the other through its life: reserved, filled, renamed, grown, copied, cleared, deleted. The keeper requests
 * saves, or syncs of the log, one after the other. With any policy, all changes acknowledged before a save or sync
 * began are there after its end.
 *
 * Failures fail the test. Thread: the test's own, apart from the threads that it starts. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon.h"
#include "rng.h"

#define TRAFFIC_ADDERS  6
#define TRAFFIC_FILTERS 3
#define TRAFFIC_ITEMS   40000 /* of an adder */
#define TRAFFIC_MOVES   40000
#define TRAFFIC_KEEPS   4096

enum traffic_keeper {
    KEEPER_NONE,
    KEEPER_SAVES,
    KEEPER_SAVES_ALONE, /* without a log: counts may be ahead of the items */
    KEEPER_WAITS,       /* WAITAOF */
    KEEPER_REWRITES,    /* BGREWRITEAOF; its end is unknown */
};

struct traffic_options {
    unsigned adders;       /* at most TRAFFIC_ADDERS */
    unsigned pipeline;     /* items of one adder; 0: any number up to 24 */
    unsigned transactions; /* one pipeline in this many is one add to each filter in a transaction; 0: none */
    unsigned pause_us;     /* between pipelines */
    bool moves;
    enum traffic_keeper keeper;
    int64_t grace_ns; /* changes acknowledged this long before a crash must survive it. 0: all, and in order */
    bool copied;      /* while the traffic ran: adds may be there without a later change of filters before them */
};

enum traffic_answer { NOT_SENT, SENT, ANSWERED_0, ANSWERED_1, LOST };

/* Item n of adder a is "a:n"; it goes to filter n % TRAFFIC_FILTERS. */
struct traffic_adder {
    struct traffic *all;
    pthread_t thread;
    unsigned number;
    struct rng rng;
    unsigned sent;
    unsigned char answers[TRAFFIC_ITEMS];
    unsigned char in_exec[TRAFFIC_ITEMS]; /* item n begins a transaction of TRAFFIC_FILTERS items */
    int64_t answered_ns[TRAFFIC_ITEMS];
};

struct traffic {
    struct traffic_options options;
    int port;
    _Atomic bool stopping;
    struct traffic_adder adders[TRAFFIC_ADDERS];
    pthread_t mover, keeper;
    unsigned moves;  /* steps sent, over all lives */
    bool half_moved; /* the next one was sent before the last end, and took effect in part */
    int64_t moved_ns[TRAFFIC_MOVES];
    unsigned keeps;
    struct {
        int64_t began_ns, ended_ns;
    } kept[TRAFFIC_KEEPS];
};

struct traffic *traffic_create(const struct traffic_options *options, uint64_t seed);

/* Begins again: FLUSHALL, empty filters, and a save. */
void traffic_reset(struct traffic *traffic, int port);

/* Writes until traffic_end(), or until the daemon is gone. */
void traffic_start(struct traffic *traffic, int port);
void traffic_end(struct traffic *traffic);

/* Checks a daemon after a crash at `crash_ns`. It has all changes acknowledged by then (less the grace), or before
 * the start of a save or sync that had ended by then. Counts equal the items. Each transaction is there as a whole
 * or not at all. `what` is for messages. */
void traffic_check(const struct traffic *traffic, int port, int64_t crash_ns, const char *what);

/* The same, and drops missing changes: the state of this daemon is the expected one from now on. */
void traffic_adopt(struct traffic *traffic, int port, int64_t crash_ns, const char *what);

int64_t traffic_now_ns(void); /* CLOCK_MONOTONIC */
