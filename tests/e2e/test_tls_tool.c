/* The tool connects with TLS: fill, load, move. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "tmpdir.h"
#include "wire_tls.h"

static struct daemon the_daemon, the_other;

static void start(void)
{
    const char *const args[] = {"--threads", "1", NULL}; /* certificates of clients are required */
    daemon_prepare(&the_daemon);
    tls_make_files(the_daemon.dir);
    the_daemon.with_tls = true;
    daemon_start(&the_daemon, args);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
    daemon_discard(&the_other);
}

TestSuite(tls_tool, .init = start, .fini = discard, .timeout = 3000);

static char output[65536];

/* Runs `bloomery <format>` in the directory of the certificates. */
#define TOOL(code, text, format, ...)                                                                     \
    program_expect(output, sizeof(output), code, text, "cd '%s' && '%s' " format " 2>&1", the_daemon.dir, \
                   BLOOMERY_TOOL_PATH, __VA_ARGS__)
#define MINE "--cacert ca.crt --cert client.crt --key client.key"

CLIENT_TEST(the_daemon, tls_tool, fill)
{
    expect(client, "+OK", "ACL SETUSER writer on >secret ~f* +bf.reserve +bf.insert");
    file_write(tmp_path(the_daemon.dir, "items").text, "a\nb\nc\n", 6);
    TOOL(0, "rediss://localhost:", "fill rediss://writer:secret@localhost:%d f --new --from items " MINE,
         the_daemon.tls_port);
    TOOL(1, "the password is refused: WRONGPASS", "fill rediss://writer:wrong@localhost:%d f --new --from items " MINE,
         the_daemon.tls_port);
    TOOL(1, "cannot create 'other': NOPERM", "fill rediss://writer:secret@localhost:%d other --new --from items " MINE,
         the_daemon.tls_port);
    TOOL(1, "TLS: the certificate is not accepted: ", "fill rediss://localhost:%d f --from items", the_daemon.tls_port);
    TOOL(2, "--cacert needs TLS: rediss://", "fill redis://localhost:%d f --cacert ca.crt", the_daemon.port);
    expect(client, ":3", "BF.CARD f");
}

DAEMON_TEST(the_daemon, tls_tool, errors_of_tls_are_named)
{
    int port = the_daemon.tls_port;
    file_write(tmp_path(the_daemon.dir, "items").text, "a\n", 2);
    TOOL(1, "TLS: the certificate is not accepted: ", "fill rediss://localhost:%d f --from items", port);
    TOOL(1, "TLS: the other side requires a certificate, but we have presented none",
         "fill rediss://localhost:%d f --from items --insecure", port);
    TOOL(1, "TLS: the other side does not speak TLS", "fill rediss://localhost:%d f --from items --cacert ca.crt",
         the_daemon.port);
    TOOL(2, "--insecure needs TLS: rediss://", "fill redis://localhost:%d f --from items --insecure", port);
    TOOL(1, "CA certificates nothing: No such file or directory",
         "fill rediss://localhost:%d f --from items --cacert nothing", port);
    TOOL(1, "key server.key: is not the key of the certificate in client.crt",
         "fill rediss://localhost:%d f --from items --cacert ca.crt --cert client.crt --key server.key", port);
}

/* A filter is loaded by `load`, and moved with others to another daemon by `move`, both with TLS. */
CLIENT_TEST(the_daemon, tls_tool, load_and_move)
{
    daemon_prepare(&the_other);
    tls_make_files(the_other.dir);
    the_other.with_tls = true;
    daemon_start(&the_other, (const char *const[]){"--tls-auth-clients", "no", "--requirepass", "secret", NULL});
    file_write(tmp_path(the_daemon.dir, "items").text, "a\nb\nc\n", 6);
    TOOL(0, "", "build %s items --error 0.01 --capacity 1000", "built.db");
    TOOL(0, "rediss://localhost:", "load rediss://localhost:%d built built.db --variant na " MINE, the_daemon.tls_port);
    expect(client, ":1", "BF.EXISTS built b");
    for (int i = 0; i < 20; i++)
        expect(client, ":1", "BF.ADD small:%d x", i);
    expect(client, "+OK", "BF.RESERVE large 0.01 2000000"); /* 2.4 MB, in pieces */
    expect(client, ":1", "BF.ADD large x");
    TOOL(1, "TLS: the certificate is not accepted: ",
         "move --from rediss://localhost:%d --to rediss://:secret@localhost:%d --cacert ca.crt --cert client.crt --key "
         "client.key --retry 0",
         the_daemon.tls_port, the_other.tls_port); /* the other one has a separate CA */
    TOOL(0, "moved    22 filters",
         "move --from rediss://localhost:%d --to rediss://:secret@localhost:%d --insecure --cert client.crt --key "
         "client.key --verify",
         the_daemon.tls_port, the_other.tls_port);
    TOOL(2, "--cacert needs TLS: rediss://", "move --from redis://localhost:%d --to redis://x --cacert ca.crt",
         the_daemon.port);
    expect(client, "+OK", "SWAPDB 0 9");
    TOOL(0, "database 9\nmoved    22 filters",
         "move --from rediss://localhost:%d --to rediss://:secret@localhost:%d --insecure --cert client.crt --key "
         "client.key --all-databases",
         the_daemon.tls_port, the_other.tls_port);
    expect(client, "+OK", "SWAPDB 0 9");
    redisContext *other = client_open(the_other.port);
    expect(other, "+OK", "AUTH secret");
    expect(other, ":22", "DBSIZE");
    expect(other, ":1", "BF.EXISTS large x");
    daemon_deinit(&the_other);
}
