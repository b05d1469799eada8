/* wire_tls: TLS on a wire (wire.h), and the certificates for it. All functions of wire.h continue to work.
 *
 * Thread: as wire.h. */
#ifndef BLOOMERY_TEST_WIRE_TLS_H
#define BLOOMERY_TEST_WIRE_TLS_H

#include "wire.h"

/* Makes the files of tests/support/certificates in a directory. */
void tls_make_files(const char *dir);

/* What a client shows and demands. NULL: nothing. */
struct wire_tls_options {
    const char *ca;       /* checks the server's certificate against this file, and its name against localhost */
    const char *cert;     /* shows this certificate, whose key is next to it (.crt, .key) */
    const char *protocol; /* "TLSv1.2": only this one */
    const char *ciphers;  /* of TLSv1.2 */
    void *session;        /* continues with the session of wire_tls_session() */
};

/* Connects and shakes hands. False when the handshake fails; *why_out says why (a constant text or one that is valid
 * until the next call); the wire is closed then. `options` may be NULL. */
bool wire_open_tls(struct wire *wire, int port, const struct wire_tls_options *options, const char **why_out);

/* The name (CN) of the certificate that the server has shown. Valid until the next call. */
const char *wire_tls_server(const struct wire *wire);

/* The session, for the next connection's options; NULL: none has come yet. To be freed by wire_tls_forget(). */
void *wire_tls_session(struct wire *wire);
void wire_tls_forget(void *session);
bool wire_tls_resumed(const struct wire *wire);

/* Says that nothing more is sent, by a message of TLS; the connection below it stays. */
void wire_tls_end(struct wire *wire);

/* Asks the server for new keys, this many times. False when the connection is gone. */
bool wire_tls_update_keys(struct wire *wire, int times);

#endif
