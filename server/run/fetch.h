/* fetch: bits that a command needs come back into memory before it runs (residency.h). The connection waits meanwhile,
 * and the loop continues; then the command is dispatched again. The bits that it needs stay until it has run to its
 * end.
 *
 * Thread: the loop's. */
#pragma once

#include <stdbool.h>

#include "dispatch_errors.h"
#include "resp_parse.h"

struct command;
struct conn;
struct keyed;
struct mailbox;
struct server;

/* A loop's part. */
struct fetches {
    struct server *server;
    struct mailbox *mailbox;
    struct keyed *keyed;
    bool some_evicted; /* residency_some_evicted() at the beginning of this iteration */
};

void fetches_init(struct fetches *fetches, struct server *server, struct mailbox *mailbox, struct keyed *keyed);

/* Once per iteration. */
void fetches_look(struct fetches *fetches);

enum fetch_answer {
    FETCH_READY,  /* nothing is missing, or the command can do without it */
    FETCH_WAIT,   /* the connection waits (CONN_WAITS_FILTER) */
    FETCH_FAILED, /* with the error in the text */
};

/* Called before a command runs, of EXEC for the commands of its transaction. */
enum fetch_answer fetch_bits(struct fetches *fetches, struct conn *conn, const struct command *command,
                             const struct resp_command *cmd, char text_out[DISPATCH_ERROR_SIZE]);

/* The command has ended, or the connection. */
void fetch_end(struct conn *conn);

/* Whether the bits of this filter are away: then not through the pipeline. Free while all bits are in memory. */
bool fetch_is_needed(const struct fetches *fetches, uint64_t name_hash, struct slice name);
