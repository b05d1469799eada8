/* OpenSSL reads and writes through our own BIO, which takes bytes from the caller's memory and puts bytes into the
 * caller's buffer. So no intermediate buffer is needed, and one send() carries the records of many writes. */
#include "tls_stream.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tls_internal.h"

#define RECORD_HEAD  5 /* type, version, length */
#define HELLO_HEAD   9 /* and the type and length of the message in it */
#define TYPE_RECORD  0x16
#define TYPE_HELLO   1
#define MESSAGES_MIN 64          /* without data that a connection may always send, ... */
#define MESSAGES_PER (32 * 1024) /* ... and one more for this many bytes */

struct tls_stream {
    SSL *ssl; /* NULL before the first bytes */
    const unsigned char *in;
    size_t in_len;
    struct buf *out;
    size_t received; /* bytes; of the handshake until that is done */
    size_t messages; /* without data, since then */
    unsigned char head[HELLO_HEAD];
    unsigned char nhead;
    bool asks_no_certificate, up, failed;
};

/* ---- the BIO ---- */

static int bio_read(BIO *bio, char *to, int size)
{
    struct tls_stream *stream = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (size <= 0)
        return 0;
    if (stream->in_len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t n = stream->in_len < (size_t)size ? stream->in_len : (size_t)size;
    memcpy(to, stream->in, n);
    stream->in += n;
    stream->in_len -= n;
    return (int)n;
}

static int bio_write(BIO *bio, const char *from, int len)
{
    struct tls_stream *stream = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (len <= 0)
        return 0;
    buf_append(stream->out, from, (size_t)len);
    return buf_failed(stream->out) ? -1 : len;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *method;
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static void make_method(void)
{
    BIO_METHOD *made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "slices");
    if (made && BIO_meth_set_read(made, bio_read) && BIO_meth_set_write(made, bio_write) &&
        BIO_meth_set_ctrl(made, bio_control))
        method = made;
}

/* ---- its life ---- */

struct tls_stream *tls_stream_create(void)
{
    return calloc(1, sizeof(struct tls_stream));
}

void tls_stream_destroy(struct tls_stream *stream)
{
    if (!stream)
        return;
    SSL_free(stream->ssl);
    free(stream);
}

void tls_stream_ask_no_certificate(struct tls_stream *stream)
{
    stream->asks_no_certificate = true;
}

static bool is_address(const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

/* Sets the name that the server's certificate must have, and SNI, by which the server chooses one. */
static bool expect_host(SSL *ssl, const struct tls_context *context, const char *host)
{
    const char *name = context->server_name[0] ? context->server_name : host;
    if (!name)
        return true;
    if (is_address(name))
        return context->insecure || X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    return SSL_set_tlsext_host_name(ssl, name) == 1 && (context->insecure || SSL_set1_host(ssl, name) == 1);
}

static bool begin_stream(struct tls_stream *stream, const struct tls_context *context, const char *host)
{
    pthread_once(&method_once, make_method);
    BIO *bio = method ? BIO_new(method) : NULL;
    SSL *ssl = bio ? SSL_new(context->ssl) : NULL;
    if (!ssl) {
        BIO_free(bio);
        return false;
    }
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio); /* which now owns it */
    if (context->is_client)
        SSL_set_connect_state(ssl);
    else
        SSL_set_accept_state(ssl);
    stream->ssl = ssl;
    if (stream->asks_no_certificate) {
        static const unsigned char sessions[] = "without a certificate";
        SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL);
        return SSL_set_session_id_context(ssl, sessions, sizeof(sessions) - 1) == 1;
    }
    return !context->is_client || expect_host(ssl, context, host);
}

/* ---- failures ---- */

static enum tls_status fail(struct tls_stream *stream, struct errbuf *err)
{
    stream->failed = true;
    if (buf_failed(stream->out)) {
        ERR_clear_error();
        return errbuf_fail(err, TLS_FAILED, "out of memory for its records");
    }
    long verified = stream->ssl ? SSL_get_verify_result(stream->ssl) : X509_V_OK;
    unsigned long code = ERR_peek_error();
    if (verified != X509_V_OK && !stream->up && ERR_GET_LIB(code) == ERR_LIB_SSL &&
        ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        ERR_clear_error();
        return errbuf_fail(err, TLS_FAILED, "the certificate is not accepted: %s",
                           X509_verify_cert_error_string(verified));
    }
    char text[256];
    tls_error_take(text, sizeof(text));
    return errbuf_fail(err, TLS_FAILED, "%s", text);
}

static enum tls_status end_with(struct tls_stream *stream, struct errbuf *err, const char *why)
{
    stream->failed = true;
    ERR_clear_error();
    return errbuf_fail(err, TLS_FAILED, "%s", why);
}

static void lend(struct tls_stream *stream, const void *in, size_t len, struct buf *out)
{
    CHECK(!stream->failed);
    stream->in = in;
    stream->in_len = len;
    stream->out = out;
    ERR_clear_error();
}

/* ---- handshake ---- */

