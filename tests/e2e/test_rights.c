/* Data of other clients that a client may see: never a secret; and at the HTTP port the same as by commands. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "http.h"
#include "wait.h"
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

TestSuite(rights, .init = begin, .fini = discard, .timeout = 3000);

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
    cr_assert(strstr(page.body, "\r\nAUTH\r\n$10\r\n(redacted)\r\n$10\r\n(redacted)\r\n"), "%s", page.body);
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

static bool process_shows(const char *file, const char *text)
{
    char path[64], bytes[8192];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)the_daemon.pid, file);
    FILE *in = fopen(path, "r");
    cr_assert_not_null(in);
    size_t len = fread(bytes, 1, sizeof(bytes), in);
    fclose(in);
    return memmem(bytes, len, text, strlen(text));
}

DAEMON_TEST(the_daemon, rights, passwords_among_the_arguments_and_settings_are_hidden)
{
    daemon_stop(&the_daemon);
    daemon_start(&the_daemon, (const char *const[]){"--requirepass", SECRET, "--tls-key-file-pass=" SECRET, "--user",
                                                    "alice", "on", ">" SECRET "2", "--threads", "2", NULL});
    cr_expect(process_shows("cmdline", "requirepass"));
    cr_expect(process_shows("cmdline", "--threads"));
    cr_expect_not(process_shows("cmdline", SECRET));
    struct wire wire = wire_to(the_daemon.port);
    expect_ask(&wire, "AUTH " SECRET, "+OK");
    expect_ask(&wire, "CONFIG GET requirepass", "[\"requirepass\",\"(redacted)\"]");
    expect_ask(&wire, "CONFIG GET tls-key-file-pass", "[\"tls-key-file-pass\",\"(redacted)\"]");
    cr_expect_null(strstr(wire_ask(&wire, "CONFIG GET *"), SECRET));
    expect_ask(&wire, "AUTH alice " SECRET "2", "+OK");
    wire_close(&wire);
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

#define expect_get(user, path, expected)                                                               \
    do {                                                                                               \
        struct http_reply http;                                                                        \
        const char *who = (user);                                                                      \
        int got = get_as(who, path, &http);                                                            \
        cr_expect_eq(got, expected, "%s gets %s: %d, %s", who ? who : "nobody", path, got, http.body); \
        http_free(&http);                                                                              \
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
    expect(client, "+OK", "ACL SETUSER app on >pw %%R~app:* +info +bf.info +scan +select|3");
    expect(client, "+OK", "ACL SETUSER names on >pw %%R~app:* +info +select");
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

/* A database that a user may not SELECT is closed to him by HTTP, too; 0 is open, because connections begin there. */
CLIENT_TEST(the_daemon, rights, databases_need_the_right_to_select_them)
{
    static const char *const closed[] = {"/filters/one?db=1", "/api/filter?key="};
    char key[64] = "";
    struct http_reply reply;
    expect(client, "+OK", "CONFIG SET metrics-filters *");
    expect(client, ":1", "BF.ADD zero x");
    expect(client, "+OK", "SELECT 1");
    expect(client, ":1", "BF.ADD one x");
    expect(client, "+OK", "ACL SETUSER all on >pw ~* +@all");
    expect(client, "+OK", "ACL SETUSER zero on >pw ~* +@all -select +select|0");
    expect(client, "+OK", "ACL SETUSER one on >pw ~* +@all -select +select|1");
    (void)get_as("all", "/api/filters?q=one", &reply);
    const char *at = strstr(reply.body, "\"key\":\"");
    cr_assert(at && sscanf(at, "\"key\":\"%63[0-9a-f]", key) == 1, "%s", reply.body);
    http_free(&reply);
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s%s", closed[i], i == 1 ? key : "");
        expect_get("all", path, 200);
        expect_get("one", path, 200);
        expect_get("zero", path, 403);
    }
    expect_get("zero", "/filters/zero", 200);
    expect_get("one", "/filters/zero", 200);
    cr_expect(body_has("one", "/metrics", "filter=\"one\""));
    cr_expect_not(body_has("zero", "/metrics", "filter=\"one\""));
    cr_expect(body_has("zero", "/api/filters", "\"total\":1,\"matched\":1,"));
    struct wire wire = wire_to(the_daemon.port);
    expect_ask(&wire, "AUTH zero pw", "+OK");
    expect_ask(&wire, "COPY zero copy DB 1",
               "-NOPERM this user has no permissions to access one of the keys used as arguments");
    expect_ask(&wire, "COPY zero copy DB 0", ":1");
    expect_ask(&wire, "AUTH one pw", "+OK");
    expect_ask(&wire, "COPY zero copy DB 1", ":1");
    wire_close(&wire);
}

