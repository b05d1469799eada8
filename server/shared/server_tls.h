/* server_tls: the certificates and rules of new TLS connections. A change replaces them as a whole; open connections
 * keep theirs.
 *
 * server_tls_lock() is held while files are read, which may take long, and never on an event loop. server_config_lock()
 * is held only while values are exchanged. The settings of TLS change under both locks, so the certificates in force
 * belong to the settings in force. */
#ifndef BLOOMERY_SERVER_TLS_H
#define BLOOMERY_SERVER_TLS_H

#include <stdbool.h>

#include "errbuf.h"

struct config;
struct server;
struct tls_context;

void server_tls_lock(struct server *server);
void server_tls_unlock(struct server *server);

/* Reads the files that these settings name. *context_out is the caller's; NULL if neither tls-port nor metrics-tls
 * needs one. 0 or -errno with the reason. Reads files: not on a loop. Thread: any. */
int server_tls_load(const struct config *config, struct tls_context **context_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* False, with the reason: its certificate has expired, and the one in force has not, or there is none. */
bool server_tls_may_replace(struct server *server, const struct tls_context *context, struct errbuf *err);

/* The settings have changed: where none of them uses a certificate, there is none whose end is worth an alert. The
 * context stays, as connections may be under way. Thread: any, under server_tls_lock(). */
void server_tls_settle(struct server *server);

/* Takes the context over; new connections are made from it. Thread: any, under server_tls_lock(). */
void server_tls_replace(struct server *server, struct tls_context *context);

/* Reads the files of the settings in force again and logs the result. After a failure the former context stays. Does
 * nothing without TLS. Thread: pool. */
void server_tls_reload(struct server *server);

/* Logs the end of the certificate's validity; a warning if that is near or over. */
void server_tls_report(struct server *server, const struct tls_context *context);

void server_tls_free(struct server *server); /* at the end, without readers */

#endif
