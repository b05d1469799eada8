/* server_call: the connection of a subcommand to one server, with its messages about it.
 *
 * Lifetime: caller's storage, zeroed, to server_call_close(). Thread: one. */
#ifndef BLOOMERY_TOOL_SERVER_CALL_H
#define BLOOMERY_TOOL_SERVER_CALL_H

#include "peer.h"
#include "server_url.h"
#include "tool.h"

struct server_call {
    const char *command; /* for messages */
    struct server_url url;
    struct peer peer;
    struct tls_context *tls;
};

/* The form of the URL of such subcommands, for their help. */
#define SERVER_CALL_URL                                                                                \
    "URL is redis://[[user]:password@]host[:port], rediss://... with TLS, or unix:///path/of/socket; " \
    "$REDISCLI_AUTH can have the password."

/* These return TOOL_OK, or another code after a message. */

/* Reads the address and the TLS options of the row, and hides the password in `text`. */
int server_call_read(struct server_call *call, const struct tool_args *args, char *text);

int server_call_connect(struct server_call *call);

/* Waits for the next reply; the second also requires that it is no error. */
int server_call_any_reply(struct server_call *call, struct resp_reply *reply);
int server_call_reply(struct server_call *call, struct resp_reply *reply);

/* Idempotent, and for a zeroed one. */
void server_call_close(struct server_call *call);

#endif
