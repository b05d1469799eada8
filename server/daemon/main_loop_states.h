/* main_loop_states: the end of the daemon, of its load, and of a reload of certificates.
 *
 * Thread: the main thread's; others read the states under the main loop's lock, which every change takes. */
#ifndef BLOOMERY_MAIN_LOOP_STATES_H
#define BLOOMERY_MAIN_LOOP_STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "server.h"
#include "state_table.h"

/* ---- the end ---- */

#define END_RETRY_MS 1000 /* between attempts to end after a signal */

enum end_state {
    END_NONE,      /* the daemon runs */
    END_SIGNALLED, /* a signal has asked for the end, which is tried */
    END_RETRYING,  /* it would have lost changes: it is tried again until shutdown-timeout */
    END_KILLED,    /* the second signal ends the process at once */
    END_EARLY,     /* requested while filters were being loaded: nothing is waited for */
    END_DECIDED,   /* the loop is left */
};

enum end_event {
    END_SIGNAL,  /* SIGTERM or SIGINT */
    END_REFUSED, /* an attempt for a signal has failed */
    END_LEAVE,   /* the end was requested during the load, before there was a log */
    END_AGREED,  /* an attempt has succeeded, for a signal or SHUTDOWN; or the load has failed */
};

static const struct state_row end_rows[] = {
    {END_NONE, END_SIGNAL, END_SIGNALLED},      /* The first signal: it is tried at once. */
    {END_NONE, END_LEAVE, END_EARLY},           /* SHUTDOWN during the load. */
    {END_NONE, END_AGREED, END_DECIDED},        /* SHUTDOWN, or the load has failed. */
    {END_SIGNALLED, END_REFUSED, END_RETRYING}, /* The tick tries again. */
    {END_SIGNALLED, END_LEAVE, END_EARLY},      /* A signal during the load. */
    {END_SIGNALLED, END_AGREED, END_DECIDED},   /* The usual end. */
    {END_RETRYING, END_SIGNAL, END_KILLED},     /* The operator does not want to wait. */
    {END_RETRYING, END_REFUSED, END_RETRYING},  /* The disk still refuses. */
    {END_RETRYING, END_AGREED, END_DECIDED},    /* The disk works again, the time is over, or SHUTDOWN has come. */
    {END_EARLY, END_SIGNAL, END_EARLY},         /* It ends anyway. */
    {END_EARLY, END_AGREED, END_DECIDED},       /* The load was at its end: changes are saved after all. */
    {END_DECIDED, END_SIGNAL, END_DECIDED},     /* It ends anyway. */
    {END_DECIDED, END_AGREED, END_DECIDED},     /* The load has failed after all. */
};

/* The end, and the request that a signal, or a client during the load, has made of it. */
struct ending {
    enum end_state state;
    struct shutdown_request request;
    int64_t until_ms; /* monotonic: an attempt from then on ends the daemon in any case */
    int64_t next_ms;  /* the next attempt, in END_RETRYING */
    bool lost;        /* the end for a signal has lost changes */
};

static inline bool ending_is_decided(const struct ending *end)
{
    return end->state >= END_EARLY;
}

/* Whether a signal waits for the end. */
static inline bool ending_is_signalled(const struct ending *end)
{
    return end->state == END_SIGNALLED || end->state == END_RETRYING;
}

static inline void ending_step(struct ending *end, enum end_event event)
{
    end->state = (enum end_state)STATE_NEXT(end_rows, end->state, event);
}

/* Before each attempt for a signal: at the last one nothing delays the end. */
static inline void ending_attempt(struct ending *end, int64_t now_ms)
{
    end->request.force |= now_ms >= end->until_ms;
    end->next_ms = now_ms + END_RETRY_MS;
}

static inline bool ending_is_due(const struct ending *end, int64_t now_ms)
{
    return end->state == END_RETRYING && now_ms >= end->next_ms;
}

/* ---- the load ---- */

enum load_state { LOAD_RUNS, LOAD_IS_OVER, LOAD_SUCCEEDED, LOAD_FAILED };
enum load_event { LOAD_ENDS, LOAD_JOINED_WELL, LOAD_JOINED_BADLY };

struct loading {
    enum load_state state;
    int64_t reported_ms; /* time of the last progress line */
    struct errbuf failure;
};

static const struct state_row load_rows[] = {
    {LOAD_RUNS, LOAD_ENDS, LOAD_IS_OVER},             /* The loading thread's last act. */
    {LOAD_IS_OVER, LOAD_JOINED_WELL, LOAD_SUCCEEDED}, /* The daemon is ready. */
    {LOAD_IS_OVER, LOAD_JOINED_BADLY, LOAD_FAILED},   /* The daemon ends. */
};

/* ---- certificates, on SIGHUP ---- */

enum reload_state { RELOAD_NONE, RELOAD_RUNS, RELOAD_RUNS_AGAIN };
enum reload_event { RELOAD_ASK, RELOAD_DONE };

static const struct state_row reload_rows[] = {
    {RELOAD_NONE, RELOAD_ASK, RELOAD_RUNS},             /* A thread of the pool reads the files. */
    {RELOAD_RUNS, RELOAD_ASK, RELOAD_RUNS_AGAIN},       /* They may have changed since they were read. */
    {RELOAD_RUNS, RELOAD_DONE, RELOAD_NONE},            /* New connections use them. */
    {RELOAD_RUNS_AGAIN, RELOAD_ASK, RELOAD_RUNS_AGAIN}, /* One more reading serves all. */
    {RELOAD_RUNS_AGAIN, RELOAD_DONE, RELOAD_RUNS},      /* Read again. */
};

#endif
