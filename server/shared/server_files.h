/* server_files: what is read from files that the settings name: the certificates and rules of new TLS connections, and
 * the keys of KEYED filters. A change replaces them as a whole; open connections keep their certificates.
 *
 * settings.files is held while files are read, which may take long, and never on an event loop. settings.lock
 * is held only while values are exchanged. The settings of TLS change under both locks, so the certificates in force
 * belong to the settings in force. */
#pragma once

#include <stdbool.h>

#include "errbuf.h"

struct config;
struct server;
struct tls_context;

/* Reads the files that these settings name. *context_out is the caller's; NULL if neither tls-port nor metrics-tls
 * needs one. 0 or -errno with the reason. Reads files: not on a loop. Thread: any. */
int server_tls_load(const struct config *config, struct tls_context **context_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* False, with the reason: its certificate has expired, and the one in force has not, or there is none. */
bool server_tls_may_replace(struct server *server, const struct tls_context *context, struct errbuf *err);

/* Takes the context over; new connections are made from it. Thread: any, under settings.files. */
void server_tls_replace(struct server *server, struct tls_context *context);

/* Reads the files of the settings in force again and logs the result. After a failure the former context stays. Does
 * nothing without TLS. Thread: pool. */
void server_tls_reload(struct server *server);

/* Logs the end of the certificate's validity; a warning if that is near or over. */
void server_tls_report(struct server *server, const struct tls_context *context);

void server_tls_free(struct server *server); /* at the end, without readers */

/* The keys of KEYED filters, from the file of bf-key-file or, without one, KEYS in the data directory, which is made
 * when a key is needed first. Functions that read or write the file are called under settings.files. */

struct key_file;

/* Reads the key file of these settings; a missing one in the data directory is made if `bf-keyed` asks for a key, or
 * `make` does, but not while keys are in memory. *out is the caller's; NULL: there is none, and it is not needed, or
 * must be restored. 0 or -errno with the reason. */
int server_keys_load(struct server *server, const struct config *config, bool make, struct key_file **out,
                     struct errbuf *err) __attribute__((warn_unused_result));

/* Puts the keys into force, and frees them. NULL: none. */
void server_keys_replace(struct server *server, struct key_file *file);

/* Logs a warning for each key that filters need and that is not here. Thread: any. */
void server_keys_warn(struct server *server);

/* Takes the lock, reads the file in force again, and logs a failure: then the keys stay as they are. Thread: pool. */
void server_keys_reload(struct server *server);

/* For the first KEYED filter: makes a missing key file. Failures are logged, and in key_trouble. Thread: pool. */
void server_keys_make(struct server *server);
