#include "server_files.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "bloom_keyring.h"
#include "clock.h"
#include "key_file.h"
#include "lock.h"
#include "server.h"
#include "tls_context.h"

#define SOON_DAYS 14 /* a certificate that ends within them is worth a warning */

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
    return errbuf_fail(err, false, "the certificate has expired: it was valid until %s", date);
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

    lock_take(&server->settings.files);
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
    lock_give(&server->settings.files);
}

void server_tls_free(struct server *server)
{
    tls_context_destroy(atomic_exchange(&server->settings.tls.now, NULL));
}

static int read_file(struct server *server, const char *path, struct key_file **out, struct errbuf *err)
{
    int rc = key_file_read(fsops_posix(), path, out, err);
    struct errbuf text;

    if (rc == 0 && key_file_is_exposed(path, &text))
        log_warning(&server->log, "%s", text.text);
    return rc;
}

int server_keys_load(struct server *server, const struct config *config, bool make, struct key_file **out,
                     struct errbuf *err)
{
    const char *dir = server->process.data_dir;
    struct path own;

    *out = NULL;
    if (config->filters.key_file[0])
        return read_file(server, config->filters.key_file, out, err);
    int rc = path_format(&own, err, "%s/" KEY_FILE_NAME, dir);
    STEP(rc, read_file(server, own.text, out, err));
    if (rc != -ENOENT)
        return rc;
    /* While keys are in memory, a file without them would make their filters unreadable. */
    if ((!make && !config->filters.keyed) || bloom_keyring_first(server->pool))
        return 0;
    rc = key_file_make(fsops_posix(), dir, own.text, err);
    STEP(rc, read_file(server, own.text, out, err));
    if (rc == 0)
        log_notice(&server->log, "created the key file %s: without it KEYED filters cannot be queried", own.text);
    return rc;
}

void server_keys_warn(struct server *server)
{
    uint64_t ids[KEY_FILE_KEYS];
    size_t n = bloom_keyring_missing(server->pool, ids, KEY_FILE_KEYS);

    for (size_t i = 0; i < n; i++)
        log_warning(&server->log,
                    "the key %016" PRIx64 " is missing: its KEYED filters return errors until the key file has it",
                    ids[i]);
}

void server_keys_replace(struct server *server, struct key_file *file)
{
    if (bloom_keyring_set(server->pool, file ? file->secrets : NULL, file ? file->n : 0) != 0)
        log_warning(&server->log, "the keys are unchanged: out of memory");
    key_file_free(file);
    server_keys_warn(server);
}

/* `make`: as for server_keys_load(). */
static int load(struct server *server, bool make, struct errbuf *err)
{
    struct key_file *file;
    struct config config;
    int rc;

    lock_take(&server->settings.files);
    rc = server_config_copy(server, &config, err);
    if (rc == 0) {
        rc = server_keys_load(server, &config, make, &file, err);
        config_deinit(&config);
    }
    /* A key file that has disappeared from the data directory is no reason to forget its keys. */
    if (rc == 0 && file)
        server_keys_replace(server, file);
    else if (rc == 0 && bloom_keyring_first(server->pool))
        log_warning(&server->log, "the key file is missing; its keys are in memory only: restore it from a backup");
    lock_give(&server->settings.files);
    return rc;
}

void server_keys_reload(struct server *server)
{
    struct errbuf err = {""};

    if (load(server, false, &err) != 0)
        log_warning(&server->log, "the keys are unchanged: %s", err.text);
}

void server_keys_make(struct server *server)
{
    struct errbuf err = {""};
    int rc = load(server, true, &err);

    if (rc != 0)
        log_warning(&server->log, "%s", err.text);
    atomic_store(&server->settings.key_trouble, rc);
}
