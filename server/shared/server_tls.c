#include "server_tls.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "server.h"
#include "tls_context.h"

#define SOON_DAYS 14 /* a certificate that ends within them is worth a warning */

void server_tls_lock(struct server *server)
{
    pthread_mutex_lock(&server->tls.lock);
}

void server_tls_unlock(struct server *server)
{
    pthread_mutex_unlock(&server->tls.lock);
}

int server_tls_load(const struct config *config, struct tls_context **context_out, struct errbuf *err)
{
    struct tls_server_settings settings = {
        .cert_file = config->tls_cert_file,
        .key_file = config->tls_key_file,
        .key_file_pass = config->tls_key_file_pass,
        .ca_cert_file = config->tls_ca_cert_file,
        .ca_cert_dir = config->tls_ca_cert_dir,
        .protocols = config->tls_protocols,
        .ciphers = config->tls_ciphers,
        .ciphersuites = config->tls_ciphersuites,
        .auth_clients = (enum tls_auth)config->tls_auth_clients,
        .prefer_server_ciphers = config->tls_prefer_server_ciphers,
        .session_caching = config->tls_session_caching,
        .session_cache_size = config->tls_session_cache_size,
        .session_cache_seconds = config->tls_session_cache_timeout,
    };
    bool wants_page = config->metrics_port && config->metrics_tls;
    *context_out = NULL;
    return config->tls_port || wants_page ? tls_context_server(&settings, context_out, err) : 0;
}

/* A copy of the settings in force, which no reading of files holds up. 0 or -errno with the reason. */
static int copy_settings(struct server *server, struct config *copy, struct errbuf *err)
{
    server_config_lock(server);
    int status = config_clone(server_config(server), copy);
    server_config_unlock(server);
    if (status)
        errbuf_set(err, "%s", strerror(-status));
    return status;
}

int server_tls_outgoing(struct server *server, struct tls_context **context_out, struct errbuf *err)
{
    struct config config;
    int status = copy_settings(server, &config, err);
    if (status)
        return status;
    bool own = config.tls_client_cert_file[0];
    struct tls_client_settings settings = {
        .cert_file = own ? config.tls_client_cert_file : config.tls_cert_file,
        .key_file = own ? config.tls_client_key_file : config.tls_key_file,
        .key_file_pass = own ? config.tls_client_key_file_pass : config.tls_key_file_pass,
        .ca_cert_file = config.tls_ca_cert_file,
        .ca_cert_dir = config.tls_ca_cert_dir,
        .protocols = config.tls_protocols,
        .ciphers = config.tls_ciphers,
        .ciphersuites = config.tls_ciphersuites,
    };
    status = tls_context_client(&settings, context_out, err);
    config_deinit(&config);
    return status;
}

static int reclaim(void *context)
{
    tls_context_destroy(context);
    return 0;
}

void server_tls_replace(struct server *server, struct tls_context *context)
{
    struct tls_context *old = atomic_exchange(&server->tls.now, context);
    atomic_store(&server->tls.expires, context ? tls_context_expires(context) : 0);
    atomic_fetch_add(&server->tls.generation, 1);
    if (old)
        reclaimer_defer(server->reclaimer, reclaim, old);
}

void server_tls_report(struct server *server, const struct tls_context *context)
{
    int64_t expires = tls_context_expires(context), days = (expires - clock_unix_ms() / 1000) / 86400;
    time_t seconds = (time_t)expires;
    char date[32] = "?";
    struct tm tm;
    if (gmtime_r(&seconds, &tm))
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (expires <= clock_unix_ms() / 1000)
        log_warning(&server->log, "TLS: the certificate has expired: it was valid until %s", date);
    else if (days < SOON_DAYS)
        log_warning(&server->log, "TLS: the certificate is valid until %s only, for %" PRId64 " more days", date, days);
    else
        log_notice(&server->log, "TLS: the certificate is valid until %s", date);
}

void server_tls_reload(struct server *server)
{
    struct tls_context *context = NULL;
    struct errbuf err = {""};
    struct config config;

    server_tls_lock(server);
    int status = copy_settings(server, &config, &err);
    if (status == 0) {
        status = server_tls_load(&config, &context, &err);
        config_deinit(&config);
    }
    if (status) {
        log_warning(&server->log, "TLS: the certificates stay what they were: %s", err.text);
    } else if (context) {
        server_tls_report(server, context);
        server_tls_replace(server, context);
    }
    server_tls_unlock(server);
}

void server_tls_free(struct server *server)
{
    tls_context_destroy(atomic_exchange(&server->tls.now, NULL));
    pthread_mutex_destroy(&server->tls.lock);
}
