/* find_server: `bloomery find` against a daemon: BF.FIND with a few hundred keys at a time, some of them under way.
 * Lifetime: caller's storage, zeroed, to find_server_close(). Thread: one. */
#ifndef BLOOMERY_TOOL_FIND_SERVER_H
#define BLOOMERY_TOOL_FIND_SERVER_H

#include "find_report.h"
#include "server_call.h"

struct find_server {
    struct server_call call;
    const char *names;   /* BF.FIND's pattern */
    struct buf reported; /* names of filters that cannot be asked and have been reported, each with a NUL */
    size_t nreported;
};

/* Reads the address, whose password is hidden in `url`, and connects. These return TOOL_OK, or another code after a
 * message. */
int find_server_open(struct find_server *server, const struct tool_args *args, char *url);

/* Asks for the keys of the report's block. Filters that cannot be asked become messages, and the report's status. */
int find_server_ask(struct find_server *server, struct find_report *report);

void find_server_close(struct find_server *server); /* idempotent */

#endif