/* One call of OpenSSL's state machine on the bytes that it is lent. */
static enum tls_status step(struct tls_stream *stream, struct errbuf *err)
{
    for (;;) {
        size_t before = stream->in_len;
        int result = SSL_do_handshake(stream->ssl);
        if (result == 1) {
            stream->up = true;
            stream->received = 0;
            return TLS_OK;
        }
        if (SSL_get_error(stream->ssl, result) != SSL_ERROR_WANT_READ)
            return fail(stream, err);
        if (stream->in_len == 0)
            return TLS_MORE;
        if (stream->in_len == before)
            return end_with(stream, err, "its handshake is stuck");
    }
}

/* Collects a client's first bytes until they contain the length of its first message. */
static enum tls_status look_at_head(struct tls_stream *stream, struct errbuf *err)
{
    while (stream->in_len && stream->nhead < HELLO_HEAD) {
        stream->head[stream->nhead++] = *stream->in++;
        stream->in_len--;
    }
    if (stream->nhead > 0 && stream->head[0] != TYPE_RECORD)
        return TLS_NOT_TLS;
    if (stream->nhead > 1 && stream->head[1] != 3)
        return TLS_NOT_TLS;
    if (stream->nhead < HELLO_HEAD)
        return TLS_MORE;
    size_t len = (size_t)stream->head[6] << 16 | (size_t)stream->head[7] << 8 | stream->head[8];
    if (stream->head[RECORD_HEAD] != TYPE_HELLO)
        return end_with(stream, err, "its first message is not a ClientHello");
    if (len > TLS_HELLO_MAX)
        return end_with(stream, err, "its first message is too long");
    return TLS_OK;
}

/* The first bytes of a client, which look_at_head() has taken, go into the state machine before the others. */
static enum tls_status begin_server(struct tls_stream *stream, const struct tls_context *context, struct errbuf *err)
{
    enum tls_status status = look_at_head(stream, err);
    if (status != TLS_OK)
        return status;
    if (!begin_stream(stream, context, NULL))
        return end_with(stream, err, "out of memory for a connection");
    const unsigned char *in = stream->in;
    size_t len = stream->in_len;
    stream->in = stream->head;
    stream->in_len = stream->nhead;
    status = step(stream, err);
    if (status == TLS_MORE && stream->in_len == 0) {
        stream->in = in;
        stream->in_len = len;
        return TLS_OK;
    }
    return status == TLS_FAILED ? status : end_with(stream, err, "its first record is damaged");
}

enum tls_status tls_stream_handshake(struct tls_stream *stream, const struct tls_context *context, const char *host,
                                     const void *in, size_t len, size_t *consumed_out, struct buf *out,
                                     struct errbuf *err)
{
    enum tls_status status = TLS_OK;
    lend(stream, in, len, out);
    if (!stream->ssl && context->is_client && !begin_stream(stream, context, host))
        status = end_with(stream, err, "out of memory for a connection");
    else if (!stream->ssl)
        status = begin_server(stream, context, err);
    STEP(status, step(stream, err));
    *consumed_out = len - stream->in_len;
    stream->received += stream->up ? 0 : *consumed_out;
    if (status == TLS_MORE && stream->received > TLS_HANDSHAKE_MAX)
        status = end_with(stream, err, "its handshake is too long");
    stream->in_len = 0;
    return status;
}

/* ---- data ---- */

/* Whether a connection sends many messages without data. Each costs more than its bytes: a change of keys, say. */
static bool is_idle_talk(struct tls_stream *stream)
{
    stream->messages++;
    return stream->messages > MESSAGES_MIN + stream->received / MESSAGES_PER;
}

enum tls_status tls_stream_read(struct tls_stream *stream, const void *in, size_t len, void *plain, size_t size,
                                size_t *n_out, struct buf *out, struct errbuf *err)
{
    CHECK(stream->up && size >= len + TLS_RECORD_MAX);
    lend(stream, in, len, out);
    stream->received += len;
    *n_out = 0;
    for (;;) {
        size_t n = 0;
        if (SSL_read_ex(stream->ssl, (char *)plain + *n_out, size - *n_out, &n) == 1) {
            *n_out += n;
            continue;
        }
        switch (SSL_get_error(stream->ssl, 0)) {
        case SSL_ERROR_WANT_READ:
            if (stream->in_len == 0)
                return TLS_OK;
            if (is_idle_talk(stream))
                return end_with(stream, err, "it sends too many messages without data");
            break;
        case SSL_ERROR_ZERO_RETURN:
            return TLS_END;
        default:
            return fail(stream, err);
        }
    }
}

enum tls_status tls_stream_write(struct tls_stream *stream, const void *plain, size_t len, struct buf *out,
                                 struct errbuf *err)
{
    size_t n;
    CHECK(stream->up && len);
    lend(stream, NULL, 0, out);
    return SSL_write_ex(stream->ssl, plain, len, &n) == 1 ? TLS_OK : fail(stream, err);
}

void tls_stream_end(struct tls_stream *stream, struct buf *out)
{
    if (!stream->up || stream->failed)
        return;
    lend(stream, NULL, 0, out);
    SSL_shutdown(stream->ssl);
    ERR_clear_error();
}

/* ---- facts ---- */

bool tls_stream_is_up(const struct tls_stream *stream)
{
    return stream->up;
}

bool tls_stream_resumed(const struct tls_stream *stream)
{
    return stream->up && SSL_session_reused(stream->ssl);
}
