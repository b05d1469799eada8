/* turns: divides a worker's time among its connections.
 *
 * A turn is what a worker does for one connection in one iteration of its loop. It ends after the first command that
 * passes TURN_NS; the rest of the input is kept and gets its turn in the next round, after the other connections. Small
 * commands need no reading of the clock for this: the measurement of a command or of a batch of the window reads it
 * through worker_clock_ns(), and the turn counts from the first of these readings.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_TURNS_H
#define BLOOMERY_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "conn_list.h"

#define TURN_NS UINT64_C(1000000)

struct conn;
struct worker;

struct turn {
    uint64_t began_ns; /* 0: the clock has not been read in this turn */
    bool over;
};

struct turns {
    struct turn current;      /* of the current connection */
    struct conn_link waiting; /* connections with kept input that may run now, in the order of their turns */
    uv_idle_t idle;           /* active while there are any: the loop does not sleep */
};

static inline void turn_begin(struct turn *turn)
{
    *turn = (struct turn){0};
}

/* Tells the turn the time. */
static inline void turn_note(struct turn *turn, uint64_t now_ns)
{
    if (turn->began_ns == 0)
        turn->began_ns = now_ns;
    turn->over |= now_ns - turn->began_ns >= TURN_NS;
}

void turns_init(struct worker *worker);  /* the list */
void turns_open(struct worker *worker);  /* the handle, once there is a loop */
void turns_close(struct worker *worker); /* no connection may be left */

/* Gives a connection a turn, once, in the next round of the loop: see conn_take_turn(). */
void turns_give(struct worker *worker, struct conn *conn);

#endif
