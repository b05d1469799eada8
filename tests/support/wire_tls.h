/* wire_tls: TLS on a wire (wire.h), and the certificates for it. All functions of wire.h continue to work.
 *
 * Thread: as wire.h. */
#pragma once

#include "wire.h"

/* Makes the files of tests/support/certificates in a directory. */
void tls_make_files(const char *dir);

/* A client's credentials and demands. NULL: none. */
struct wire_tls_options {
    const char *ca;       /* checks the server's certificate against this file, and its name against localhost */
    const char *cert;     /* shows this certificate, whose key is next to it (.crt, .key) */
    const char *protocol; /* "TLSv1.2": only this one */
    const char *ciphers;  /* of TLSv1.2 */
    void *session;        /* continues with the session of wire_tls_session() */
};

/* Connects and shakes hands. If the handshake fails, returns false, closes the wire and sets *why_out to the reason,
 * which is valid until the next call. `options` may be NULL. */
bool wire_open_tls(struct wire *wire, int port, const struct wire_tls_options *options, const char **why_out);

/* The name (CN) of the certificate that the server has shown. Valid until the next call. */
const char *wire_tls_server(const struct wire *wire);

/* The session, for the options of the next connection; NULL: none has been received yet. wire_tls_forget() frees it. */
void *wire_tls_session(struct wire *wire);
void wire_tls_forget(void *session);
bool wire_tls_resumed(const struct wire *wire);

/* Ends sending by a message of TLS (close_notify); the TCP connection stays. */
void wire_tls_end(struct wire *wire);

/* Asks the server for new keys, this many times. False when the connection is gone. */
bool wire_tls_update_keys(struct wire *wire, int times);
