/* The settings of TLS: admitted clients, refusals at the start and at run time, and new certificates while clients
 * are connected. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "http.h"
#include "program.h"
#include "tmpdir.h"
#include "wire.h"
#include "wire_tls.h"

static struct daemon the_daemon;

static void prepare(void)
{
    daemon_prepare(&the_daemon);
    tls_make_files(the_daemon.dir);
    the_daemon.with_tls = true;
}

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(tls_settings, .init = prepare, .fini = discard, .timeout = 3000);

#define START(...)    daemon_start(&the_daemon, (const char *const[]){__VA_ARGS__, NULL})
#define FILE_OF(name) (tmp_path(the_daemon.dir, "%s", name).text)
#define REFUSED(...)  (!daemon_try(&the_daemon, (const char *const[]){__VA_ARGS__, NULL}))
#define SAYS(text)    cr_assert(strstr(daemon_output(&the_daemon), text), "%s", daemon_output(&the_daemon))
#define IN            true
#define OUT           false

/* Whether a client with these options is served; the server is known to it. */
static bool is_served(const char *cert, const char *protocol)
{
    char ca[300], mine[300] = "";
    struct wire_tls_options options = {.ca = ca, .protocol = protocol};
    struct wire wire;
    const char *why = NULL;
    snprintf(ca, sizeof(ca), "%s/ca.crt", the_daemon.dir);
    snprintf(mine, sizeof(mine), "%s/%s", the_daemon.dir, cert ? cert : "");
    options.cert = cert ? mine : NULL;
    if (!wire_open_tls(&wire, the_daemon.tls_port, &options, &why))
        return false;
    bool sent = wire_send_text(&wire, "PING\r\n"); /* by TLS 1.3 a client learns the fate of its certificate only now */
    bool served = sent && strcmp(wire_text(&wire), "+PONG") == 0;
    wire_close(&wire);
    return served;
}

/* tls-auth-clients decides about clients without a certificate; a wrong one is never accepted where one is required. */
DAEMON_TEST(the_daemon, tls_settings, certificates_of_clients)
{
    static const struct {
        const char *setting;
        bool none, good, stranger, expired;
    } cases[] = {{"yes", OUT, IN, OUT, OUT}, {"optional", IN, IN, OUT, OUT}, {"no", IN, IN, IN, IN}};
    START("--threads", "1");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        redisContext *client = client_open(the_daemon.port);
        expect(client, "+OK", "CONFIG SET tls-auth-clients %s", cases[i].setting);
        redisFree(client);
        cr_assert_eq(is_served(NULL, NULL), cases[i].none, "%s", cases[i].setting);
        cr_assert_eq(is_served("client.crt", NULL), cases[i].good, "%s", cases[i].setting);
        cr_assert_eq(is_served("client.crt", "TLSv1.2"), cases[i].good, "%s", cases[i].setting);
        cr_assert_eq(is_served("stranger.crt", NULL), cases[i].stranger, "%s", cases[i].setting);
        cr_assert_eq(is_served("expired.crt", NULL), cases[i].expired, "%s", cases[i].setting);
    }
    SAYS("the client has presented no certificate, but one is required");
    SAYS("the certificate is not accepted: certificate has expired");
    SAYS("the certificate is not accepted: unable to get local issuer certificate");
    redisContext *client = client_open(the_daemon.port);
    expect(client, "+OK", "CONFIG SET tls-auth-clients yes tls-ca-cert-file %s tls-ca-cert-dir %s", "", FILE_OF("ca"));
    cr_assert(is_served("client.crt", NULL));
    cr_assert(!is_served("stranger.crt", NULL));
}

