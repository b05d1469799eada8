#include "tls_context.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "tls_internal.h"
#include "tls_stream.h"

/* Names of the files in messages. */
struct names {
    const char *cert, *key, *ca_file, *ca_dir;
};
static const struct names server_names = {"tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-ca-cert-dir"};
static const struct names client_names = {"certificate", "key", "CA certificates", "directory of CA certificates"};

static bool is_set(const char *text)
{
    return text && text[0];
}

static int refuse_file(struct errbuf *err, const char *what, const char *path)
{
    char text[256];
    tls_error_take(text, sizeof(text));
    return errbuf_fail(err, -EINVAL, "%s %s: %s", what, path, text);
}

/* ---- files ---- */

struct password {
    const char *text;
    bool asked_for; /* the key is encrypted */
};

/* Without this callback, OpenSSL would ask on the terminal. */
static int give_password(char *password_out, int size, int writes, void *ctx)
{
    struct password *password = ctx;
    size_t len = password && password->text ? strlen(password->text) : 0;
    (void)writes;
    if (password)
        password->asked_for = true;
    if (len == 0 || len > (size_t)size)
        return -1;
    memcpy(password_out, password->text, len);
    return (int)len;
}

static int64_t seconds_of(const ASN1_TIME *time)
{
    struct tm tm;
    return time && ASN1_TIME_to_tm(time, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

struct identity {
    const char *cert_name, *cert, *key_name, *key; /* settings, and their files */
    BIO *cert_bytes, *key_bytes;
};

/* Takes them, and checks that they belong together. */
static int use_identity(struct tls_context *context, const struct identity *id, const char *password_text,
                        struct errbuf *err)
{
    struct password password = {password_text, false};
    SSL_CTX_set_default_passwd_cb(context->ssl, give_password);
    SSL_CTX_set_default_passwd_cb_userdata(context->ssl, &password);
    if (!tls_use_chain(context->ssl, id->cert_bytes))
        return refuse_file(err, id->cert_name, id->cert);
    bool loaded = tls_use_key(context->ssl, id->key_bytes);
    SSL_CTX_set_default_passwd_cb_userdata(context->ssl, NULL);
    unsigned long code = ERR_peek_error();
    bool fits = loaded ? SSL_CTX_check_private_key(context->ssl) == 1
                       : ERR_GET_LIB(code) != ERR_LIB_X509 || ERR_GET_REASON(code) != X509_R_KEY_VALUES_MISMATCH;
    if (!fits) {
        ERR_clear_error();
        return errbuf_fail(err, -EINVAL, "%s %s: is not the key of the certificate in %s", id->key_name, id->key,
                           id->cert);
    }
    if (!loaded && password.asked_for) {
        ERR_clear_error();
        return errbuf_fail(err, -EINVAL, "%s %s: is encrypted, and %s", id->key_name, id->key,
                           is_set(password_text) ? "its password is wrong" : "no password for it is set");
    }
    if (!loaded)
        return refuse_file(err, id->key_name, id->key);
    context->expires = seconds_of(X509_get0_notAfter(SSL_CTX_get0_certificate(context->ssl)));
    return 0;
}

static int load_identity(struct tls_context *context, const struct names *names, const char *cert, const char *key,
                         const char *password_text, struct errbuf *err)
{
    const char *key_name = is_set(key) ? names->key : names->cert, *key_path = is_set(key) ? key : cert;
    BIO *cert_bytes = NULL, *key_bytes = NULL;
    int status = tls_read_file(names->cert, cert, &cert_bytes, err);
    STEP(status, tls_read_file(key_name, key_path, &key_bytes, err));
    if (status == 0)
        status = use_identity(context, &(struct identity){names->cert, cert, key_name, key_path, cert_bytes, key_bytes},
                              password_text, err);
    BIO_free(cert_bytes);
    BIO_free(key_bytes);
    return status;
}

/* Loads the CA certificates. `shows`: the server sends their names to clients. */
static int load_authorities(struct tls_context *context, const struct names *names, const char *file, const char *dir,
                            bool shows, struct errbuf *err)
{
    BIO *bytes = NULL;
    int status = is_set(file) ? tls_read_file(names->ca_file, file, &bytes, err) : 0;
    if (status == 0 && is_set(dir))
        status = tls_look_at_directory(names->ca_dir, dir, err);
    bool loaded = status == 0 && (!bytes || tls_use_authorities(context->ssl, bytes, shows));
    BIO_free(bytes);
    if (status)
        return status;
    if (!loaded)
        return refuse_file(err, names->ca_file, file);
    if (is_set(dir) && SSL_CTX_load_verify_dir(context->ssl, dir) != 1)
        return refuse_file(err, names->ca_dir, dir);
    return 0;
}

/* ---- rules ---- */

static const struct protocol {
    const char *name;
    int version;
    uint64_t off;
} protocols[] = {
    {"TLSv1", TLS1_VERSION, SSL_OP_NO_TLSv1},
    {"TLSv1.1", TLS1_1_VERSION, SSL_OP_NO_TLSv1_1},
    {"TLSv1.2", TLS1_2_VERSION, SSL_OP_NO_TLSv1_2},
    {"TLSv1.3", TLS1_3_VERSION, SSL_OP_NO_TLSv1_3},
};
#define NPROTOCOLS (sizeof(protocols) / sizeof(protocols[0]))

static int allow_protocols(struct tls_context *context, const char *names, struct errbuf *err)
{
    uint64_t off = 0;
    bool allowed[NPROTOCOLS] = {false}, any = false;
    for (const char *at = names + strspn(names, " "); *at; at += strspn(at, " ")) {
        size_t len = strcspn(at, " "), i = 0;
        while (i < NPROTOCOLS && (strlen(protocols[i].name) != len || strncasecmp(protocols[i].name, at, len) != 0))
            i++;
        if (i == NPROTOCOLS)
            return errbuf_fail(err, -EINVAL, "tls-protocols: '%.*s' is none of TLSv1, TLSv1.1, TLSv1.2 and TLSv1.3",
                               (int)len, at);
        allowed[i] = any = true;
        at += len;
    }
    for (size_t i = 0; i < NPROTOCOLS; i++) {
        bool on = any ? allowed[i] : protocols[i].version >= TLS1_2_VERSION;
        off |= on ? 0 : protocols[i].off;
        if (on && protocols[i].version < TLS1_2_VERSION)
            SSL_CTX_set_security_level(context->ssl, 0); /* OpenSSL's usual level has no digest that they could use */
    }
    SSL_CTX_set_min_proto_version(context->ssl, TLS1_VERSION);
    SSL_CTX_set_options(context->ssl, off);
    return 0;
}

static int allow_ciphers(struct tls_context *context, const char *ciphers, const char *suites, struct errbuf *err)
{
    if (is_set(ciphers) && SSL_CTX_set_cipher_list(context->ssl, ciphers) != 1) {
        tls_error(err, "tls-ciphers");
        return -EINVAL;
    }
    if (is_set(suites) && SSL_CTX_set_ciphersuites(context->ssl, suites) != 1) {
        tls_error(err, "tls-ciphersuites");
        return -EINVAL;
    }
    return 0;
}

static void set_sessions(struct tls_context *context, const struct tls_server_settings *settings)
{
    static const unsigned char id[] = "bloomery";
    SSL_CTX_set_session_id_context(context->ssl, id, sizeof(id) - 1);
    SSL_CTX_set_session_cache_mode(context->ssl,
                                   settings->session_caching ? SSL_SESS_CACHE_SERVER : SSL_SESS_CACHE_OFF);
    if (!settings->session_caching) {
        SSL_CTX_set_options(context->ssl, SSL_OP_NO_TICKET);
        SSL_CTX_set_num_tickets(context->ssl, 0);
        return;
    }
    SSL_CTX_sess_set_cache_size(context->ssl, (long)settings->session_cache_size);
    SSL_CTX_set_timeout(context->ssl, (long)settings->session_cache_seconds);
    SSL_CTX_set_num_tickets(context->ssl, 1); /* a returning client needs one; each costs bytes and time */
}

/* ---- contexts ---- */

static struct tls_context *create(const SSL_METHOD *method)
{
    struct tls_context *context = calloc(1, sizeof(*context));
    if (!context)
        return NULL;
    ERR_clear_error();
    context->ssl = SSL_CTX_new(method);
    if (!context->ssl) {
        free(context);
        return NULL;
    }
    /* An idle connection gives its buffers of 34 KB back. Without SSL_MODE_AUTO_RETRY a read returns after a message
     * that has no data, so that such messages can be counted. */
    SSL_CTX_set_mode(context->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_clear_mode(context->ssl, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_options(context->ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_max_cert_list(context->ssl, TLS_HANDSHAKE_MAX / 2);
    return context;
}

void tls_context_destroy(struct tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}

static int no_memory(struct errbuf *err)
{
    ERR_clear_error();
    return errbuf_fail(err, -ENOMEM, "%s", strerror(ENOMEM));
}

static int set_up_server(struct tls_context *context, const struct tls_server_settings *settings, struct errbuf *err)
{
    static const int modes[] = {[TLS_AUTH_NO] = SSL_VERIFY_NONE,
                                [TLS_AUTH_YES] = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                                [TLS_AUTH_OPTIONAL] = SSL_VERIFY_PEER};
    if (!is_set(settings->cert_file))
        return errbuf_fail(err, -EINVAL, "tls-cert-file is not set: TLS needs a certificate");
    if (settings->auth_clients != TLS_AUTH_NO && !is_set(settings->ca_cert_file) && !is_set(settings->ca_cert_dir))
        return errbuf_fail(err, -EINVAL,
                           "certificates of clients need tls-ca-cert-file or tls-ca-cert-dir; 'tls-auth-clients no' "
                           "requests none");
    int status = allow_protocols(context, settings->protocols, err);
    STEP(status, allow_ciphers(context, settings->ciphers, settings->ciphersuites, err));
    STEP(status,
         load_identity(context, &server_names, settings->cert_file, settings->key_file, settings->key_file_pass, err));
    STEP(status, load_authorities(context, &server_names, settings->ca_cert_file, settings->ca_cert_dir,
                                  settings->auth_clients != TLS_AUTH_NO, err));
    if (status)
        return status;
    SSL_CTX_set_verify(context->ssl, modes[settings->auth_clients], NULL);
    if (settings->prefer_server_ciphers)
        SSL_CTX_set_options(context->ssl, SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_dh_auto(context->ssl, 1);
    set_sessions(context, settings);
    return 0;
}

int tls_context_server(const struct tls_server_settings *settings, struct tls_context **context_out, struct errbuf *err)
{
    struct tls_context *context = create(TLS_server_method());
    if (!context)
        return no_memory(err);
    int status = set_up_server(context, settings, err);
    if (status)
        tls_context_destroy(context);
    else
        *context_out = context;
    return status;
}

static int set_up_client(struct tls_context *context, const struct tls_client_settings *settings, struct errbuf *err)
{
    int status = 0;
    if (is_set(settings->server_name)) {
        if (strlen(settings->server_name) >= sizeof(context->server_name))
            return errbuf_fail(err, -EINVAL, "the server's name is too long");
        strcpy(context->server_name, settings->server_name);
    }
    if (!is_set(settings->cert_file) && is_set(settings->key_file))
        return errbuf_fail(err, -EINVAL, "a key needs a certificate");
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
    status = allow_protocols(context, settings->protocols ? settings->protocols : "", err);
    STEP(status, allow_ciphers(context, settings->ciphers, settings->ciphersuites, err));
    if (status == 0 && is_set(settings->cert_file))
        status = load_identity(context, &client_names, settings->cert_file, settings->key_file, settings->key_file_pass,
                               err);
    STEP(status, load_authorities(context, &client_names, settings->ca_cert_file, settings->ca_cert_dir, false, err));
    if (status == 0 && !is_set(settings->ca_cert_file) && !is_set(settings->ca_cert_dir))
        SSL_CTX_set_default_verify_paths(context->ssl);
    context->insecure = settings->insecure;
    SSL_CTX_set_verify(context->ssl, settings->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    return status;
}

int tls_context_client(const struct tls_client_settings *settings, struct tls_context **context_out, struct errbuf *err)
{
    struct tls_context *context = create(TLS_client_method());
    if (!context)
        return no_memory(err);
    context->is_client = true;
    int status = set_up_client(context, settings, err);
    if (status)
        tls_context_destroy(context);
    else
        *context_out = context;
    return status;
}

int64_t tls_context_expires(const struct tls_context *context)
{
    return context->expires;
}

/* ---- OpenSSL's errors in words for operators. A failure leaves a queue of errors for each thread: the first one is
 * nearest to the cause ---- */

struct wording {
    int reason;
    const char *text;
};

/* For errors whose OpenSSL text does not help an operator. An alert comes from the other side. */
static const struct wording wordings[] = {
    {SSL_R_NO_SHARED_CIPHER, "the client and this server have no cipher in common"},
    {SSL_R_UNSUPPORTED_PROTOCOL, "the other side speaks a TLS version that is not permitted here"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, "the client has presented no certificate, but one is required"},
    {SSL_R_HTTP_REQUEST, "an HTTP request, not TLS"},
    {SSL_R_WRONG_VERSION_NUMBER, "the other side does not speak TLS"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, "the other side does not know the CA of our certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, "the other side does not accept our certificate"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, "the other side does not accept our certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, "the other side says that our certificate has expired"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, "the other side requires a certificate, but we have presented none"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, "the other side does not permit our versions of TLS"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, "the other side refuses: no common cipher or version, or no certificate"},
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, "a record was damaged in transit"},
};

static const char *wording_of(unsigned long code)
{
    if (ERR_GET_LIB(code) != ERR_LIB_SSL)
        return NULL;
    for (size_t i = 0; i < sizeof(wordings) / sizeof(wordings[0]); i++)
        if (wordings[i].reason == ERR_GET_REASON(code))
            return wordings[i].text;
    return NULL;
}

void tls_error_take(char *text_out, size_t size)
{
    const char *data = NULL, *words, *ours = NULL;
    int flags = 0;
    unsigned long code = ERR_peek_error_all(NULL, NULL, NULL, &data, &flags);
    if (code == 0)
        words = "failed";
    else if (ERR_SYSTEM_ERROR(code))
        words = strerror(ERR_GET_REASON(code));
    else if (!(words = ours = wording_of(code)) && !(words = ERR_reason_error_string(code)))
        words = "unknown error";
    if (data && *data && (flags & ERR_TXT_STRING) && !ours && !ERR_SYSTEM_ERROR(code))
        snprintf(text_out, size, "%s (%s)", words, data);
    else
        snprintf(text_out, size, "%s", words);
    ERR_clear_error();
}

void tls_error(struct errbuf *err, const char *what)
{
    char text[256];
    tls_error_take(text, sizeof(text));
    errbuf_set(err, "%s: %s", what, text);
}
