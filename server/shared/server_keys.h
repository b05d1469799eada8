/* server_keys: the keys of KEYED filters, from the file of bf-key-file or, without one, KEYS in the data directory,
 * which is made when a key is needed first.
 *
 * Functions that read or write the file are not for event loops, and are called under server_tls_lock(), as all that
 * read files of settings. */
#ifndef BLOOMERY_SERVER_KEYS_H
#define BLOOMERY_SERVER_KEYS_H

#include <stdbool.h>

#include "errbuf.h"

struct config;
struct key_file;
struct server;

/* Reads the key file of these settings; a missing one in the data directory is made if `bf-keyed` asks for a key, or
 * `make` does, but not while keys are in memory. *out is the caller's; NULL: there is none, and it is not needed, or
 * must be restored. 0 or -errno with the reason. */
int server_keys_load(struct server *server, const struct config *config, bool make, struct key_file **out,
                     struct errbuf *err) __attribute__((warn_unused_result));

/* Puts the keys into force, and frees them. NULL: none. */
void server_keys_replace(struct server *server, struct key_file *file);

/* Logs a warning for each key that filters need and that is not here. Thread: any. */
void server_keys_warn(struct server *server);

/* Takes the lock, reads the file of the settings in force again, and logs a failure: then the keys stay as they are.
 * Thread: pool. */
void server_keys_reload(struct server *server);

/* For the first KEYED filter: makes the key file if there is none. A failure is logged, and in settings.key_trouble.
 * Thread: pool. */
void server_keys_make(struct server *server);

#endif