/* Versions and ciphers follow the settings. */
DAEMON_TEST(the_daemon, tls_settings, versions_and_ciphers)
{
    char output[65536];
    START("--tls-auth-clients", "no");
    redisContext *client = client_open(the_daemon.port);
    cr_assert(is_served(NULL, "TLSv1.2") && is_served(NULL, "TLSv1.3") && !is_served(NULL, "TLSv1.1"));
    expect(client, "+OK", "CONFIG SET tls-protocols %s", "tlsv1.3");
    cr_assert(!is_served(NULL, "TLSv1.2") && is_served(NULL, "TLSv1.3"));
    expect(client, "+OK", "CONFIG SET tls-protocols %s tls-ciphers %s tls-prefer-server-ciphers yes", "TLSv1.2",
           "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384");
    cr_assert(is_served(NULL, "TLSv1.2") && !is_served(NULL, "TLSv1.3"));
    program_expect(output, sizeof(output), 0, "Cipher is ECDHE-ECDSA-CHACHA20-POLY1305",
                   "openssl s_client -connect 127.0.0.1:%d </dev/null 2>&1", the_daemon.tls_port);
    expect(client, "+OK", "CONFIG SET tls-protocols %s tls-ciphersuites %s", "TLSv1.2 TLSv1.3",
           "TLS_CHACHA20_POLY1305_SHA256");
    program_expect(output, sizeof(output), 0, "Cipher is TLS_CHACHA20_POLY1305_SHA256",
                   "openssl s_client -connect 127.0.0.1:%d </dev/null 2>&1", the_daemon.tls_port);
    /* A renegotiation is refused; it may end the connection, and has no other effect. */
    program_expect(
        output, sizeof(output), 0, "+PONG",
        "cd '%s'; until_said() { for _ in $(seq 600); do ! grep -q \"$1\" said || break; sleep 0.1; done; }; "
        "(echo PING; until_said PONG; echo R; until_said RENEGOTIATING) | "
        "openssl s_client -tls1_2 -crlf -connect 127.0.0.1:%d >said 2>&1; cat said",
        the_daemon.dir, the_daemon.tls_port);
    expect(client, "+OK", "CONFIG SET tls-session-caching no");
    cr_assert(is_served(NULL, NULL));
}

/* New certificates by CONFIG SET and by SIGHUP: for new connections; present connections continue. */
DAEMON_TEST(the_daemon, tls_settings, certificates_change_under_clients)
{
    struct wire old, wire;
    const char *why = NULL;
    START("--tls-auth-clients", "no");
    redisContext *client = client_open(the_daemon.port);
    cr_assert(wire_open_tls(&old, the_daemon.tls_port, NULL, &why));
    cr_assert_str_eq(wire_tls_server(&old), "server");
    expect(client, "+OK", "CONFIG SET tls-cert-file %s tls-key-file %s", FILE_OF("new.crt"), FILE_OF("new.key"));
    cr_assert(wire_open_tls(&wire, the_daemon.tls_port, NULL, &why));
    cr_assert_str_eq(wire_tls_server(&wire), "new");
    expect_ask(&wire, "PING", "+PONG");
    wire_close(&wire);
    expect_ask(&old, "PING", "+PONG");

    /* The same names, other contents. */
    file_copy(FILE_OF("client.crt"), FILE_OF("new.crt"));
    file_copy(FILE_OF("client.key"), FILE_OF("new.key"));
    kill(the_daemon.pid, SIGHUP);
    for (bool changed = false; !changed; wire_close(&wire)) {
        cr_assert(wire_open_tls(&wire, the_daemon.tls_port, NULL, &why));
        changed = strcmp(wire_tls_server(&wire), "client") == 0;
    }
    expect_ask(&old, "PING", "+PONG");
    file_copy(FILE_OF("server.crt"), FILE_OF("new.crt"));
    kill(the_daemon.pid, SIGHUP); /* without the key: refused */
    daemon_wait_output(&the_daemon, "TLS: the certificates are unchanged: tls-key-file ");
    SAYS("new.key: is not the key of the certificate in ");
    cr_assert(wire_open_tls(&wire, the_daemon.tls_port, NULL, &why));
    cr_assert_str_eq(wire_tls_server(&wire), "client");
    wire_close(&wire);
    file_copy(FILE_OF("expired.crt"), FILE_OF("new.crt"));
    file_copy(FILE_OF("expired.key"), FILE_OF("new.key"));
    kill(the_daemon.pid, SIGHUP);
    daemon_wait_output(&the_daemon, "TLS: the certificates are unchanged: the certificate has expired: it was");
    cr_assert(wire_open_tls(&wire, the_daemon.tls_port, NULL, &why));
    cr_assert_str_eq(wire_tls_server(&wire), "client");
    wire_close(&wire);
    file_copy(FILE_OF("server.crt"), FILE_OF("new.crt"));
    file_copy(FILE_OF("server.key"), FILE_OF("new.key"));
    expect(client, "+OK", "CONFIG SET tls-cert-file %s", FILE_OF("new.crt")); /* the same value reads the file again */
    cr_assert(wire_open_tls(&wire, the_daemon.tls_port, NULL, &why));
    cr_assert_str_eq(wire_tls_server(&wire), "server");
    wire_close(&wire);
    expect_ask(&old, "PING", "+PONG");
}

