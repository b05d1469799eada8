/* check: assertions about our own code, and tables of states. Input from the network or from a disk is never checked
 * with them.
 *
 * CHECK is in every build: the bugs that it catches would corrupt data or give wrong answers. VERIFY is for checks that
 * cost too much for production; BLOOMERY_VERIFY (presets dev and asan) compiles it in. Both end the process. */
#pragma once

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (__builtin_expect(!(condition), 0)) {                                    \
            fprintf(stderr, "%s:%d: bug: !(%s)\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

#ifdef BLOOMERY_VERIFY
#define VERIFY(condition) CHECK(condition)
#else
#define VERIFY(condition) ((void)sizeof(!(condition)))
#endif

/* ---- the rows of a state machine: in `state`, `event` leads to `next`. A pair without a row is forbidden: it is a bug
 * of the caller. The machines here have few rows, so a search is enough. ---- */

struct state_row {
    unsigned char state, event, next;
};

static inline unsigned state_next(const struct state_row *rows, size_t nrows, unsigned state, unsigned event)
{
    size_t i = 0;
    while (i < nrows && (rows[i].state != state || rows[i].event != event))
        i++;
    CHECK(i < nrows);
    return rows[i].next;
}

#define STATE_NEXT(rows, state, event) state_next(rows, sizeof(rows) / sizeof((rows)[0]), state, event)
