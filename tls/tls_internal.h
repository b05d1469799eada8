/* tls_internal: the state of a context, errors, and files, for the files of the room. Thread: any. */
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"

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

/* ---- certificates and keys from files of bounded size, read without waiting (tls_files.c). Functions that return bool
 * leave OpenSSL's reason for tls_error_take(). ---- */

/* The bytes of a regular file; the caller frees them. 0, or -errno with the reason, which calls the file `what`. */
int tls_read_file(const char *what, const char *path, BIO **bytes_out, struct errbuf *err);

int tls_look_at_directory(const char *what, const char *path, struct errbuf *err); /* 0 if it is a directory */

/* The bytes are PEM: a certificate, followed by its chain. */
bool tls_use_chain(SSL_CTX *ssl, BIO *bytes);
bool tls_use_key(SSL_CTX *ssl, BIO *bytes);

/* Certificates for checking other ones, at least one, and revocation lists. `shows`: clients get their names. */
bool tls_use_authorities(SSL_CTX *ssl, BIO *bytes, bool shows);
