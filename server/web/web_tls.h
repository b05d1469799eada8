/* web_tls: the certificate of the pages (`metrics-tls`). libmicrohttpd has TLS by GnuTLS, which asks here for each
 * handshake what to show, so that a new certificate needs no new listener and disturbs no connection.
 *
 * Thread: the web thread, and before there is one. */
#ifndef BLOOMERY_WEB_TLS_H
#define BLOOMERY_WEB_TLS_H

#include "errbuf.h"

struct server;
struct web_tls;

/* Reads the certificate of the settings. 0, with NULL if they want none; -1 with the reason. */
int web_tls_create(struct web_tls **tls_out, struct server *server, struct errbuf *err);
void web_tls_destroy(struct web_tls *tls); /* NULL is fine; no connection may be left */

/* Reads it again if the settings of TLS have changed, or SIGHUP has come. After a failure, which is logged, the former
 * one stays. Called once a turn; NULL is fine. */
void web_tls_follow(struct web_tls *tls);

/* MHD_OPTION_HTTPS_CERT_CALLBACK. */
void *web_tls_callback(void);

#endif
