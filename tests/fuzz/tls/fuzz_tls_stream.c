/* The TLS edge of the daemon without a network: a server's stream, fed as conn_tls.c feeds it, beside an honest
 * client. The input is a program for an attacker on the line between them: the client's bytes are cut, joined,
 * repeated, changed or left out, and the attacker's own are sent. With any program, the server receives a beginning
 * of the client's data, or nothing, and ends with a reason; it never crashes, loops or exceeds its limits of memory. */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "tls_context.h"
#include "tls_stream.h"

#define PIECE 48000 /* given at a time, at most */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tls_context *server_context, *client_context;

/* A key and its certificate in a file in memory; its path is used to read it. */
static void make_certificate(char *path_out, size_t path_size)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    int fd = memfd_create("certificate", 0);
    FILE *file = fdopen(fd, "w");
    CHECK(key && cert && file);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)"server", -1, -1,
                               0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    CHECK(X509_sign(cert, key, EVP_sha256()) > 0);
    CHECK(PEM_write_X509(file, cert) == 1 && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    CHECK(fflush(file) == 0); /* stays open, as its path ends with it */
    snprintf(path_out, path_size, "/proc/%d/fd/%d", (int)getpid(), fd);
    EVP_PKEY_free(key);
    X509_free(cert);
}

static void prepare(void)
{
    char path[64];
    struct errbuf err = {""};
    make_certificate(path, sizeof(path));
    struct tls_server_settings server = {.cert_file = path,
                                         .key_file = "",
                                         .key_file_pass = "",
                                         .ca_cert_file = path,
                                         .ca_cert_dir = "",
                                         .protocols = "",
                                         .ciphers = "",
                                         .ciphersuites = "",
                                         .auth_clients = TLS_AUTH_OPTIONAL,
                                         .session_caching = true,
                                         .session_cache_size = 10,
                                         .session_cache_seconds = 100};
    struct tls_client_settings client = {.cert_file = path, .insecure = true};
    CHECK(tls_context_server(&server, &server_context, &err) == 0);
    CHECK(tls_context_client(&client, &client_context, &err) == 0);
}

struct end {
    struct tls_stream *stream;
    const struct tls_context *context;
    struct buf out, plain, said; /* to the network; received from the other; sent to the other */
    enum tls_status status;
};

static void end_init(struct end *end, const struct tls_context *context)
{
    *end = (struct end){.stream = tls_stream_create(), .context = context, .status = TLS_OK};
    CHECK(end->stream);
    buf_init(&end->out, 1 << 20);
    buf_init(&end->plain, 1 << 20);
    buf_init(&end->said, 1 << 20);
}

static void end_deinit(struct end *end)
{
    tls_stream_destroy(end->stream);
    buf_deinit(&end->out);
    buf_deinit(&end->plain);
    buf_deinit(&end->said);
}

static bool is_over(const struct end *end)
{
    return end->status != TLS_OK && end->status != TLS_MORE;
}

/* Bytes of the network for an end. */
static void give(struct end *end, const char *bytes, size_t len)
{
    static char plain[PIECE + TLS_RECORD_MAX];
    struct errbuf err = {""};
    size_t done = 0, n = 0;
    if (is_over(end))
        return;
    char *copy = malloc(len ? len : 1); /* so that a sanitizer sees reads beyond it */
    CHECK(copy);
    if (len)
        memcpy(copy, bytes, len);
    if (!tls_stream_is_up(end->stream))
        end->status = tls_stream_handshake(end->stream, end->context, "server", copy, len, &done, &end->out, &err);
    CHECK(done <= len && tls_stream_is_up(end->stream) == (end->status == TLS_OK));
    if (end->status == TLS_OK && done < len) {
        end->status = tls_stream_read(end->stream, copy + done, len - done, plain, len - done + TLS_RECORD_MAX, &n,
                                      &end->out, &err);
        buf_append(&end->plain, plain, n);
    }
    CHECK(end->status != TLS_FAILED || err.text[0]);
    free(copy);
}

