/* Data of other clients that a client may see: never a secret; and at the HTTP port the same as by commands. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "http.h"
#include "wire.h"

static struct daemon the_daemon;

static void begin(void)
{
    the_daemon.with_web = true;
    daemon_start(&the_daemon, (const char *const[]){"--threads", "2", NULL});
}

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(rights, .init = begin, .fini = discard, .timeout = 300);

/* ---- secrets ---- */

#define SECRET "s3cret"

/* Each has a secret; some are typical mistakes. */
static const char *const with_secrets[] = {
    "AUTH " SECRET,
    "auth default " SECRET,
    "AUTH default my " SECRET,
    "HELLO 2 AUTH default " SECRET " SETNAME me",
    "hello auth default " SECRET,
    "COMMAND GETKEYS HELLO 3 AUTH u " SECRET,
    "COMMAND GETKEYSANDFLAGS auth " SECRET,
    "ACL SETUSER alice on >" SECRET " ~a* +@all",
    "acl setuser alice <" SECRET,
    "ACL SETUSER alice #" SECRET,
    "ACL DRYRUN default AUTH " SECRET,
    "ACL DRYRUN default ACL SETUSER bob >" SECRET,
    "CONFIG SET masterauth " SECRET,
    "CONFIG SET requirepass my " SECRET,
    "CONFIG SET tls-key-file-pass " SECRET,
    "config set requirepass " SECRET,
};
#define WITH_SECRETS (sizeof(with_secrets) / sizeof(with_secrets[0]))

/* As a line, as an array, and in a transaction. */
static void send_all(struct wire *client)
{
    for (size_t i = 0; i < WITH_SECRETS; i++) {
        char text[512];
        snprintf(text, sizeof(text), "%s\r\n", with_secrets[i]);
        cr_assert(wire_send_text(client, text));
        (void)wire_text(client);
        (void)wire_ask(client, with_secrets[i]);
    }
    expect_ask(client, "MULTI", "+OK");
    for (size_t i = 0; i < WITH_SECRETS; i++)
        (void)wire_ask(client, with_secrets[i]);
    (void)wire_ask(client, "EXEC"); /* some may not be queued, so it is refused */
    expect_ask(client, "MULTI", "+OK");
    expect_ask(client, "AUTH default " SECRET, "+QUEUED");
    expect_ask(client, "CONFIG SET requirepass " SECRET, "+QUEUED");
    expect_ask(client, "EXEC", "[+OK,+OK]");
    expect_ask(client, "AUTH wrong " SECRET, "-WRONGPASS invalid username-password pair or user is disabled.");
    expect_ask(client, "ECHO last", "\"last\"");
}

/* Reads all lines up to the last command's; returns their number. */
static int expect_no_secret_in_lines(struct wire *monitor)
{
    int n = 0;
    for (const char *line = ""; !strstr(line, "\"ECHO\" \"last\""); n++) {
        line = wire_text(monitor);
        cr_assert_eq(line[0], '+', "%s", line);
        cr_assert_null(strstr(line, SECRET), "%s", line);
    }
    return n;
}

DAEMON_TEST(the_daemon, rights, no_secret_is_shown_to_anybody)
{
    struct http_reply page;
    struct wire monitor = wire_to(the_daemon.port), client = wire_to(the_daemon.port);
    expect_ask(&client, "BF.ADD f x", ":1");
    expect_ask(&client, "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 1000", "+OK");
    expect_ask(&monitor, "MONITOR", "+OK");
    send_all(&client);
    int shown = expect_no_secret_in_lines(&monitor);
    cr_assert_geq(shown, 2 * 7, "%d", shown); /* all except administration */
    http_get(the_daemon.web_port, "/api/slowlog", "Authorization: Basic OnMzY3JldA==\r\n", &page); /* :s3cret */
    cr_assert_eq(page.status, 200);
    cr_assert(strstr(page.body, "[\"AUTH\",\"(redacted)\",\"(redacted)\"]"), "%s", page.body);
    cr_assert_null(strstr(page.body, SECRET), "%s", page.body);
    http_free(&page);
    const char *text = wire_ask(&client, "SLOWLOG GET -1");
    cr_assert_null(strstr(text, SECRET), "%s", text);
    cr_assert(strstr(text, "[\"config\",\"set\",\"requirepass\",\"(redacted)\"]"), "%s", text);
    text = wire_ask(&client, "ACL LOG");
    cr_assert(strstr(text, "\"wrong\""), "%s", text);
    cr_assert_null(strstr(text, SECRET), "%s", text);
    cr_assert_null(strstr(wire_ask(&client, "CLIENT LIST"), SECRET));
    cr_assert_null(strstr(wire_ask(&client, "INFO everything"), SECRET));
    cr_assert_null(strstr(daemon_output(&the_daemon), SECRET));
}

