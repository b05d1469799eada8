/* saver_states: the states of the saver's thread, and their successors. The saver's lock guards the state. */
#ifndef BLOOMERY_SAVER_STATES_H
#define BLOOMERY_SAVER_STATES_H

#include "check.h"

enum saver_state {
    SAVER_IDLE,
    SAVER_ASKED,         /* a save begins when the thread wakes */
    SAVER_ASKED_TWICE,   /* likewise, and another one follows */
    SAVER_RUNNING,       /* a save runs */
    SAVER_RUNNING_AGAIN, /* likewise, and another one follows */
    SAVER_ENDING,        /* the last save runs */
    SAVER_ENDED,         /* there is no save any more */
};

enum saver_event {
    SAVER_ASK,      /* a save is requested; only where none is under way */
    SAVER_SCHEDULE, /* a save is requested that may follow the one under way */
    SAVER_BEGIN,    /* the thread begins a save */
    SAVER_DONE,     /* the save has ended, well or not */
    SAVER_STOP,     /* the thread is to end */
};

static const struct state_row saver_rows[] = {
    {SAVER_IDLE, SAVER_ASK, SAVER_ASKED},                       /* The thread is woken. */
    {SAVER_IDLE, SAVER_SCHEDULE, SAVER_ASKED},                  /* Nothing to wait for. */
    {SAVER_IDLE, SAVER_STOP, SAVER_ENDED},                      /* The thread leaves immediately. */
    {SAVER_ASKED, SAVER_SCHEDULE, SAVER_ASKED_TWICE},           /* The caller was promised a save of its own. */
    {SAVER_ASKED, SAVER_BEGIN, SAVER_RUNNING},                  /* The thread saves, without the lock. */
    {SAVER_ASKED, SAVER_STOP, SAVER_ENDED},                     /* A save that has not begun is dropped. */
    {SAVER_ASKED_TWICE, SAVER_SCHEDULE, SAVER_ASKED_TWICE},     /* One save serves all who scheduled. */
    {SAVER_ASKED_TWICE, SAVER_BEGIN, SAVER_RUNNING_AGAIN},      /* The first of two begins. */
    {SAVER_ASKED_TWICE, SAVER_STOP, SAVER_ENDED},               /* Both are dropped. */
    {SAVER_RUNNING, SAVER_SCHEDULE, SAVER_RUNNING_AGAIN},       /* The running save may lack the latest changes. */
    {SAVER_RUNNING, SAVER_DONE, SAVER_IDLE},                    /* Nobody has asked meanwhile. */
    {SAVER_RUNNING, SAVER_STOP, SAVER_ENDING},                  /* The running save is finished first. */
    {SAVER_RUNNING_AGAIN, SAVER_SCHEDULE, SAVER_RUNNING_AGAIN}, /* One save serves all who scheduled. */
    {SAVER_RUNNING_AGAIN, SAVER_DONE, SAVER_ASKED},             /* The scheduled save is next. */
    {SAVER_RUNNING_AGAIN, SAVER_STOP, SAVER_ENDING},            /* The scheduled save is dropped. */
    {SAVER_ENDING, SAVER_SCHEDULE, SAVER_ENDING},               /* Too late. */
    {SAVER_ENDING, SAVER_DONE, SAVER_ENDED},                    /* The thread leaves. */
    {SAVER_ENDED, SAVER_SCHEDULE, SAVER_ENDED},                 /* Too late. */
};

static inline enum saver_state saver_next(enum saver_state state, enum saver_event event)
{
    return (enum saver_state)STATE_NEXT(saver_rows, state, event);
}

#endif
