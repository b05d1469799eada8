/* tls_context: certificates, keys and rules, read from files once and never changed: the source of new TLS connections
 * (tls_stream.h). Connections keep the parts they use alive, so a context may be destroyed, or replaced by one with
 * newer certificates, at any time.
 *
 * Reads files: not on an event loop. Asks no terminal for a password.
 *
 * Lifetime: tls_context_server() or tls_context_client() to tls_context_destroy(). Thread: any; a context may serve any
 * number of threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"

struct tls_context;

/* Whether a server asks its clients for certificates. */
enum tls_auth {
    TLS_AUTH_NO,
    TLS_AUTH_YES,      /* a client without a valid one is refused */
    TLS_AUTH_OPTIONAL, /* only a client with an invalid one is */
};

/* Of the settings tls-*, whose names the messages use. Strings are borrowed for the call; "" is none. */
struct tls_server_settings {
    const char *cert_file; /* PEM: the certificate, followed by the intermediate ones */
    const char *key_file;  /* PEM; "": in cert_file */
    const char *key_file_pass;
    const char *ca_cert_file; /* PEM: CA certificates, to check clients */
    const char *ca_cert_dir;  /* a directory of them, named by hash (openssl rehash) */
    const char *protocols;    /* "TLSv1.2 TLSv1.3", in any order and case; "": these two */
    const char *ciphers;      /* up to TLS 1.2, as in ciphers(1); "": OpenSSL's own */
    const char *ciphersuites; /* of TLS 1.3; "": OpenSSL's own */
    enum tls_auth auth_clients;
    bool prefer_server_ciphers;
    bool session_caching; /* a returning client may resume its session */
    int64_t session_cache_size;
    int64_t session_cache_seconds;
};

/* 0; or -EINVAL (a bad file or setting), -ENOMEM or the -errno of opening a file, with the reason in `err`. */
int tls_context_server(const struct tls_server_settings *settings, struct tls_context **context_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Of a program that connects. Strings are borrowed for the call; NULL and "" are none. */
struct tls_client_settings {
    const char *cert_file, *key_file, *key_file_pass; /* as above, for servers that ask for certificates */
    const char *ca_cert_file; /* CA certificates for the check of servers; NULL: the system's list */
    const char *ca_cert_dir;
    const char *server_name; /* for SNI and the check of the certificate; NULL: the host of the connection */
    const char *protocols, *ciphers, *ciphersuites; /* as above */
    bool insecure;                                  /* takes any certificate */
};

/* As above. */
int tls_context_client(const struct tls_client_settings *settings, struct tls_context **context_out, struct errbuf *err)
    __attribute__((warn_unused_result));

void tls_context_destroy(struct tls_context *context); /* NULL is fine */

/* The end of the validity of its own certificate, in seconds since 1970; 0: it has none. */
int64_t tls_context_expires(const struct tls_context *context);
