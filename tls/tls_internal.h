/* The state of a context, for the files of the room. */
#ifndef BLOOMERY_TLS_INTERNAL_H
#define BLOOMERY_TLS_INTERNAL_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#define TLS_NAME_MAX 256 /* of a host */

struct tls_context {
    SSL_CTX *ssl;
    bool is_client;
    bool insecure;
    char server_name[TLS_NAME_MAX]; /* "": the host */
    int64_t expires;
};

#endif