/* ---- the HTTP port ---- */

/* A GET by a user whose password is "pw"; NULL: without a user. */
static int get_as(const char *user, const char *path, struct http_reply *reply)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char header[128] = "Authorization: Basic ", text[64];
    size_t at = strlen(header), len = (size_t)snprintf(text, sizeof(text), "%s:pw", user ? user : "");
    for (size_t i = 0; i < len; i += 3) {
        unsigned bits = (unsigned)text[i] << 16 | (i + 1 < len ? (unsigned)text[i + 1] << 8 : 0) |
                        (i + 2 < len ? (unsigned)text[i + 2] : 0);
        for (size_t j = 0; j < 4; j++)
            header[at++] = i + j <= len ? digits[bits >> (18 - 6 * j) & 63] : '=';
    }
    memcpy(header + at, "\r\n", 3);
    http_get(the_daemon.web_port, path, user ? header : "", reply);
    return reply->status;
}

#define expect_get(user, path, expected)                                                                 \
    do {                                                                                                 \
        struct http_reply http;                                                                          \
        int got = get_as(user, path, &http);                                                             \
        cr_expect_eq(got, expected, "%s gets %s: %d, %s", user ? user : "nobody", path, got, http.body); \
        http_free(&http);                                                                                \
    } while (0)

/* Whether the body has the text. */
static bool body_has(const char *user, const char *path, const char *text)
{
    struct http_reply reply;
    cr_assert_eq(get_as(user, path, &reply), 200, "%s: %s", path, reply.body);
    bool has = strstr(reply.body, text);
    http_free(&reply);
    return has;
}

static const char *const paths[] = {
    "/metrics", "/api/overview", "/api/filters", "/api/filter?key=61", "/api/slowlog", "/api/clients", "/", "/page.js"};
#define PATHS (sizeof(paths) / sizeof(paths[0]))

