#include "schedule.h"

static uint64_t due_at(const struct schedule *schedule, uint64_t n)
{
    return schedule->start_ns + (uint64_t)((double)n * 1e9 / schedule->rate);
}

void schedule_init(struct schedule *schedule, uint64_t start_ns, double rate, uint64_t leave_out_ns)
{
    *schedule = (struct schedule){.start_ns = start_ns, .rate = rate, .leave_out = leave_out_ns};
}

uint64_t schedule_look(struct schedule *schedule, uint64_t now_ns, struct hdr *lateness)
{
    bool waited = schedule_waits(schedule); /* for the server, so the requests due now would have waited, too */
    uint64_t left_out = 0, due;
    for (; (due = due_at(schedule, schedule->seen)) <= now_ns; schedule->seen++) {
        if (waited)
            continue;
        if (lateness)
            hdr_record(lateness, now_ns - due, 1);
        if (now_ns - due > schedule->leave_out) {
            schedule->next++;
            left_out++;
        }
    }
    if (!waited) {
        schedule->noticed = schedule->seen;
        schedule->noticed_ns = now_ns;
    }
    return left_out;
}

uint64_t schedule_take(struct schedule *schedule)
{
    uint64_t n = schedule->next++;
    return n < schedule->noticed ? schedule->noticed_ns : due_at(schedule, n);
}

uint64_t schedule_next_due(const struct schedule *schedule)
{
    return due_at(schedule, schedule->seen);
}
