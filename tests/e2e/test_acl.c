/* Users in the daemon: files, settings, the pipeline, other threads, the status page. tests/clients/acl_server.py
 * compares the meaning of rules with redis-server. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "http.h"
#include "tmpdir.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE_IDLE(the_daemon, acl);

/* ---- the file of users ---- */

static char acl_path[400];

static void start_with_file(const char *text)
{
    daemon_prepare(&the_daemon);
    snprintf(acl_path, sizeof(acl_path), "%s/users.acl", the_daemon.dir);
    file_write_text(acl_path, text);
    daemon_start(&the_daemon, (const char *const[]){"--aclfile", acl_path, "--requirepass", "top", NULL});
}

/* After ACL SAVE: no password in plain text, the mode of the previous file, and no other file next to it. */
static void expect_saved(void)
{
    const char *text = file_text(acl_path);
    cr_expect_not_null(strstr(text, "user alice on #"), "%s", text);
    cr_expect_not_null(strstr(text, "user zoe on #"), "%s", text);
    cr_expect_not_null(strstr(text, "(%R~q* resetchannels -@all +bf.info)"), "%s", text);
    cr_expect_null(strstr(text, "secret"), "%s", text);
    cr_expect_null(strstr(text, "eve"), "%s", text);
    struct stat st;
    cr_assert_eq(stat(acl_path, &st), 0);
    cr_expect_eq(st.st_mode & 0777, 0640);
    DIR *dir = opendir(the_daemon.dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        cr_expect_null(strstr(entry->d_name, ".tmp"), "%s", entry->d_name);
    closedir(dir);
}

/* LOAD takes a whole file or nothing, and names the wrong lines. SAVE writes a file that LOAD can read and that
 * replaces the old one. */
DAEMON_TEST(the_daemon, acl, the_file_is_read_and_written)
{
    start_with_file("user alice on >pw ~a* +@all\nuser bob on nopass +ping\n");
    redisContext *admin = client_open(the_daemon.port), *alice = client_open(the_daemon.port);
    redisContext *bob = client_open(the_daemon.port);
    expect(admin, "-NOAUTH Authentication required.", "PING"); /* the file has no default: it has this password */
    expect(admin, "+OK", "AUTH top");
    expect(admin, "[\"alice\",\"bob\",\"default\"]", "ACL USERS");
    expect(alice, "+OK", "AUTH alice pw");
    expect(bob, "+OK", "AUTH bob x");

    file_write_text(acl_path, "user alice on >pw ~a* +@all\nuser bob on nopass +nosuch\nuser eve on\nmischief\n");
    const char *text = client_ask(admin, "ACL LOAD");
    cr_expect_eq(strncmp(text, "-ERR ", 5), 0, "%s", text);
    cr_expect_not_null(strstr(text, "users.acl:2: Error in applying operation '+nosuch'"), "%s", text);
    cr_expect_not_null(strstr(text, "users.acl:4 should start with user keyword"), "%s", text);
    cr_expect_not_null(strstr(text, "no change to the previously active ACL rules was performed"), "%s", text);
    expect(admin, "[\"alice\",\"bob\",\"default\"]", "ACL USERS");
    expect(bob, "+PONG", "PING");

    /* alice and her connection stay as they are; bob and his connection are gone. */
    file_write_text(acl_path, "user alice on >pw ~a* +@all\nuser eve on >pw +@read ~e*\n");
    expect(admin, "+OK", "ACL LOAD");
    expect(admin, "[\"alice\",\"default\",\"eve\"]", "ACL USERS");
    expect(alice, "+PONG", "PING");
    text = client_ask(bob, "PING");
    cr_expect_eq(text[0], '(', "%s", text);

    expect(admin, "+OK", "ACL SETUSER zoe on >secret ~z* &z* (%%R~q* +bf.info)");
    expect(admin, ":1", "ACL DELUSER eve");
    cr_assert_eq(chmod(acl_path, 0640), 0);
    expect(admin, "+OK", "ACL SAVE");
    expect_saved();
    char *before = strdup(client_ask(admin, "ACL LIST"));
    expect(admin, "+OK", "ACL LOAD");
    expect(admin, before, "ACL LIST");
    admin = client_after_stop(admin, &the_daemon, NULL);
    expect(admin, "+OK", "AUTH top");
    expect(admin, before, "ACL LIST");
    expect(admin, "+OK", "MULTI");
    expect(admin,
           "-ERR 'acl|load' may take long, and all clients wait while a transaction runs: send it outside of MULTI",
           "ACL LOAD");
    free(before);
}

/* A start with wrong users fails and prints the reason. */
Test(acl, wrong_users_stop_the_start)
{
    char dir[] = "/tmp/bloomery-acl-XXXXXX", path[64], data[64];
    const char *output;
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/users", dir);
    snprintf(data, sizeof(data), "%s/data", dir);
    const char *with_file[] = {"--port", "0", "--unixsocket", "x", "--dir", data, "--aclfile", path, NULL};
    cr_expect_eq(daemon_run(with_file, NULL, &output), DAEMON_MISCONFIGURED);
    cr_expect_not_null(strstr(output, "cannot open"), "%s", output);
    file_write_text(path, "user bob on\nuser alice +nosuch\n");
    cr_expect_eq(daemon_run(with_file, NULL, &output), DAEMON_MISCONFIGURED);
    cr_expect_not_null(strstr(output, "users:2: Error in applying operation '+nosuch'"), "%s", output);
    const char *both[] = {"--port",    "0",  "--unixsocket", "x",   "--dir", data,
                          "--aclfile", path, "--user",       "bob", "on",    NULL};
    cr_expect_eq(daemon_run(both, NULL, &output), DAEMON_MISCONFIGURED);
    cr_expect_not_null(strstr(output, "keep all users in one place"), "%s", output);
    const char *rule[] = {"--port", "0", "--unixsocket", "x", "--dir", data, "--user", "bob", "on", "<hidden", NULL};
    cr_expect_eq(daemon_run(rule, NULL, &output), DAEMON_MISCONFIGURED);
    cr_expect_not_null(strstr(output, "user 'bob': Error in applying operation '<': The password"), "%s", output);
    cr_expect_null(strstr(output, "hidden"), "%s", output);
    const char *quoted[] = {"--port", "0", "--unixsocket", "x", "--dir", data, "--user", "bob on >hidden", NULL};
    cr_expect_eq(daemon_run(quoted, NULL, &output), DAEMON_MISCONFIGURED);
    cr_expect(strstr(output, "user: a name has no spaces") && !strstr(output, "hidden"), "%s", output);
    unlink(path);
    rmdir(data);
    rmdir(dir);
}

/* Lines of the configuration file, and CONFIG REWRITE. */
DAEMON_TEST(the_daemon, acl, the_configuration_file_has_users)
{
    daemon_prepare(&the_daemon);
    snprintf(the_daemon.file, sizeof(the_daemon.file), "%s/the.conf", the_daemon.dir);
    file_write_text(the_daemon.file, "# mine\nuser alice on \">pass word\" ~a* +@all\nuser bob off\ntimeout 0\n");
    redisContext *admin = client_start(&the_daemon, NULL);
    expect(admin, "+OK", "AUTH alice %s", "pass word");
    expect(admin, "+OK", "AUTH default x");
    expect(admin, "[]", "CONFIG GET user");
    expect(admin, "+OK", "ACL SETUSER carol on >pw (%%R~c* +@read)");
    expect(admin, ":1", "ACL DELUSER bob");
    expect(admin, "+OK", "CONFIG REWRITE");
    const char *text = file_text(the_daemon.file);
    cr_expect_not_null(strstr(text, "# mine\n"), "%s", text);
    cr_expect_not_null(strstr(text, "user carol on"), "%s", text);
    cr_expect_null(strstr(text, "bob"), "%s", text);
    cr_expect_null(strstr(text, "pass word"), "%s", text);
    cr_expect_null(strstr(text, "user default"), "%s", text);
    char *before = strdup(client_ask(admin, "ACL LIST"));
    admin = client_after_stop(admin, &the_daemon, NULL);
    expect(admin, before, "ACL LIST");
    expect(admin, "+OK", "ACL SETUSER default >top");
    expect(admin, "+OK", "CONFIG REWRITE");
    cr_expect_not_null(strstr(file_text(the_daemon.file), "user default on"));
    free(before);
}

/* ---- the pipeline ---- */

static void append_pipeline(redisContext *client, const char *command, const char *filter, int n)
{
    for (int i = 0; i < n; i++)
        redisAppendCommand(client, "%s %s item%d", command, filter, i);
}

static void expect_all(redisContext *client, int n, const char *expected)
{
    for (int i = 0; i < n; i++) {
        const char *text = client_reply(client);
        cr_assert_str_eq(text, expected, "reply %d: %s", i, text);
    }
}

#define NO_KEY "-NOPERM this user has no permissions to access one of the keys used as arguments"

/* Pipelines are recognised by their bytes, also those of other clients: each is answered by its own client's rights. */
DAEMON_TEST(the_daemon, acl, pipelines_are_checked)
{
    daemon_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    redisContext *admin = client_open(the_daemon.port), *bob = client_open(the_daemon.port);
    expect(admin, "+OK", "ACL SETUSER bob on nopass %%R~r* ~b* +bf.exists +bf.add +multi +exec");
    expect(bob, "+OK", "AUTH bob x");
    for (int round = 0; round < 3; round++) {
        append_pipeline(admin, "BF.EXISTS", "secret", 100);
        append_pipeline(bob, "BF.EXISTS", "secret", 100);
        append_pipeline(bob, "BF.EXISTS", "r1", 100);
        append_pipeline(bob, "BF.ADD", "r1", 40);
        append_pipeline(bob, "BF.EXISTS", "b1", 3);
        append_pipeline(bob, "BF.EXISTS", "secret", 40);
        expect_all(admin, 100, ":0");
        expect_all(bob, 100, NO_KEY);
        expect_all(bob, 100, ":0");
        expect_all(bob, 40, NO_KEY);
        expect_all(bob, 3, ":0");
        expect_all(bob, 40, NO_KEY);
    }
    append_pipeline(bob, "BF.ADD", "b1", 50);
    expect_all(bob, 50, ":1");
    /* A removed right is missing from the next command on, also in the user's own pipeline. */
    expect(admin, "+OK", "ACL SETUSER bob +acl resetkeys ~b*");
    append_pipeline(bob, "BF.EXISTS", "b1", 20);
    redisAppendCommand(bob, "ACL SETUSER bob resetkeys ~q*");
    append_pipeline(bob, "BF.EXISTS", "b1", 20);
    expect_all(bob, 20, ":1");
    expect_all(bob, 1, "+OK");
    expect_all(bob, 20, NO_KEY);
    expect(admin, "+OK", "ACL SETUSER bob ~b*");
    append_pipeline(bob, "BF.EXISTS", "b1", 20);
    expect_all(bob, 20, ":1");
    expect(bob, "+OK", "MULTI");
    expect(bob, "+QUEUED", "BF.EXISTS b1 item1");
    expect(bob, "+QUEUED", "BF.EXISTS q1 item1");
    expect(admin, "+OK", "ACL SETUSER bob resetkeys ~q*");
    const char *text = client_ask(bob, "EXEC");
    cr_expect_eq(strncmp(text, "[-NOPERM ACLs rules changed", 27), 0, "%s", text);
    cr_expect_str_eq(text + strlen(text) - 4, ",:0]", "%s", text);
}

/* Rights apply to names as the client gives them, in every database. */
DAEMON_TEST(the_daemon, acl, names_are_the_same_in_all_databases)
{
    redisContext *client = client_start(&the_daemon, NULL);
    expect(client, "+OK", "ACL SETUSER bob on nopass ~b* +@all -select +select|3");
    expect(client, "+OK", "AUTH bob x");
    expect(client, "-NOPERM this user has no permissions to run the 'select' command", "SELECT 1");
    expect(client, "+OK", "SELECT 3");
    append_pipeline(client, "BF.ADD", "b1", 50);
    expect_all(client, 50, ":1");
    append_pipeline(client, "BF.ADD", "c1", 50);
    expect_all(client, 50, NO_KEY);
    expect(client, NO_KEY, "DEL b1 c1");
    expect(client, ":1", "DEL b1");
}

/* ---- threads ---- */

struct asker {
    int id;
    atomic_bool *stop;
    atomic_ulong *answers; /* of all threads */
    unsigned long allowed, refused, closed;
};

/* Pipelines of a user who is changed and deleted meanwhile: each reply is an answer or a refusal. */
static void *ask(void *arg)
{
    struct asker *asker = arg;
    while (!atomic_load(asker->stop)) {
        struct wire wire = wire_to(the_daemon.port);
        char command[64];
        snprintf(command, sizeof(command), "AUTH user%d x", asker->id % 2);
        bool open = strcmp(wire_ask(&wire, command), "(closed)") != 0;
        for (int i = 0; i < 50 && open && !atomic_load(asker->stop); i++) {
            open = wire_send_text(&wire,
                                  "BF.ADD f 1\r\nBF.EXISTS f 1\r\nBF.EXISTS f 2\r\nSUBSCRIBE c\r\nUNSUBSCRIBE c\r\n");
            for (int j = 0; j < 5 && open; j++) {
                const char *text = wire_text(&wire);
                open = strcmp(text, "(closed)") != 0;
                atomic_fetch_add(asker->answers, open);
                asker->allowed += text[0] == ':' || text[0] == '[';
                asker->refused += text[0] == '-';
            }
        }
        asker->closed += !open;
        wire_close(&wire);
    }
    return NULL;
}

DAEMON_TEST(the_daemon, acl, users_change_while_others_ask)
{
    enum { ASKERS = 4, CHANGES = 300 };
    struct asker askers[ASKERS];
    pthread_t threads[ASKERS];
    atomic_bool stop = false;
    atomic_ulong answers = 0;
    redisContext *admin = client_start(&the_daemon, (const char *const[]){"--threads", "2", NULL});
    for (int i = 0; i < 2; i++)
        expect(admin, "+OK", "ACL SETUSER user%d on nopass ~* &* +@all", i);
    for (int i = 0; i < ASKERS; i++) {
        askers[i] = (struct asker){.id = i, .stop = &stop, .answers = &answers};
        cr_assert_eq(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    wait_until(atomic_load(&answers) > 0);
    static const char *const changes[] = {"-bf.add",     "resetkeys",    "~f",    "~* +@all", "resetchannels",
                                          "allchannels", "-@all +@read", "+@all", "off",      "on nopass"};
    for (int i = 0; i < CHANGES; i++) {
        int user = i % 2;
        if (i % 50 == 49) {
            expect(admin, ":1", "ACL DELUSER user%d", user);
            expect(admin, "+OK", "ACL SETUSER user%d on nopass ~* &* +@all", user);
        } else {
            char command[128];
            snprintf(command, sizeof(command), "ACL SETUSER user%d resetkeys %s", user, changes[i % 10]);
            cr_assert_str_eq(client_ask(admin, command), "+OK", "%s", command);
        }
        if (i % 20 == 0) {
            cr_assert_eq(client_ask(admin, "CLIENT LIST")[0], '"');
            cr_assert_eq(client_ask(admin, "ACL LOG")[0], '[');
        }
    }
    atomic_store(&stop, true);
    unsigned long allowed = 0, refused = 0;
    for (int i = 0; i < ASKERS; i++) {
        pthread_join(threads[i], NULL);
        allowed += askers[i].allowed;
        refused += askers[i].refused;
    }
    cr_expect_gt(allowed + refused, 0);
    expect(admin, "+PONG", "PING");
}

/* ---- the status page, and secrets ---- */

static int status_of(const char *credentials)
{
    struct http_reply reply;
    char header[256] = "";
    if (credentials)
        snprintf(header, sizeof(header), "Authorization: Basic %s\r\n", credentials);
    http_get(the_daemon.web_port, "/metrics", header, &reply);
    int status = reply.status;
    http_free(&reply);
    return status;
}

/* Base64 of "name:password". */
#define ANY_TOP     "YW55OnRvcA=="
#define DEFAULT_TOP "ZGVmYXVsdDp0b3A="
#define ANY_WRONG   "YW55Ondyb25n"
#define WATCH_PW    "d2F0Y2g6cHc="
#define WATCH_TOP   "d2F0Y2g6dG9w"
#define CRAWL_PW    "Y3Jhd2w6cHc="

DAEMON_TEST(the_daemon, acl, pages_are_for_users_who_may_ask_for_info)
{
    the_daemon.with_web = true;
    redisContext *admin = client_start(&the_daemon, (const char *const[]){"--requirepass", "top", NULL});
    expect(admin, "+OK", "AUTH top");
    expect(admin, "+OK", "ACL SETUSER watch on >pw +info");
    expect(admin, "+OK", "ACL SETUSER crawl on >pw +@read ~*");
    cr_expect_eq(status_of(NULL), 401);
    cr_expect_eq(status_of(ANY_TOP), 200);
    cr_expect_eq(status_of(DEFAULT_TOP), 200);
    cr_expect_eq(status_of(ANY_WRONG), 401);
    cr_expect_eq(status_of(WATCH_PW), 200);
    cr_expect_eq(status_of(WATCH_TOP), 401);
    cr_expect_eq(status_of(CRAWL_PW), 401);
    expect(admin, "+OK", "ACL SETUSER watch off");
    cr_expect_eq(status_of(WATCH_PW), 401);
    expect(admin, "+OK", "ACL SETUSER watch on");
    expect(admin, "+OK", "ACL SETUSER default nopass");
    cr_expect_eq(status_of(NULL), 200);
    expect(admin, "+OK", "ACL SETUSER default -info");
    cr_expect_eq(status_of(NULL), 401);
    cr_expect_eq(status_of(WATCH_PW), 200);
}

DAEMON_TEST(the_daemon, acl, nothing_secret_is_shown)
{
    daemon_start(&the_daemon, NULL);
    struct wire monitor;
    redisContext *client = client_open(the_daemon.port);
    wire_open(&monitor, the_daemon.port);
    expect_ask(&monitor, "MONITOR", "+OK");
    expect(client, "+OK", "CONFIG SET slowlog-log-slower-than 0");
    expect(client, "+OK", "ACL SETUSER bob on >hidden1");
    expect(client, "+OK", "AUTH bob hidden1");
    expect(client, "-WRONGPASS invalid username-password pair or user is disabled.", "AUTH bob hidden2");
    expect(client, "+OK", "AUTH default x");
    expect(client, "\"the end\"", "ECHO %s", "the end");
    for (const char *line = ""; !strstr(line, "the end");) {
        line = wire_text(&monitor);
        cr_assert_neq(line[0], '(', "%s", line);
        cr_expect_null(strstr(line, "hidden"), "%s", line);
    }
    const char *text = client_ask(client, "SLOWLOG GET 100");
    cr_expect_null(strstr(text, "hidden"), "%s", text);
    text = client_ask(client, "ACL LOG");
    cr_expect_null(strstr(text, "hidden"), "%s", text);
    text = daemon_output(&the_daemon);
    cr_expect_null(strstr(text, "hidden"), "%s", text);
}

static long long logged_number(const redisReply *entry, const char *name)
{
    for (size_t i = 0; i + 1 < entry->elements; i += 2)
        if (strcmp(entry->element[i]->str, name) == 0 && entry->element[i + 1]->type == REDIS_REPLY_INTEGER)
            return entry->element[i + 1]->integer;
    return -1;
}

/* As in Redis since 7.2: an entry has its own number, and the times of the first and the last refusal in it. */
DAEMON_TEST(the_daemon, acl, entries_of_the_log_have_numbers_and_times)
{
    redisContext *client = client_start(&the_daemon, NULL);
    long long before_ms = time(NULL) * 1000LL;
    (void)client_ask(client, "AUTH first x");
    (void)client_ask(client, "AUTH second x");
    usleep(20000);
    (void)client_ask(client, "AUTH first x"); /* the same entry, which is the newest again */
    redisReply *log = redisCommand(client, "ACL LOG");
    cr_assert(log && log->elements == 2);
    cr_expect_eq(log->element[0]->elements, 20);
    cr_expect_eq(logged_number(log->element[0], "count"), 2);
    cr_expect_eq(logged_number(log->element[0], "entry-id"), 0);
    cr_expect_eq(logged_number(log->element[1], "entry-id"), 1);
    long long created = logged_number(log->element[0], "timestamp-created");
    long long updated = logged_number(log->element[0], "timestamp-last-updated");
    cr_expect(created >= before_ms && created <= before_ms + 100000, "%lld, not about %lld", created, before_ms);
    cr_expect(updated >= created + 15 && updated <= created + 100000, "%lld after %lld", updated, created);
    cr_expect_eq(logged_number(log->element[1], "timestamp-created"),
                 logged_number(log->element[1], "timestamp-last-updated"));
    freeReplyObject(log);
    expect(client, "+OK", "ACL LOG RESET");
    (void)client_ask(client, "AUTH first x");
    log = redisCommand(client, "ACL LOG");
    cr_assert(log && log->elements == 1);
    cr_expect_eq(logged_number(log->element[0], "entry-id"), 2, "numbers are not given twice");
    freeReplyObject(log);
}

/* As in Redis; the file has another form, with the same meaning when other patterns follow. */
DAEMON_TEST(the_daemon, acl, all_names_by_a_pattern_are_shown_as_redis_does)
{
    start_with_file("user alice on nopass %RW~* ~b +@read\n");
    redisContext *admin = client_open(the_daemon.port);
    expect(admin, "+OK", "AUTH top");
    const char *text = client_ask(admin, "ACL GETUSER alice");
    cr_expect_not_null(strstr(text, "\"keys\",\"~* ~b\""), "%s", text);
    text = client_ask(admin, "ACL LIST");
    cr_expect_not_null(strstr(text, "\"user alice on nopass ~* ~b resetchannels -@all +@read\""), "%s", text);
    expect(admin, "+OK", "ACL SAVE");
    expect(admin, "+OK", "ACL LOAD");
    text = client_ask(admin, "ACL GETUSER alice");
    cr_expect_not_null(strstr(text, "\"keys\",\"~* ~b\""), "%s", text);
}

/* As in Redis, with `dir` as the working directory; ACL SAVE, ACL LOAD and a start find the same file. */
DAEMON_TEST(the_daemon, acl, the_path_of_the_file_begins_at_dir)
{
    daemon_start(&the_daemon, NULL);
    char path[400];
    snprintf(path, sizeof(path), "%s/users of here.acl", the_daemon.data);
    file_write_text(path, "user alice on >pw +@all\n");
    daemon_stop(&the_daemon);
    redisContext *admin = client_start(&the_daemon, (const char *const[]){"--aclfile", "users of here.acl", NULL});
    expect(admin, "+OK", "AUTH alice pw");
    expect(admin, "+OK", "ACL SETUSER bob on nopass +ping");
    expect(admin, "+OK", "ACL SAVE");
    cr_expect_not_null(strstr(file_text(path), "user bob on nopass"), "%s", file_text(path));
    expect(admin, ":1", "ACL DELUSER bob");
    expect(admin, "+OK", "ACL LOAD");
    expect(admin, "[\"alice\",\"bob\",\"default\"]", "ACL USERS");
    admin = client_after_stop(admin, &the_daemon, NULL);
    expect(admin, "[\"alice\",\"bob\",\"default\"]", "ACL USERS");
}

/* Wrong lines of settings are named by the user, since they have no line number here. */
DAEMON_TEST(the_daemon, acl, a_user_with_two_lines_stops_the_start)
{
    daemon_prepare(&the_daemon);
    snprintf(the_daemon.file, sizeof(the_daemon.file), "%s/bloomery.conf", the_daemon.dir);
    file_write_text(the_daemon.file, "user alice on\nuser bob on\nuser alice off\n");
    cr_assert_not(daemon_try(&the_daemon, NULL));
    const char *text = daemon_output(&the_daemon);
    cr_expect_not_null(strstr(text, "user 'alice' appears twice: a user has one line"), "%s", text);
    cr_expect_null(strstr(text, "line 0"), "%s", text);
}

/* A password is arbitrary bytes, also in the file that CONFIG REWRITE writes. */
DAEMON_TEST(the_daemon, acl, a_password_may_have_any_bytes)
{
    static const char password[] = "a\0b \"\xff\n";
    const size_t len = sizeof(password) - 1;
    daemon_prepare(&the_daemon);
    snprintf(the_daemon.file, sizeof(the_daemon.file), "%s/bloomery.conf", the_daemon.dir);
    file_write_text(the_daemon.file, "appendonly yes\n");
    redisContext *client = client_start(&the_daemon, NULL);
    expect(client, "+OK", "CONFIG SET requirepass %b", password, len);
    redisReply *reply = redisCommand(client, "CONFIG GET requirepass");
    cr_assert(reply && reply->elements == 2);
    cr_expect_str_eq(reply->element[1]->str, "(redacted)");
    freeReplyObject(reply);
    expect(client, "+OK", "CONFIG REWRITE");
    for (int i = 0; i < 2; i++) {
        client = client_after_stop(client, &the_daemon, NULL);
        expect(client, "-NOAUTH Authentication required.", "PING");
        expect(client, "-WRONGPASS invalid username-password pair or user is disabled.", "AUTH a");
        expect(client, "+OK", "AUTH %b", password, len);
        expect(client, "+PONG", "PING");
    }
    expect(client, "+OK", "CONFIG SET requirepass %s", "");
    client = client_after_stop(client, &the_daemon, NULL);
    expect(client, "+OK", "AUTH %b", password, len); /* the file still has it */
}

/* A long log is written in the background, in its state at one moment. */
DAEMON_TEST(the_daemon, acl, a_long_log_is_written_off_the_loop)
{
    daemon_start(&the_daemon, NULL);
    redisContext *admin = client_open(the_daemon.port), *client = client_open(the_daemon.port);
    expect(admin, "+OK", "CONFIG SET acllog-max-len 3000");
    expect(admin, "+OK", "ACL SETUSER bob on nopass ~mine +@all");
    expect(client, "+OK", "AUTH bob x");
    for (int last = 100; last <= 4000; last += 3900) {
        for (int i = 0; i < last; i++)
            redisAppendCommand(client, "BF.CARD not-mine-%d", i);
        for (int i = 0; i < last; i++)
            cr_assert(strstr(client_reply(client), "-NOPERM") != NULL);
        expect(admin, "+OK", "MULTI");
        expect(admin, "+QUEUED", "ACL LOG 5000");
        bool refused = strstr(client_ask(admin, "EXEC"), "may take long") != NULL;
        cr_expect_eq(refused, last > 128);
        redisReply *log = redisCommand(admin, "ACL LOG 5000");
        cr_assert(log && log->type == REDIS_REPLY_ARRAY);
        cr_assert_eq(log->elements, (size_t)(last < 3000 ? last : 3000));
        for (size_t i = 0; i < log->elements; i++) {
            char name[32];
            snprintf(name, sizeof(name), "not-mine-%d", last - 1 - (int)i);
            cr_assert_str_eq(log->element[i]->element[7]->str, name);
        }
        freeReplyObject(log);
        expect(admin, "+OK", "ACL LOG RESET");
    }
}