/* Each path is for the users who may run the commands that show the same data. */
CLIENT_TEST(the_daemon, rights, a_path_needs_the_rights_of_its_command)
{
    static const struct {
        const char *user, *rules;
        int status[PATHS];
    } cases[] = {
        {"all", "~* &* +@all", {200, 200, 200, 200, 200, 200, 200, 200}},
        {"info", "~* +info", {200, 200, 403, 403, 403, 403, 200, 200}},
        {"slow", "~* +slowlog|get +info", {200, 200, 403, 403, 200, 403, 200, 200}},
        {"slow2", "~* +slowlog", {401, 401, 403, 403, 200, 403, 401, 401}},
        {"client", "~* +info +client|list", {200, 200, 403, 403, 403, 200, 200, 200}},
        {"client2", "~* +info +client -client|list", {200, 200, 403, 403, 403, 403, 200, 200}},
        {"scan", "~* +info +scan", {200, 200, 403, 403, 403, 403, 200, 200}},
        {"filter", "~* +info +bf.info", {200, 200, 403, 200, 403, 403, 200, 200}},
        {"filter2", "~b +info +bf.info", {200, 200, 403, 403, 403, 403, 200, 200}},
        {"filter3", "~* +info (~b +bf.info)", {200, 200, 403, 403, 403, 403, 200, 200}},
        {"filter4", "+info (%%R~a* +bf.info)", {200, 200, 403, 200, 403, 403, 200, 200}},
        {"filter5", "%%W~* +info +bf.info", {200, 200, 403, 403, 403, 403, 200, 200}},
        {"table", "+info +bf.info +scan", {200, 200, 200, 403, 403, 403, 200, 200}},
        {"none", "~* +@all -info -slowlog -client -bf.info", {401, 401, 403, 403, 403, 403, 401, 401}},
    };
    struct http_reply reply;
    expect(client, ":1", "BF.ADD a x");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char command[200];
        snprintf(command, sizeof(command), "ACL SETUSER %s on >pw %s", cases[i].user, cases[i].rules);
        cr_assert_str_eq(client_ask(client, command), "+OK", "%s", command);
        for (size_t j = 0; j < PATHS; j++)
            expect_get(cases[i].user, paths[j], cases[i].status[j]);
        expect_get(cases[i].user, "/healthz", 200);
    }
    (void)get_as("info", "/api/slowlog", &reply);
    cr_expect(strstr(reply.body, "'slowlog|get'"), "%s", reply.body);
    cr_expect_null(strstr(reply.headers, "WWW-Authenticate"), "%s", reply.headers);
    http_free(&reply);

    /* A program that copies a filter learns the right that its user lacks, not that its password is wrong. */
    (void)get_as("none", "/filters/a", &reply);
    cr_expect_eq(reply.status, 200);
    http_free(&reply);
    expect(client, "+OK", "ACL SETUSER none -bf.scandump");
    (void)get_as("none", "/filters/a", &reply);
    cr_expect_eq(reply.status, 403);
    cr_expect(strstr(reply.body, "'bf.scandump'"), "%s", reply.body);
    http_free(&reply);
    expect(client, "+OK", "ACL SETUSER none resetpass >other");
    (void)get_as("none", "/filters/a", &reply);
    cr_expect_eq(reply.status, 401);
    cr_expect(strstr(reply.body, "with the right to run 'bf.scandump'"), "%s", reply.body);
    http_free(&reply);

    /* The same for default, which needs no password. */
    expect(client, "+OK", "ACL SETUSER default -slowlog -client|list");
    expect_get(NULL, "/metrics", 200);
    expect_get(NULL, "/api/slowlog", 403);
    expect_get(NULL, "/api/clients", 403);
    expect_get("slow2", "/api/slowlog", 200);
}

/* Names that a user may not read are in no answer, and in no count. */
CLIENT_TEST(the_daemon, rights, names_are_shown_to_those_who_may_read_them)
{
    expect(client, "+OK", "CONFIG SET metrics-filters *");
    expect(client, ":1", "BF.ADD app:1 x");
    expect(client, ":1", "BF.ADD app:2 x");
    expect(client, ":1", "BF.ADD hidden x");
    expect(client, "+OK", "SELECT 3");
    expect(client, ":1", "BF.ADD app:3 x");
    expect(client, ":1", "BF.ADD hidden:3 x");
    expect(client, "+OK", "ACL SETUSER app on >pw %%R~app:* +info +bf.info +scan");
    expect(client, "+OK", "ACL SETUSER names on >pw %%R~app:* +info");
    expect(client, "+OK", "ACL SETUSER all on >pw ~* +@all");
    cr_expect(body_has("all", "/api/filters", "\"total\":5,\"matched\":5,"));
    cr_expect(body_has("all", "/api/filters?q=hid", "\"total\":5,\"matched\":2,"));
    cr_expect(body_has("all", "/metrics", "{db=\"0\",filter=\"hidden\"}"));
    cr_expect(body_has("app", "/api/filters", "\"total\":3,\"matched\":3,"));
    cr_expect(body_has("app", "/api/filters", "\"name\":\"app:3\""));
    cr_expect_not(body_has("app", "/api/filters", "hidden"));
    cr_expect(body_has("app", "/api/filters?q=hid", "\"total\":3,\"matched\":0,"));
    cr_expect(body_has("app", "/api/filters?sort=items&order=desc", "\"total\":3,\"matched\":3,"));
    expect_get("app", "/api/filter?key=6170703a31", 200);     /* app:1 */
    expect_get("app", "/api/filter?key=68696464656e", 403);   /* hidden */
    expect_get("app", "/api/filter?key=68696464656e6e", 403); /* of no filter */
    for (int i = 0; i < 2; i++) { /* the choice of filters is the same for all users, the shown part is not */
        cr_expect(body_has("all", "/metrics", "{db=\"0\",filter=\"hidden\"}"));
        cr_expect(body_has("all", "/metrics", "\nbloomery_filters_shown 5\n"));
        cr_expect(body_has("names", "/metrics", "{db=\"0\",filter=\"app:1\"}"));
        cr_expect(body_has("names", "/metrics", "\nbloomery_filters_shown 3\n"));
        cr_expect_not(body_has("names", "/metrics", "hidden"));
    }
    expect(client, "+OK", "ACL SETUSER names resetkeys");
    cr_expect_not(body_has("names", "/metrics", "filter=\""));
}

