/* tls_files: certificates and keys from files of bounded size, read without waiting. Internal to the room.
 *
 * Functions that return bool leave OpenSSL's reason for tls_error_take(). Thread: any. */
#ifndef BLOOMERY_TLS_FILES_H
#define BLOOMERY_TLS_FILES_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "errbuf.h"

/* The bytes of a regular file; the caller frees them. 0, or -errno with the reason, in which `what` is the name of the
 * file. */
int tls_read_file(const char *what, const char *path, BIO **bytes_out, struct errbuf *err);

int tls_look_at_directory(const char *what, const char *path, struct errbuf *err); /* 0 if it is a directory */

/* The bytes are PEM: a certificate, followed by its chain. */
bool tls_use_chain(SSL_CTX *ssl, BIO *bytes);
bool tls_use_key(SSL_CTX *ssl, BIO *bytes);

/* Certificates for checking other ones, at least one, and revocation lists. `shows`: the server sends their names to
 * clients. */
bool tls_use_authorities(SSL_CTX *ssl, BIO *bytes, bool shows);

#endif
