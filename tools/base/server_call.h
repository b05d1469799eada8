/* server_call: the connection of a subcommand to one server, with its messages about it.
 *
 * Lifetime: caller's storage, zeroed, to server_call_close(). Thread: one. */
#pragma once

#include "errbuf.h"
#include "peer.h"
#include "tls_context.h"
#include "tool.h"

/* server_url: the address of a server as redis-cli and client libraries write it:
 *
 *   redis://[[user]:password@]host[:port][/database]     (rediss:// with TLS; valkey:// and valkeys:// as well)
 *   unix://[[user]:password@]/path/of/socket[?db=database]      (redis+unix:// and redis-socket:// as well)
 *
 * A user, a password and a path may have bytes as %XX. And the TLS options of subcommands that connect to one.
 * Thread: any. */

#define SERVER_URL_MAX 4096

struct server_url {
    struct peer_address address; /* points into `storage`; `tls` is the caller's to set, if: */
    bool with_tls;
    bool has_database;                /* the text names one */
    char shown[SERVER_URL_MAX];       /* for messages: without the user's name and password */
    char storage[2 * SERVER_URL_MAX]; /* internal */
    size_t used;
};

/* 0, or -EINVAL with the reason. The address has no password unless the text has one. */
int server_url_read(struct server_url *url, const char *text, struct errbuf *err);

/* Gives the address a password of another source; it is copied. -EINVAL: too long. */
int server_url_set_password(struct server_url *url, const char *password);

/* Replaces the password in the text by stars, so that `ps` does not show it. */
void server_url_hide(char *text);

/* The TLS options, rows of a table of options. */
#define TLS_OPTIONS                                                                                                \
    {.name = "--cacert",                                                                                           \
     .value = "FILE",                                                                                              \
     .doc = "Certificates (PEM) of the authorities that sign the server's; by default the system's list.",         \
     .group = "TLS"},                                                                                              \
        {.name = "--cert", .value = "FILE", .doc = "The certificate (PEM) for servers that ask for one."},         \
        {.name = "--key", .value = "FILE", .doc = "Its key (PEM); by default in the file of --cert."},             \
    {                                                                                                              \
        .name = "--insecure", .doc = "Takes any certificate of the server: an attacker in between can read along." \
    }

/* Reads the options. `wanted`: a server is connected to with TLS; otherwise these options are refused, and *context_out
 * is NULL. It lives until the process ends. TOOL_OK, or another code after a message. */
int tls_options_read(const struct tool_args *args, bool wanted, struct tls_context **context_out);

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