/* In protected mode the whole Host name must be an address or localhost. */
DAEMON_TEST(the_daemon, rights, protected_mode_reads_the_host_strictly)
{
    static const char *const own[] = {"localhost",  "LOCALHOST:9379",     "127.0.0.1", "127.0.0.1:80", "[::1]",
                                      "[::1]:9379", "[::ffff:127.0.0.1]", "10.1.2.3",  "[fe80::1]:1",  "localhost:"};
    static const char *const others[] = {"[evil.com]",
                                         "[evil.com]:9379",
                                         "[::1].evil.com",
                                         "[::1]evil.com:80",
                                         "[::1",
                                         "[]",
                                         "::1",
                                         "[127.0.0.1]",
                                         "127.0.0.1.evil",
                                         "127.0.0.1:80.evil",
                                         "127.0.0.1.",
                                         "1.2.3.4.5",
                                         "1.2.3",
                                         "0x7f000001",
                                         ":80",
                                         "localhost.evil",
                                         "localhost:80:evil",
                                         "localhostx",
                                         "[localhost]",
                                         "[::1]:evil",
                                         "...",
                                         "[::1%lo]"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]) + sizeof(others) / sizeof(others[0]); i++) {
        size_t nown = sizeof(own) / sizeof(own[0]);
        const char *host = i < nown ? own[i] : others[i - nown];
        char request[200];
        struct http_reply reply;
        int len = snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", host);
        http_ask(the_daemon.web_port, request, (size_t)len, &reply);
        cr_expect_eq(reply.status, i < nown ? 200 : 403, "%s: %d", host, reply.status);
        http_free(&reply);
    }
}

/* ---- removed rights ---- */

/* After the reply, the clients that lose by it are in no list any more, on any thread. */
CLIENT_TEST(the_daemon, rights, losers_are_gone_with_the_reply)
{
    for (int round = 0; round < 300; round++) {
        bool delete = round % 2 == 1;
        struct wire loser;
        expect(client, "+OK", "ACL SETUSER loser on nopass +@all resetchannels &news");
        wire_open(&loser, the_daemon.port);
        expect_ask(&loser, "AUTH loser any", "+OK");
        expect_ask(&loser, "CLIENT SETNAME deathrow", "+OK");
        if (!delete)
            expect_ask(&loser, "SUBSCRIBE news", "[\"subscribe\",\"news\",:1]");
        expect(client, delete ? ":1" : "+OK", delete ? "ACL DELUSER loser" : "ACL SETUSER loser resetchannels");
        cr_assert_null(strstr(client_ask(client, "CLIENT LIST"), "deathrow"), "round %d", round);
        expect(client, "[\"news\",:0]", "PUBSUB NUMSUB news");
        wire_close(&loser);
    }
}
