/* bring: bits that a command needs come back into memory before it runs (residency.h). The connection waits meanwhile,
 * and the loop goes on; then the command is dispatched again. What it needs stays until it has run to its end.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_BRING_H
#define BLOOMERY_BRING_H

#include <stdbool.h>

#include "resp_parse.h"

struct bring;
struct command;
struct conn;
struct worker;

enum bring_answer {
    BRING_READY,  /* nothing is missing, or the command can do without it */
    BRING_WAIT,   /* the connection waits (CONN_WAITS_FILTER) */
    BRING_FAILED, /* with the error in the text */
};

/* Called before a command runs, of EXEC for the commands of its transaction. `text_out` has ADMISSION_TEXT_SIZE bytes.
 */
enum bring_answer bring_bits(struct conn *conn, const struct command *command, const struct resp_command *cmd,
                             char *text_out);

/* The command has ended, or the connection. */
void bring_end(struct conn *conn);

/* Whether the bits of this filter are away: such a command does not go through the window. Costs nothing while all bits
 * are in memory. */
bool bring_is_needed(const struct worker *worker, uint64_t name_hash, struct slice name);

#endif
