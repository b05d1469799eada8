/* tls_options: the TLS options of subcommands that connect to a server. */
#ifndef BLOOMERY_TLS_OPTIONS_H
#define BLOOMERY_TLS_OPTIONS_H

#include <stdbool.h>

#include "tls_context.h"
#include "tool.h"

/* Rows of a table of options. */
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

#endif
