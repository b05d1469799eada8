#include "server_tls.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "server.h"
#include "tls_context.h"
#include "lock.h"

#define SOON_DAYS 14 /* a certificate that ends within them is worth a warning */

void server_tls_lock(struct server *server)
{
    lock_take(&server->settings.files);
}

void server_tls_unlock(struct server *server)
{
    lock_give(&server->settings.files);
}

/* By clients, or by the page. */
static bool is_used(const struct config *config)
{
    return config->tls.port || (config->metrics.port && config->metrics.tls);
}

int server_tls_load(const struct config *config, struct tls_context **context_out, struct errbuf *err)
{
    struct tls_server_settings settings = {
        .cert_file = config->tls.cert_file,
        .key_file = config->tls.key_file,
        .key_file_pass = config->tls.key_file_pass,
        .ca_cert_file = config->tls.ca_cert_file,
        .ca_cert_dir = config->tls.ca_cert_dir,
        .protocols = config->tls.protocols,
        .ciphers = config->tls.ciphers,
        .ciphersuites = config->tls.ciphersuites,
        .auth_clients = (enum tls_auth)config->tls.auth_clients,
        .prefer_server_ciphers = config->tls.prefer_server_ciphers,
        .session_caching = config->tls.session_caching,
        .session_cache_size = config->tls.session_cache_size,
        .session_cache_seconds = config->tls.session_cache_timeout,
    };
    *context_out = NULL;
    return is_used(config) ? tls_context_server(&settings, context_out, err) : 0;
}

static int reclaim(void *context)
{
    tls_context_destroy(context);
    return 0;
}

void server_tls_replace(struct server *server, struct tls_context *context)
{
    struct tls_context *old = atomic_exchange(&server->settings.tls.now, context);
    atomic_store(&server->settings.tls.expires, context ? tls_context_expires(context) : 0);
    if (old)
        reclaimer_defer(server->reclaimer, reclaim, old, 0);
}

void server_tls_settle(struct server *server)
{
    if (!is_used(server_config(server)))
        atomic_store(&server->settings.tls.expires, 0);
}

static bool is_over(int64_t expires)
{
    return expires <= clock_unix_ms() / 1000;
}

#define DATE_SIZE 32

static void date_of(int64_t expires, char date_out[DATE_SIZE])
{
    time_t seconds = (time_t)expires;
    struct tm tm;
    strcpy(date_out, "?");
    if (gmtime_r(&seconds, &tm))
        strftime(date_out, DATE_SIZE, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

bool server_tls_may_replace(struct server *server, const struct tls_context *context, struct errbuf *err)
{
    char date[DATE_SIZE];
    int64_t expires = tls_context_expires(context), now = atomic_load(&server->settings.tls.expires);
    if (!is_over(expires) || (now && is_over(now)))
        return true;
    date_of(expires, date);
    errbuf_set(err, "the certificate has expired: it was valid until %s", date);
    return false;
}

void server_tls_report(struct server *server, const struct tls_context *context)
{
    int64_t expires = tls_context_expires(context), days = (expires - clock_unix_ms() / 1000) / 86400;
    char date[DATE_SIZE];
    date_of(expires, date);
    if (is_over(expires))
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
    int status = server_config_copy(server, &config, &err);
    if (status == 0) {
        status = server_tls_load(&config, &context, &err);
        config_deinit(&config);
    }
    if (status || (context && !server_tls_may_replace(server, context, &err))) {
        tls_context_destroy(context);
        log_warning(&server->log, "TLS: the certificates are unchanged: %s", err.text);
    } else if (context) {
        server_tls_report(server, context);
        server_tls_replace(server, context);
    }
    server_tls_unlock(server);
}

void server_tls_free(struct server *server)
{
    tls_context_destroy(atomic_exchange(&server->settings.tls.now, NULL));
}
