#include "wire_tls.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "wire_internal.h"

struct wire_tls {
    SSL_CTX *context;
    SSL *ssl;
    SSL_SESSION *session; /* the last that the server has offered */
};

void tls_make_files(const char *dir)
{
    char output[4096];
    program_expect(output, sizeof(output), 0, "", "'%s' '%s'", CERTIFICATES_PATH, dir);
}

static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct wire_tls *tls = SSL_get_app_data(ssl);
    SSL_SESSION_free(tls->session);
    tls->session = session;
    return 1;
}

static SSL_CTX *make_context(const struct wire_tls_options *options)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    cr_assert(context);
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, on_session);
    if (options->ca) {
        cr_assert_eq(SSL_CTX_load_verify_file(context, options->ca), 1);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    }
    if (options->cert) {
        char key[512];
        snprintf(key, sizeof(key), "%.*s.key", (int)strlen(options->cert) - 4, options->cert);
        cr_assert_eq(SSL_CTX_use_certificate_chain_file(context, options->cert), 1, "%s", options->cert);
        cr_assert_eq(SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM), 1, "%s", key);
    }
    if (options->protocol) {
        int version = strcmp(options->protocol, "TLSv1.2") == 0   ? TLS1_2_VERSION
                      : strcmp(options->protocol, "TLSv1.1") == 0 ? TLS1_1_VERSION
                                                                  : TLS1_3_VERSION;
        SSL_CTX_set_min_proto_version(context, version);
        SSL_CTX_set_max_proto_version(context, version);
        if (version < TLS1_2_VERSION)
            SSL_CTX_set_security_level(context, 0);
    }
    if (options->ciphers)
        cr_assert_eq(SSL_CTX_set_cipher_list(context, options->ciphers), 1);
    return context;
}

static const char *reason(void)
{
    static char text[256];
    unsigned long code = ERR_peek_error();
    const char *words = code ? ERR_reason_error_string(code) : NULL;
    snprintf(text, sizeof(text), "%s", words ? words : "closed");
    ERR_clear_error();
    return text;
}

bool wire_open_tls(struct wire *wire, int port, const struct wire_tls_options *options, const char **why_out)
{
    static const struct wire_tls_options none;
    if (!options)
        options = &none;
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes without MSG_NOSIGNAL */
    wire_open(wire, port);
    struct wire_tls *tls = calloc(1, sizeof(*tls));
    cr_assert(tls);
    tls->context = make_context(options);
    tls->ssl = SSL_new(tls->context);
    cr_assert(tls->ssl && SSL_set_fd(tls->ssl, wire->fd) == 1);
    SSL_set_app_data(tls->ssl, tls);
    cr_assert_eq(SSL_set_tlsext_host_name(tls->ssl, "localhost"), 1);
    if (options->ca)
        cr_assert_eq(SSL_set1_host(tls->ssl, "localhost"), 1);
    if (options->session)
        cr_assert_eq(SSL_set_session(tls->ssl, options->session), 1);
    wire->tls = tls;
    ERR_clear_error();
    if (SSL_connect(tls->ssl) == 1)
        return true;
    *why_out = reason();
    wire_close(wire);
    return false;
}

ssize_t wire_tls_send(struct wire *wire, const void *data, size_t len)
{
    size_t n;
    ERR_clear_error();
    return SSL_write_ex(wire->tls->ssl, data, len, &n) == 1 ? (ssize_t)n : -1;
}

ssize_t wire_tls_recv(struct wire *wire, void *data, size_t size)
{
    size_t n;
    ERR_clear_error();
    if (SSL_read_ex(wire->tls->ssl, data, size, &n) == 1)
        return (ssize_t)n;
    errno = EAGAIN;
    return SSL_get_error(wire->tls->ssl, 0) == SSL_ERROR_WANT_READ ? -1 : 0;
}

bool wire_tls_has_more(const struct wire *wire)
{
    return SSL_pending(wire->tls->ssl) > 0;
}

void wire_tls_close(struct wire *wire)
{
    SSL_free(wire->tls->ssl);
    SSL_SESSION_free(wire->tls->session);
    SSL_CTX_free(wire->tls->context);
    free(wire->tls);
}

const char *wire_tls_server(const struct wire *wire)
{
    static char name[64];
    X509 *cert = SSL_get1_peer_certificate(wire->tls->ssl);
    cr_assert(cert);
    X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, name, sizeof(name));
    X509_free(cert);
    return name;
}

void *wire_tls_session(struct wire *wire)
{
    SSL_SESSION *session = wire->tls->session;
    wire->tls->session = NULL;
    return session;
}

void wire_tls_forget(void *session)
{
    SSL_SESSION_free(session);
}

bool wire_tls_resumed(const struct wire *wire)
{
    return SSL_session_reused(wire->tls->ssl);
}

void wire_tls_end(struct wire *wire)
{
    SSL_shutdown(wire->tls->ssl);
}

bool wire_tls_update_keys(struct wire *wire, int times)
{
    for (int i = 0; i < times; i++)
        if (SSL_key_update(wire->tls->ssl, SSL_KEY_UPDATE_REQUESTED) != 1 || SSL_do_handshake(wire->tls->ssl) != 1)
            return false;
    return true;
}
