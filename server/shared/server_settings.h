/* server_settings: the settings in force, and the certificates that they name: immutable snapshots, replaced as a whole
 * (persistence.h, server_tls.h). */
#ifndef BLOOMERY_SERVER_SETTINGS_H
#define BLOOMERY_SERVER_SETTINGS_H

#include <stdatomic.h>
#include <stdint.h>

#include "lock.h"

struct config;
struct errbuf;
struct tls_context;

struct server_tls {
    _Atomic(struct tls_context *) now; /* NULL: none is wanted. Valid until the reader goes offline */
    _Atomic int64_t expires;           /* of the certificate, in seconds since 1970; 0: none */
};

struct settings {
    _Atomic(struct config *) now;
    struct lock lock;        /* one change at a time: server_config_lock() */
    struct lock files;       /* one thread at a time reads certificates, or writes settings or users */
    struct server_tls tls;   /* for new TLS connections */
    _Atomic int key_trouble; /* -errno of the latest key file that could not be made (server_keys.h) */
};

struct server;

void settings_init(struct settings *settings, struct config *config);
void settings_deinit(struct settings *settings);

static inline const struct config *settings_now(const struct settings *settings)
{
    return atomic_load_explicit(&settings->now, memory_order_acquire);
}

void server_config_free(struct server *server); /* at the end, without readers */
void server_config_lock(struct server *server);
void server_config_unlock(struct server *server);

/* A copy of the settings in force, which no reading of files delays; config_deinit() frees it. 0 or -errno with the
 * reason. */
int server_config_copy(struct server *server, struct config *copy, struct errbuf *err);

/* Publishes a new snapshot and frees the old one after a grace period; applies memory limits and the levels of the log
 * and of events. Takes ownership. Thread: any, under server_config_lock(). */
void server_config_replace(struct server *server, struct config *config);

#endif