/* Neither the status nor a comparison tells which names of users there are. */
CLIENT_TEST(the_daemon, rights, names_of_users_do_not_show_by_http)
{
    expect(client, "+OK", "ACL SETUSER known on >another ~* +@all");
    expect(client, "+OK", "ACL SETUSER default -@all +ping +acl");
    expect_get("known", "/metrics", 401);
    expect_get("unknown", "/metrics", 401);
    expect_get("known", "/api/slowlog", 401);
    expect_get("unknown", "/api/slowlog", 401);
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

/* ---- deleted users ---- */

enum { VICTIMS = 12 };

/* Connections of the user `du`, who may do little. */
static void log_in_victims(struct wire victims[VICTIMS])
{
    for (int i = 0; i < VICTIMS; i++) {
        victims[i] = wire_to(the_daemon.port);
        expect_ask(&victims[i], "AUTH du old", "+OK");
        expect_ask(&victims[i], "PING", "+PONG");
    }
}

static void expect_closed(struct wire victims[VICTIMS])
{
    for (int i = 0; i < VICTIMS; i++) {
        cr_expect_str_eq(wire_ask(&victims[i], "BF.ADD f x"), "(closed)");
        wire_close(&victims[i]);
    }
}

static void *set_user_again(void *wire)
{
    expect_ask((struct wire *)wire, "ACL SETUSER du on >new +@all ~*", "+OK");
    return NULL;
}

DAEMON_TEST(the_daemon, rights, a_deleted_user_is_dead_for_ever)
{
    struct wire victims[VICTIMS];
    redisContext *admin = client_open(the_daemon.port);
    struct wire other = wire_to(the_daemon.port);
    expect(admin, "+OK", "ACL SETUSER du on >old -@all +ping");
    log_in_victims(victims);
    expect(admin, "+OK", "MULTI");
    expect(admin, "+QUEUED", "ACL DELUSER du");
    expect(admin, "+QUEUED", "ACL SETUSER du reset on >new +@all ~*");
    expect(admin, "[:1,+OK]", "EXEC");
    expect_closed(victims);
    for (int round = 0; round < 30; round++) { /* two administrators, in either order */
        pthread_t second;
        expect(admin, "+OK", "ACL SETUSER du reset on >old -@all +ping");
        log_in_victims(victims);
        cr_assert_eq(pthread_create(&second, NULL, set_user_again, &other), 0);
        expect(admin, ":1", "ACL DELUSER du");
        pthread_join(second, NULL);
        expect_closed(victims);
    }
    expect(admin, ":0", "EXISTS f");
}

/* Adds many items at a time until a command is refused. */
static void *insert_until_refused(void *arg)
{
    struct wire *wire = arg;
    for (int first = 0;; first += 100) {
        char text[4096];
        int len = snprintf(text, sizeof(text), "BF.INSERT f ITEMS");
        for (int i = first; i < first + 100; i++)
            len += snprintf(text + len, sizeof(text) - (size_t)len, " %p:%d", arg, i);
        if (!wire_send_text(wire, text) || !wire_send_text(wire, "\r\n") || wire_text(wire)[0] != '[')
            return NULL;
    }
}

DAEMON_TEST(the_daemon, rights, after_exec_nobody_uses_rights_that_it_took_away)
{
    enum { WRITERS = 6 };
    redisContext *admin = client_open(the_daemon.port);
    for (int round = 0; round < 10; round++) {
        struct wire wires[WRITERS];
        pthread_t threads[WRITERS];
        char card[32];
        expect(admin, "+OK", "BF.RESERVE f 0.01 10000000");
        expect(admin, "+OK", "ACL SETUSER u reset on nopass ~* +@all");
        for (int i = 0; i < WRITERS; i++) {
            wires[i] = wire_to(the_daemon.port);
            expect_ask(&wires[i], "AUTH u x", "+OK");
            cr_assert_eq(pthread_create(&threads[i], NULL, insert_until_refused, &wires[i]), 0);
        }
        wait_until(strcmp(client_ask(admin, "BF.CARD f"), ":0") != 0);
        expect(admin, "+OK", "MULTI");
        expect(admin, "+QUEUED", "ACL SETUSER u -@all");
        expect(admin, "[+OK]", "EXEC");
        snprintf(card, sizeof(card), "%s", client_ask(admin, "BF.CARD f"));
        for (int i = 0; i < WRITERS; i++) {
            pthread_join(threads[i], NULL);
            wire_close(&wires[i]);
        }
        cr_expect_str_eq(client_ask(admin, "BF.CARD f"), card);
        expect(admin, ":1", "DEL f");
    }
}

DAEMON_TEST(the_daemon, rights, waiting_connections_of_a_deleted_user_are_closed)
{
    static const char *const waits[] = {"WAIT 1 0", "WAITAOF 0 1 0", "DEBUG SLEEP 1000", "BF.RESERVE f 0.01 10"};
    enum { WAITS = sizeof(waits) / sizeof(waits[0]) };
    struct wire waiting[WAITS];
    daemon_stop(&the_daemon);
    daemon_start(&the_daemon, (const char *const[]){"--threads", "2", "--enable-debug-command", "yes", NULL});
    redisContext *admin = client_open(the_daemon.port);
    expect(admin, "+OK", "ACL SETUSER du on >old +@all ~*");
    wait_until(client_info(admin, "clients", "connected_clients") == 1); /* the start had used another connection */
    expect(admin, "+OK", "CLIENT PAUSE 100000 WRITE");                   /* for the last one */
    for (int i = 0; i < WAITS; i++) {
        waiting[i] = wire_to(the_daemon.port);
        expect_ask(&waiting[i], "AUTH du old", "+OK");
        cr_assert(wire_send_text(&waiting[i], waits[i]) && wire_send_text(&waiting[i], "\r\n"));
    }
    wait_until(strstr(client_ask(admin, "INFO clients"), "blocked_clients:4"));
    expect(admin, ":1", "ACL DELUSER du");
    for (int i = 0; i < WAITS; i++) {
        cr_expect_str_eq(wire_text(&waiting[i]), "(closed)", "%s", waits[i]);
        wire_close(&waiting[i]);
    }
    cr_expect_eq(client_info(admin, "clients", "connected_clients"), 1);
}