/* A refused CONFIG SET changes none of the settings that it names. */
DAEMON_TEST(the_daemon, tls_settings, refusals_at_run_time)
{
#define REFUSAL(setting) "-ERR CONFIG SET failed (possibly related to argument '" setting "') - "
    char expected[3000];
    START("--tls-auth-clients", "no");
    redisContext *client = client_open(the_daemon.port);
    const char *now = strdup(client_ask(client, "CONFIG GET tls-*"));
    expect(client, REFUSAL("tls-cert-file") "tls-cert-file /nonexistent: No such file or directory",
           "CONFIG SET timeout 7 tls-cert-file /nonexistent");
    snprintf(expected, sizeof(expected), REFUSAL("tls-cert-file") "tls-cert-file %s: is not a file", the_daemon.dir);
    expect(client, expected, "CONFIG SET tls-cert-file %s", the_daemon.dir);
    if (access("/proc/self/pagemap", R_OK) == 0) /* a file without an end */
        expect(client, REFUSAL("tls-cert-file") "tls-cert-file /proc/self/pagemap: has more than 4 MB",
               "CONFIG SET tls-cert-file /proc/self/pagemap");
    expect(client, REFUSAL("tls-cert-file") "the certificate has expired: it was valid until 2020-01-01T00:00:00Z",
           "CONFIG SET tls-cert-file %s tls-key-file %s", FILE_OF("expired.crt"), FILE_OF("expired.key"));
    expect(client, REFUSAL("tls-protocols") "tls-protocols: 'SSLv3' is none of TLSv1, TLSv1.1, TLSv1.2 and TLSv1.3",
           "CONFIG SET tls-protocols SSLv3");
    expect(client, REFUSAL("tls-ciphers") "tls-ciphers: no cipher match", "CONFIG SET tls-ciphers nonsense");
    expect(client,
           REFUSAL("tls-ca-cert-file") "certificates of clients need tls-ca-cert-file or tls-ca-cert-dir; "
                                       "'tls-auth-clients no' requests none",
           "CONFIG SET tls-ca-cert-file %s tls-auth-clients yes", "");
    snprintf(expected, sizeof(expected),
             REFUSAL("tls-key-file") "tls-key-file %s: is not the key of the certificate in %s", FILE_OF("new.key"),
             FILE_OF("server.crt"));
    expect(client, expected, "CONFIG SET tls-key-file %s", FILE_OF("new.key"));
    snprintf(expected, sizeof(expected),
             REFUSAL("tls-key-file") "tls-key-file %s: is encrypted, and no password for it is set",
             FILE_OF("secret.key"));
    expect(client, expected, "CONFIG SET tls-key-file %s", FILE_OF("secret.key"));
    snprintf(expected, sizeof(expected),
             REFUSAL("tls-key-file") "tls-key-file %s: is encrypted, and its password is wrong", FILE_OF("secret.key"));
    expect(client, expected, "CONFIG SET tls-key-file %s tls-key-file-pass wrong", FILE_OF("secret.key"));
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "CONFIG SET tls-ciphers %s", "");
    expect(client, "[-ERR this call of 'config|set' may take long: it cannot run in a transaction]", "EXEC");
    cr_assert_str_eq(client_ask(client, "CONFIG GET tls-*"), now);
    expect(client, "[\"timeout\",\"0\"]", "CONFIG GET timeout");
    cr_assert(is_served(NULL, NULL));
    expect(client, "+OK", "CONFIG SET tls-key-file %s tls-key-file-pass %s", FILE_OF("secret.key"), "correct horse");
    cr_assert(is_served(NULL, NULL));
}

