/* client: a connection with the command that runs for it.
 *
 * Thread: the loop's. */
#pragma once

#include "command.h"
#include "conn.h"

struct fetch;
struct job;

/* The command that runs in slices or is delayed. */
struct running {
    const struct command *command; /* NULL before its first slice */
    struct command_slice slice;
    unsigned database; /* the internal number of that in which it began */
    struct buf reply;  /* so far */
    uint64_t spent_ns; /* by its parts so far */
};

struct client {
    struct conn conn; /* comes first: io allocates all of it */
    struct running running;
    struct fetch *fetch; /* bits that its command needs; NULL: none were away */
    struct job *job;     /* its deferred command (job.h); NULL: none */
};

static inline struct client *client_of(struct conn *conn)
{
    return (struct client *)(void *)conn;
}
