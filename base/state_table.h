/* state_table: the rows of a state machine: in `state`, `event` leads to `next`. A pair without a row is forbidden: it
 * is a bug of the caller. The machines here have few rows, so a search is enough. */
#ifndef BLOOMERY_STATE_TABLE_H
#define BLOOMERY_STATE_TABLE_H

#include <stddef.h>

#include "check.h"

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

#endif