/* A start with wrong files ends with a reason; one with an expired certificate warns. */
DAEMON_TEST(the_daemon, tls_settings, refusals_at_the_start)
{
    cr_assert(REFUSED("--tls-cert-file", ""));
    SAYS("cannot start: tls-cert-file is not set: TLS needs a certificate");
    cr_assert(REFUSED("--tls-key-file", FILE_OF("new.key")));
    SAYS("new.key: is not the key of the certificate in ");
    file_write(FILE_OF("empty"), "", 0);
    cr_assert(REFUSED("--tls-cert-file", FILE_OF("empty")));
    SAYS("empty: no start line");
    cr_assert(REFUSED("--tls-key-file", FILE_OF("secret.key")));
    SAYS("secret.key: is encrypted, and no password for it is set");
    cr_assert(REFUSED("--tls-ca-cert-file", ""));
    SAYS("certificates of clients need tls-ca-cert-file or tls-ca-cert-dir");
    START("--tls-cert-file", FILE_OF("expired.crt"), "--tls-key-file", FILE_OF("expired.key"));
    SAYS("warning TLS: the certificate has expired: it was valid until 2020-01-01T00:00:00Z");
    redisContext *client = client_open(the_daemon.port); /* its other settings can change */
    expect(client, "+OK", "CONFIG SET tls-session-caching no");
}

/* With the TLS port only everything works, and the port is named as in Redis. */
DAEMON_TEST(the_daemon, tls_settings, a_port_of_tls_alone)
{
    struct wire wire;
    const char *why = NULL;
    char text[64];
    the_daemon.tls_only = true;
    START("--tls-auth-clients", "no", "--requirepass", "secret");
    snprintf(text, sizeof(text), "127.0.0.1:%d (TLS)", the_daemon.tls_port);
    SAYS(text);
    cr_assert(wire_open_tls(&wire, the_daemon.tls_port, NULL, &why), "%s", why);
    expect_ask(&wire, "PING", "-NOAUTH Authentication required.");
    expect_ask(&wire, "AUTH secret", "+OK");
    snprintf(text, sizeof(text), "tcp_port:%d\\x0d", the_daemon.tls_port);
    cr_assert(strstr(wire_ask(&wire, "INFO server"), text));
    cr_assert(strstr(wire_ask(&wire, "INFO server"), "listener0:name=tls,bind=127.0.0.1,port="));
    expect_ask(&wire, "CONFIG GET tls-key-file-pass", "[\"tls-key-file-pass\",\"\"]");
}

/* redis-cli can connect to it. */
DAEMON_TEST(the_daemon, tls_settings, redis_cli_speaks_to_it)
{
    char output[4096];
    START("--threads", "2");
    program_expect(output, sizeof(output), 0, "1\n1\n0",
                   "cd %s; printf 'BF.ADD f a\\nBF.EXISTS f a\\nBF.EXISTS f b\\n' | redis-cli --tls --cacert ca.crt "
                   "--cert client.crt --key client.key -h localhost -p %d",
                   the_daemon.dir, the_daemon.tls_port);
    program_expect(
        output, sizeof(output), 1, "certificate",
        "cd %s; redis-cli --tls --cacert other.crt --cert client.crt --key client.key -h localhost -p %d PING "
        "2>&1",
        the_daemon.dir, the_daemon.tls_port);
}

