/* turns: divides a loop's time among its connections.
 *
 * A turn is a loop's work for one connection in one iteration. It ends after the first command that passes TURN_NS or
 * TURN_WORK; the rest of the input is kept and gets its turn in the next round, after the other connections. A round is
 * all turns of an iteration, before its replies leave. It ends likewise, after ROUND_NS or ROUND_WORK: connections with
 * new input get their turn in the next round.
 *
 * Small commands need no extra clock reading: the measurement of a command or a batch reads the clock through
 * turns_clock_ns(), and the turn counts from the first of these readings. Items of filters are counted by turns_pay();
 * work.h has the unit.
 *
 * Thread: the loop's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "buf.h"
#include "clock.h"
#include "conn_list.h"

#define TURN_NS    UINT64_C(1000000)
#define TURN_WORK  UINT64_C(8192)
#define ROUND_NS   (4 * TURN_NS)
#define ROUND_WORK (2 * TURN_WORK)

/* Of one connection, or a round of all. */
struct turn {
    uint64_t began_ns; /* 0: the clock has not been read in this turn */
    uint64_t work;
    bool over;
};

struct turns {
    void (*take)(struct conn_link *link);
    struct turn current; /* of the current connection */
    struct turn round;
    struct conn_link waiting; /* connections with kept input that may run now, in the order of their turns */
    uv_idle_t idle;           /* active while there are any: the loop does not sleep */
};

static inline void turn_begin(struct turn *turn)
{
    *turn = (struct turn){0};
}

/* Reads the clock for a caller that needs the time, and passes it to the current turn. */
static inline uint64_t turns_clock_ns(struct turns *turns)
{
    struct turn *turn = &turns->current;
    uint64_t now_ns = clock_ns();
    if (turn->began_ns == 0)
        turn->began_ns = now_ns;
    turn->over |= now_ns - turn->began_ns >= TURN_NS;
    turns->round.over |= now_ns - turns->round.began_ns >= ROUND_NS;
    return now_ns;
}

/* Counts work of the current turn. */
static inline void turns_pay(struct turns *turns, uint64_t work)
{
    turns->current.work += work;
    turns->round.work += work;
    turns->current.over |= turns->current.work >= TURN_WORK;
    turns->round.over |= turns->round.work >= ROUND_WORK;
}

/* An iteration begins. */
static inline void turns_begin_round(struct turns *turns, uint64_t now_ns)
{
    turns->round = (struct turn){.began_ns = now_ns};
}

/* take() gives the connection of the link its turn, in an iteration of the loop. */
void turns_init(struct turns *turns, uv_loop_t *loop, void (*take)(struct conn_link *link));
void turns_close(struct turns *turns); /* the handle; no connection may be left */

/* Gives a connection a turn, once, in the next round of the loop. Not after turns_close(). */
void turns_give(struct turns *turns, struct conn_link *link);

/* handshakes: the time that a loop spends on TLS handshakes, and its memory for TLS.
 *
 * A step of a handshake can take a millisecond and more (a signature by an RSA key), and a thousand clients may come at
 * once. So a readable connection waits in a list for its step. An iteration of the loop does one step, and further
 * steps only while their total time is below HANDSHAKES_NS. Other clients are served between any two iterations: a
 * crowd of handshakes delays them by one step each time. */

#define HANDSHAKES_NS 200000
#define TLS_READ_SIZE (44 * 1024)  /* from a socket at a time: its plain bytes fit into a read of the arena */
#define TLS_SEND_SIZE (256 * 1024) /* plain bytes that are encrypted for one send() */

struct handshakes {
    void (*step)(struct conn_link *link);
    struct conn_link waiting; /* by conn->waiter */
    uv_idle_t idle;           /* active while there are any */
    char *received;           /* TLS_READ_SIZE bytes, as they came from a socket; NULL before the first connection */
    struct buf sent;          /* records on their way; empty between two connections */
};

/* step() does one step for the connection of the link, in an iteration of the loop. */
void handshakes_init(struct handshakes *handshakes, uv_loop_t *loop, void (*step)(struct conn_link *link));
void handshakes_close(struct handshakes *handshakes); /* the handle */
void handshakes_deinit(struct handshakes *handshakes);

/* Makes the memory, before the first connection. False without memory. */
bool handshakes_prepare(struct handshakes *handshakes);

/* Gives a readable connection a step, once. Not after handshakes_close(). */
void handshakes_give(struct handshakes *handshakes, struct conn_link *link);