/* All pending output of an end goes to the other, unchanged. */
static void carry(struct end *from, struct end *to)
{
    while (buf_len(&from->out)) {
        size_t len = buf_len(&from->out) < PIECE ? buf_len(&from->out) : PIECE;
        give(to, buf_head(&from->out), len);
        buf_consume(&from->out, len);
    }
}

static void say(struct end *end, const uint8_t *bytes, size_t len)
{
    struct errbuf err = {""};
    if (len == 0 || end->status != TLS_OK || !tls_stream_is_up(end->stream))
        return;
    if (tls_stream_write(end->stream, bytes, len, &end->out, &err) == TLS_OK)
        buf_append(&end->said, bytes, len);
    else
        end->status = TLS_FAILED;
}

/* The received data are a beginning of the other's sent data. */
static void check_heard(const struct end *listener, const struct end *speaker)
{
    size_t len = buf_len(&listener->plain);
    CHECK(len <= buf_len(&speaker->said));
    CHECK(len == 0 || memcmp(buf_head(&listener->plain), buf_head(&speaker->said), len) == 0);
}

enum act {
    PASS,      /* n of the client's bytes go to the server */
    PASS_MANY, /* the same, n times 256 */
    CHANGE,    /* n bits of the next byte are flipped */
    DROP,      /* n bytes are dropped */
    REPEAT,    /* n bytes are sent, and kept */
    OWN,       /* n bytes of the input are sent */
    SAY,       /* the client sends n bytes of the input */
    SAY_MANY,  /* 256 times n bytes */
    ANSWER,    /* the server sends n bytes */
    BACK,      /* the server's bytes go to the client */
    END,       /* the client ends its sending side */
    GO_ON,     /* all bytes go unchanged until neither has more to send */
    ACTS
};

static void go_on(struct end *client, struct end *server)
{
    while (buf_len(&client->out) || buf_len(&server->out)) {
        carry(client, server);
        carry(server, client);
    }
}

struct line {
    struct end client, server;
    const uint8_t *data;
    size_t size;
};

static void take_own(struct line *line, size_t n, void (*use)(struct end *end, const uint8_t *bytes, size_t len),
                     struct end *end)
{
    size_t len = n < line->size ? n : line->size;
    use(end, line->data, len);
    line->data += len;
    line->size -= len;
}

static void send_own(struct end *server, const uint8_t *bytes, size_t len)
{
    give(server, (const char *)bytes, len);
}

static void act(struct line *line, enum act what, size_t n)
{
    static const uint8_t many[65536];
    struct buf *out = &line->client.out;
    size_t len = n < buf_len(out) ? n : buf_len(out);
    switch (what) {
    case PASS_MANY:
        len = n * 256 < buf_len(out) ? n * 256 : buf_len(out);
        /* fall through */
    case PASS:
    case REPEAT:
        len = len < PIECE ? len : PIECE;
        give(&line->server, buf_head(out), len);
        if (what != REPEAT)
            buf_consume(out, len);
        return;
    case CHANGE:
        if (buf_len(out))
            out->data[out->start] ^= (char)n;
        return;
    case DROP:
        buf_consume(out, len);
        return;
    case OWN:
        take_own(line, n, send_own, &line->server);
        return;
    case SAY:
        take_own(line, n, say, &line->client);
        return;
    case SAY_MANY:
        say(&line->client, many, n * 256);
        return;
    case ANSWER:
        say(&line->server, many, n);
        return;
    case BACK:
        carry(&line->server, &line->client);
        return;
    case END:
        if (line->client.status == TLS_OK)
            tls_stream_end(line->client.stream, out);
        return;
    case GO_ON:
    case ACTS:
        go_on(&line->client, &line->server);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct line line = {.data = data, .size = size};
    if (!server_context)
        prepare();
    end_init(&line.client, client_context);
    end_init(&line.server, server_context);
    give(&line.client, NULL, 0); /* its first message */
    for (int acts = 0; line.size >= 2 && acts < 200; acts++) {
        enum act what = (enum act)(line.data[0] % ACTS);
        size_t n = line.data[1];
        line.data += 2;
        line.size -= 2;
        act(&line, what, n);
        check_heard(&line.server, &line.client);
        check_heard(&line.client, &line.server);
    }
    end_deinit(&line.client);
    end_deinit(&line.server);
    return 0;
}
