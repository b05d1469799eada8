/* server_tls: the certificates and rules from which new TLS connections are made. A change replaces them as a whole;
 * connections keep those that they began with.
 *
 * Two locks: server_tls_lock() is held over the reading of files, for as long as those take, and by nobody who runs on
 * a loop; server_config_lock() only while values are exchanged. The settings of TLS change under both, so that what has
 * been read belongs to the settings in force. */
#ifndef BLOOMERY_SERVER_TLS_H
#define BLOOMERY_SERVER_TLS_H

#include "errbuf.h"

struct config;
struct server;
struct tls_context;

void server_tls_lock(struct server *server);
void server_tls_unlock(struct server *server);

/* Reads what these settings name. *context_out is the caller's; NULL where neither
 * tls-port nor metrics-tls wants one. 0 or -errno with the
 * reason. Reads files: not on a loop. Thread: any. */
int server_tls_load(const struct config *config, struct tls_context **context_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* What MIGRATE connects by (tls-cluster): made from the settings in force, by reading the files. Otherwise as above. */
int server_tls_outgoing(struct server *server, struct tls_context **context_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Takes the context over; new connections are made from it. Thread: any, under server_tls_lock(). */
void server_tls_replace(struct server *server, struct tls_context *context);

/* Reads the files of the settings in force again, and says in the log how that went: after a failure the former
 * context stays. Does nothing where there is none. Thread: pool. */
void server_tls_reload(struct server *server);

/* Says until when the certificate is valid; warns where that is over or near. */
void server_tls_report(struct server *server, const struct tls_context *context);

void server_tls_free(struct server *server); /* at the end, without readers */

#endif
