/* schedule: the due times of an open loop's requests, and the side that is charged for late ones.
 *
 * Requests are due at fixed moments. A request that waits because all connections are busy is charged to the server
 * from its due time, so a stall cannot hide the requests due during it ("coordinated omission"). If the generator
 * itself was late (asleep, or without a processor), the request counts from the moment the generator noticed it. A
 * separate histogram records that delay and shows how far the figures can be trusted.
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

/* `rate` > 0. Requests that the generator notices more than `leave_out_ns` late are not sent: a burst of them would
 * keep the connections busy and so delay later requests at the server's charge. UINT64_MAX: all are sent. */
void schedule_init(struct schedule *schedule, uint64_t start_ns, double rate, uint64_t leave_out_ns);

/* Notices the requests due by now; called before schedule_take(), as often as possible. Records in `lateness`, if not
 * NULL, the generator's delay for each; returns the number left out. */
uint64_t schedule_look(struct schedule *schedule, uint64_t now_ns, struct hdr *lateness);

/* Whether a request is waiting to be sent. */
static inline bool schedule_waits(const struct schedule *schedule)
{
    return schedule->next < schedule->seen;
}

/* Takes a waiting request and returns the moment from which the server is charged for it. */
uint64_t schedule_take(struct schedule *schedule);

/* The due time of the first request that was not due at the last look. */
uint64_t schedule_next_due(const struct schedule *schedule);

#endif
