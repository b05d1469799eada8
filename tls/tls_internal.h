/* Shared by the files of the room. */
#ifndef BLOOMERY_TLS_INTERNAL_H
#define BLOOMERY_TLS_INTERNAL_H

#include <openssl/ssl.h>

#include "errbuf.h"
#include "tls_context.h"

#define TLS_NAME_MAX 256 /* of a host */

struct tls_context {
    SSL_CTX *ssl;
    bool is_client;
    bool insecure;
    char server_name[TLS_NAME_MAX]; /* "": the host */
    int64_t expires;
};

/* OpenSSL's reason for the last failure of this thread, and forgets it: a few words in plain English. */
void tls_error_take(char *text_out, size_t size);

/* Sets `err` to "<what>: <reason>". */
void tls_error(struct errbuf *err, const char *what);

#endif
