/* tls_options: the options by which subcommands connect with TLS, and what is made of them. */
#ifndef BLOOMERY_TLS_OPTIONS_H
#define BLOOMERY_TLS_OPTIONS_H

#include <stdbool.h>

#include "tls_context.h"
#include "tool.h"

/* Rows of a table of options. */
#define TLS_OPTIONS                                                                                                 \
    {.name = "--cacert",                                                                                            \
     .value = "FILE",                                                                                               \
     .doc = "Certificates (PEM) of those who may have signed the server's; otherwise those that the system has.",   \
     .group = "TLS"},                                                                                               \
        {.name = "--cert", .value = "FILE", .doc = "The certificate (PEM) to show to a server that asks for one."}, \
        {.name = "--key", .value = "FILE", .doc = "Its key (PEM); otherwise it is in the same file."},              \
    {                                                                                                               \
        .name = "--insecure", .doc = "Takes any certificate of the server: whoever is in between can read along."   \
    }

/* Reads the options. `wanted`: a server is connected to with TLS; otherwise these options are refused, and *context_out
 * is NULL. It lives until the process ends. TOOL_OK, or another code after a message. */
int tls_options_read(const struct tool_args *args, bool wanted, struct tls_context **context_out);

#endif
