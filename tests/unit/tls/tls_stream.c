/* The room tls without a network: a client and a server whose bytes the test carries, in pieces of any size, damaged,
 * or not at all. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "tls_context.h"
#include "tls_stream.h"
#include "tmpdir.h"

static char dir[TMPDIR_SIZE];
static struct tls_context *server_context, *client_context;

/* Memory of the whole program; 0 under a sanitizer. */
static size_t allocated(void)
{
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

static void start(void)
{
    char output[4096], files[4][200];
    static const char *const names[] = {"server.crt", "server.key", "ca.crt", ""};
    tmpdir_create(dir);
    program_expect(output, sizeof(output), 0, "", "'%s' '%s'", CERTIFICATES_PATH, dir);
    for (size_t i = 0; i < 4; i++)
        snprintf(files[i], sizeof(files[i]), "%s/%s", dir, names[i]);
    struct tls_server_settings server = {.cert_file = files[0],
                                         .key_file = files[1],
                                         .key_file_pass = "",
                                         .ca_cert_file = "",
                                         .ca_cert_dir = "",
                                         .protocols = "",
                                         .ciphers = "",
                                         .ciphersuites = "",
                                         .session_caching = true,
                                         .session_cache_size = 100,
                                         .session_cache_seconds = 100};
    struct tls_client_settings client = {.ca_cert_file = files[2]};
    struct errbuf err = {""};
    cr_assert_eq(tls_context_server(&server, &server_context, &err), 0, "%s", err.text);
    cr_assert_eq(tls_context_client(&client, &client_context, &err), 0, "%s", err.text);
}

static void stop(void)
{
    tls_context_destroy(server_context);
    tls_context_destroy(client_context);
    tmpdir_remove(dir);
}

TestSuite(tls_stream, .init = start, .fini = stop, .timeout = 3000);

/* One end: the bytes to send, the decrypted bytes, the status. */
struct end {
    struct tls_stream *stream;
    const struct tls_context *context;
    struct buf out, plain;
    enum tls_status status;
    struct errbuf err;
};

static void end_init(struct end *end, const struct tls_context *context)
{
    *end = (struct end){.stream = tls_stream_create(), .context = context, .status = TLS_OK};
    cr_assert(end->stream);
    buf_init(&end->out, 1 << 24);
    buf_init(&end->plain, 1 << 24);
}

static void end_deinit(struct end *end)
{
    tls_stream_destroy(end->stream);
    buf_deinit(&end->out);
    buf_deinit(&end->plain);
}

/* Gives bytes of the network to an end, like the daemon. Each block is freed after its last byte, for ASan. */
static void give(struct end *end, const char *bytes, size_t len)
{
    static char plain[65536 + TLS_RECORD_MAX];
    char *copy = malloc(len ? len : 1);
    size_t done = 0, n = 0;
    cr_assert(copy);
    if (len)
        memcpy(copy, bytes, len);
    if (!tls_stream_is_up(end->stream) && (end->status == TLS_OK || end->status == TLS_MORE))
        end->status =
            tls_stream_handshake(end->stream, end->context, "localhost", copy, len, &done, &end->out, &end->err);
    if (tls_stream_is_up(end->stream) && end->status == TLS_OK && done < len) {
        end->status =
            tls_stream_read(end->stream, copy + done, len - done, plain, sizeof(plain), &n, &end->out, &end->err);
        buf_append(&end->plain, plain, n);
    }
    free(copy);
}

/* Carries all pending bytes of one end to the other, in pieces of `piece` bytes, the first one of `first`. Returns
 * true if there were any. */
static bool carry(struct end *from, struct end *to, size_t first, size_t piece)
{
    size_t len = buf_len(&from->out), at = 0;
    char *bytes = malloc(len + 1);
    cr_assert(bytes);
    if (len)
        memcpy(bytes, buf_head(&from->out), len);
    buf_consume(&from->out, len);
    for (size_t n = first; at < len; at += n, n = piece) {
        if (n > len - at || n == 0)
            n = len - at;
        give(to, bytes + at, n);
    }
    free(bytes);
    return len > 0;
}

static void shake_hands(struct end *client, struct end *server, size_t first, size_t piece)
{
    give(client, NULL, 0);
    while ((int)carry(client, server, first, piece) | (int)carry(server, client, 0, 0))
        ;
}

static void say(struct end *end, const char *text)
{
    cr_assert_eq(tls_stream_write(end->stream, text, strlen(text), &end->out, &end->err), TLS_OK);
}

static bool heard(const struct end *end, const char *text)
{
    return buf_len(&end->plain) == strlen(text) &&
           (*text == '\0' || memcmp(buf_head(&end->plain), text, strlen(text)) == 0);
}

/* A whole conversation, with the client's bytes in pieces. */
static void converse(size_t first, size_t piece)
{
    struct end client, server;
    end_init(&client, client_context);
    end_init(&server, server_context);
    shake_hands(&client, &server, first, piece);
    cr_assert(tls_stream_is_up(client.stream) && tls_stream_is_up(server.stream), "%zu, %zu: %s %s", first, piece,
              client.err.text, server.err.text);
    say(&client, "PING\r\n");
    say(&client, "BF.ADD f a\r\n");
    carry(&client, &server, first, piece);
    cr_assert(heard(&server, "PING\r\nBF.ADD f a\r\n"), "%zu, %zu", first, piece);
    say(&server, "+PONG\r\n:1\r\n");
    carry(&server, &client, first, piece);
    cr_assert(heard(&client, "+PONG\r\n:1\r\n"));
    tls_stream_end(client.stream, &client.out);
    carry(&client, &server, first, piece);
    cr_assert_eq(server.status, TLS_END);
    say(&server, "bye"); /* the other direction is still open */
    carry(&server, &client, first, piece);
    cr_assert(heard(&client, "+PONG\r\n:1\r\nbye"));
    end_deinit(&client);
    end_deinit(&server);
}

/* Records cut at any byte, and at all of them, are put together again. */
Test(tls_stream, records_cut_at_every_byte)
{
    converse(0, 0);
    converse(1, 1);
    for (size_t piece = 2; piece < 12; piece++)
        converse(piece, piece);
    for (size_t first = 1; first < 560; first++)
        converse(first, 0);
}

/* Data that arrives with the end of the handshake is not lost. */
Test(tls_stream, data_behind_the_handshake_is_read)
{
    struct end client, server;
    end_init(&client, client_context);
    end_init(&server, server_context);
    give(&client, NULL, 0);
    carry(&client, &server, 0, 0);
    carry(&server, &client, 0, 0);
    cr_assert(tls_stream_is_up(client.stream) && !tls_stream_is_up(server.stream));
    say(&client, "PING\r\n");
    carry(&client, &server, 0, 0); /* the end of the handshake, and data */
    cr_assert(heard(&server, "PING\r\n"));
    end_deinit(&client);
    end_deinit(&server);
}

/* After a changed byte, anywhere, the server receives nothing of that record, and never other data. */
Test(tls_stream, no_changed_byte_is_heard)
{
    size_t len = 1;
    for (size_t at = 0; at < len; at++) {
        struct end client, server;
        end_init(&client, client_context);
        end_init(&server, server_context);
        shake_hands(&client, &server, 0, 0);
        say(&client, "BF.ADD f a\r\n");
        say(&client, "BF.ADD f b\r\n");
        len = buf_len(&client.out);
        client.out.data[client.out.start + at] ^= (char)(1 << at % 8);
        carry(&client, &server, at % 3 ? 0 : at, 0);
        if (server.status == TLS_OK) /* the length may need more bytes now */
            cr_assert(heard(&server, "") || heard(&server, "BF.ADD f a\r\n"), "byte %zu", at);
        else
            cr_assert(server.status == TLS_FAILED && server.err.text[0] &&
                          (heard(&server, "") || heard(&server, "BF.ADD f a\r\n")),
                      "byte %zu", at);
        end_deinit(&client);
        end_deinit(&server);
    }
}

/* The same in the handshake: a failure has a reason. */
Test(tls_stream, changed_handshakes_end_with_a_reason)
{
    size_t len = 1;
    for (size_t at = 0; at < len; at++) {
        struct end client, server;
        end_init(&client, client_context);
        end_init(&server, server_context);
        give(&client, NULL, 0);
        len = buf_len(&client.out);
        client.out.data[client.out.start + at] ^= (char)(1 << at % 8);
        while ((int)carry(&client, &server, 0, 0) | (int)carry(&server, &client, 0, 0))
            ;
        if (server.status == TLS_FAILED)
            cr_assert(server.err.text[0], "byte %zu", at);
        end_deinit(&client);
        end_deinit(&server);
    }
}

/* Long data take few records, and arrive unchanged. */
Test(tls_stream, long_data_are_few_records)
{
    enum { LEN = 300000 };
    struct end client, server;
    char *data = malloc(LEN);
    cr_assert(data);
    for (size_t i = 0; i < LEN; i++)
        data[i] = (char)(i * 31 >> 3);
    end_init(&client, client_context);
    end_init(&server, server_context);
    shake_hands(&client, &server, 0, 0);
    cr_assert_eq(tls_stream_write(server.stream, data, LEN, &server.out, &server.err), TLS_OK);
    cr_assert_leq(buf_len(&server.out), LEN + (LEN / 16384 + 1) * 30);
    carry(&server, &client, 1000, 44000);
    cr_assert(buf_len(&client.plain) == LEN && memcmp(buf_head(&client.plain), data, LEN) == 0);
    free(data);
    end_deinit(&client);
    end_deinit(&server);
}

/* A connection without room for its output fails with that reason. */
Test(tls_stream, without_room_it_fails)
{
    struct end client, server;
    end_init(&client, client_context);
    end_init(&server, server_context);
    buf_init(&server.out, 100);
    give(&client, NULL, 0);
    carry(&client, &server, 0, 0);
    cr_assert_eq(server.status, TLS_FAILED);
    cr_assert_str_eq(server.err.text, "out of memory for its records");
    end_deinit(&client);
    end_deinit(&server);
}

/* A client refuses a server with another name or address, or with an unknown signer. */
Test(tls_stream, clients_check_the_server)
{
    static const struct {
        const char *authority, *name, *why; /* why NULL: accepted */
    } cases[] = {{"other.crt", NULL, "unable to get local issuer"},
                 {"ca.crt", "elsewhere", "hostname mismatch"},
                 {"ca.crt", "localhost", NULL},
                 {"ca.crt", "127.0.0.1", NULL},
                 {"ca.crt", "127.0.0.2", "IP address mismatch"},
                 {"ca.crt", "::1", NULL},
                 {"ca.crt", "::2", "IP address mismatch"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tls_context *context = NULL;
        struct errbuf err = {""};
        struct end client, server;
        char authority[200];
        snprintf(authority, sizeof(authority), "%s/%s", dir, cases[i].authority);
        struct tls_client_settings settings = {.ca_cert_file = authority, .server_name = cases[i].name};
        cr_assert_eq(tls_context_client(&settings, &context, &err), 0, "%s", err.text);
        end_init(&client, context);
        end_init(&server, server_context);
        shake_hands(&client, &server, 0, 0);
        cr_assert_eq(client.status, cases[i].why ? TLS_FAILED : TLS_OK, "%s", cases[i].name);
        if (cases[i].why)
            cr_assert(strstr(client.err.text, cases[i].why), "%s", client.err.text);
        end_deinit(&client);
        end_deinit(&server);
        tls_context_destroy(context);
    }
}

/* The memory of a connection is at most the daemon's count for it. */
Test(tls_stream, memory_is_what_is_counted)
{
    enum { N = 20 };
    static struct end clients[N], servers[N];
    size_t most = 0;
    for (int i = 0; i < 2; i++) { /* the first one allocates the shared data */
        struct end client, server;
        end_init(&client, client_context);
        end_init(&server, server_context);
        shake_hands(&client, &server, 0, 0);
        end_deinit(&client);
        end_deinit(&server);
    }
    for (int i = 0; i < N; i++) {
        end_init(&clients[i], client_context);
        end_init(&servers[i], server_context);
        give(&clients[i], NULL, 0);
    }
    size_t before = allocated();
    for (int i = 0; i < N; i++)
        carry(&clients[i], &servers[i], 300, 0);
    cr_assert_leq((allocated() - before) / N, TLS_HANDSHAKE_MEMORY, "%zu", (allocated() - before) / N);
    most = (allocated() - before) / N;
    for (int i = 0; i < N; i++) {
        size_t clients_before = allocated();
        carry(&servers[i], &clients[i], 0, 0);
        before += allocated() - clients_before; /* of the client */
        carry(&clients[i], &servers[i], 0, 0);
        cr_assert(tls_stream_is_up(servers[i].stream));
    }
    printf("per connection: %zu bytes in the handshake, %zu afterwards\n", most, (allocated() - before) / N);
    cr_assert_leq((allocated() - before) / N, TLS_STREAM_MEMORY, "%zu", (allocated() - before) / N);
    for (int i = 0; i < N; i++) {
        end_deinit(&clients[i]);
        end_deinit(&servers[i]);
    }
}