/* The pages by HTTPS: for clients that trust the certificate, with the newest one, and beside other protocols. */
DAEMON_TEST(the_daemon, tls_settings, pages_by_https)
{
#define PAGE(code, text, path, ca)                                                          \
    program_expect(output, sizeof(output), code, text,                                      \
                   "cd '%s'; printf 'GET " path                                             \
                   " HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' | openssl s_client -quiet " \
                   "-verify_return_error -CAfile " ca " -connect 127.0.0.1:%d 2>&1",        \
                   the_daemon.dir, the_daemon.web_port)
    char output[1 << 17];
    struct http_reply reply;
    the_daemon.with_web = true;
    START("--metrics-tls", "yes", "--tls-auth-clients", "no");
    SAYS("metrics and status page: https://127.0.0.1:");
    PAGE(0, "alive", "/healthz", "ca.crt");
    PAGE(0, "CN = server", "/metrics", "ca.crt");
    cr_assert(strstr(output, "bloomery_tls_certificate_expires_seconds 1") ||
                  strstr(output, "bloomery_tls_certificate_expires_seconds 2"),
              "%s", output);
    PAGE(1, "self-signed certificate in certificate chain", "/healthz", "other.crt");
    redisContext *client = client_open(the_daemon.port);
    expect(client, "+OK", "CONFIG SET tls-cert-file %s tls-key-file %s", FILE_OF("new.crt"), FILE_OF("new.key"));
    PAGE(0, "CN = new", "/healthz", "ca.crt");
    http_get(the_daemon.web_port, "/metrics", "", &reply); /* without TLS */
    cr_assert_eq(reply.status, 400);
    cr_assert_str_eq(reply.body, "this port accepts HTTPS only\n");
    http_free(&reply);
    PAGE(0, "alive", "/healthz", "ca.crt");
}

/* The pages ask for no certificate, and the other port does not accept a session from there instead of one. */
DAEMON_TEST(the_daemon, tls_settings, sessions_of_pages_stay_there)
{
    static const char *const protocols[] = {"TLSv1.3", "TLSv1.2"};
    the_daemon.with_web = true;
    START("--metrics-tls", "yes", "--tls-auth-clients", "yes");
    for (size_t i = 0; i < 2; i++) {
        struct wire_tls_options options = {.protocol = protocols[i]};
        const char *why = NULL;
        struct wire wire;
        cr_assert(wire_open_tls(&wire, the_daemon.web_port, &options, &why), "%s", why);
        cr_assert(wire_send_text(&wire, "GET /healthz HTTP/1.0\r\n\r\n"));
        cr_assert(wire_takes_line(&wire, "HTTP/1.1 200 OK"));
        options.session = wire_tls_session(&wire);
        cr_assert(options.session);
        wire_tls_end(&wire); /* otherwise the session counts as damaged */
        wire_close(&wire);
        cr_assert(wire_open_tls(&wire, the_daemon.web_port, &options, &why), "%s", why);
        cr_assert(wire_tls_resumed(&wire));
        wire_tls_end(&wire);
        wire_close(&wire);
        bool let_in = wire_open_tls(&wire, the_daemon.tls_port, &options, &why);
        if (let_in) { /* by TLS 1.3 a client learns the fate of its certificate only now */
            cr_assert_not(wire_tls_resumed(&wire));
            let_in = wire_send_text(&wire, "PING\r\n") && strcmp(wire_text(&wire), "+PONG") == 0;
            wire_close(&wire);
        }
        cr_assert_not(let_in);
        wire_tls_forget(options.session);
    }
}
