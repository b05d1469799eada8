/* schedule: when the requests of an open loop are due, and who is to blame for those that leave late.
 *
 * Requests are due at fixed moments, whatever the server does. One that has to wait because all connections are busy
 * waits for the server, and is charged to it from the moment it was due: that is what keeps a stall from hiding the
 * requests that would have come meanwhile ("coordinated omission"). But a load generator that was asleep, or had lost
 * its processor, sends late as well, and that is no fault of the server's: such a request counts from the moment the
 * generator noticed it, and what it was late by goes into a histogram of its own, which tells how far the figures can
 * be trusted.
 *
 * Lifetime: caller's storage. Thread: one. Times are ns of one clock. */
#ifndef BLOOMERY_BENCH_SCHEDULE_H
#define BLOOMERY_BENCH_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "hdr.h"

struct schedule {
    /* internal */
    uint64_t start_ns;
    double rate;        /* per second */
    uint64_t leave_out; /* ns */
    uint64_t next;      /* the request that is handed out next */
    uint64_t seen;      /* requests below this one were due at the last look */
    uint64_t noticed;   /* those below it count from... */
    uint64_t noticed_ns;
};

/* `rate` > 0. What the generator itself notices more than `leave_out_ns` late is not sent at all: in one heap it would
 * keep the connections busy and so be charged to requests that come later. UINT64_MAX: everything is sent. */
void schedule_init(struct schedule *schedule, uint64_t start_ns, double rate, uint64_t leave_out_ns);

/* What is due by now, to be called before schedule_take(), as often as possible. Records in `lateness`, if it is not
 * NULL, how late the generator has noticed each; returns how many it leaves out. */
uint64_t schedule_look(struct schedule *schedule, uint64_t now_ns, struct hdr *lateness);

/* Whether a request is waiting to be sent. */
static inline bool schedule_waits(const struct schedule *schedule)
{
    return schedule->next < schedule->seen;
}

/* Takes one that waits, and returns the moment from which it is charged to the server. */
uint64_t schedule_take(struct schedule *schedule);

/* When the next one is due that was not at the last look. */
uint64_t schedule_next_due(const struct schedule *schedule);

#endif
