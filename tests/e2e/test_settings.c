/* Settings: the command line, the printouts, the refusals, CONFIG GET and SET, the log file. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE_IDLE(the_daemon, settings);

#define RUN(input, ...) daemon_run((const char *const[]){__VA_ARGS__, NULL}, (input), &printed)

static const char *printed;

/* The printouts go to stdout and end with status 0. */
DAEMON_TEST(the_daemon, settings, printouts_end_well)
{
    cr_assert_eq(RUN(NULL, "--version"), 0, "%s", printed);
    cr_assert_not_null(strstr(printed, BLOOMERY_VERSION), "%s", printed);
    cr_assert_eq(RUN(NULL, "--help"), 0, "%s", printed);
    cr_assert_not_null(strstr(printed, "--threads"), "%s", printed);
    cr_assert_eq(RUN(NULL, "--print-config"), 0, "%s", printed);
    cr_assert_str_eq(printed, file_text(BLOOMERY_CONF_FILE), "conf/bloomery.conf is not what --print-config prints");
}

/* Settings that a start would refuse are named, no file is written, and a daemon with the same settings may run. */
DAEMON_TEST(the_daemon, settings, settings_are_checked_before_a_restart)
{
    char aclfile[300], keys[300], missing[300];
    cr_assert_eq(RUN("port 6399\n", "-", "--check-config"), 0, "%s", printed);
    cr_assert_str_eq(printed, "the settings are valid\n");
    cr_assert_eq(RUN("prot 6399\n", "-", "--check-config"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "standard input:1: unknown setting 'prot'"), "%s", printed);

    daemon_prepare(&the_daemon);
    daemon_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    size_t before = dir_count(the_daemon.dir);
    snprintf(aclfile, sizeof(aclfile), "%s/users.acl", the_daemon.dir);
    snprintf(keys, sizeof(keys), "%s/keys", the_daemon.dir);
    snprintf(missing, sizeof(missing), "%s/none", the_daemon.dir);
    cr_assert_eq(RUN(NULL, "--dir", the_daemon.dir, "--check-config"), 0, "%s", printed);
    cr_assert_eq(RUN(NULL, "--dir", missing, "--logfile", missing, "--check-config"), 0, "%s", printed);
    cr_assert_eq(dir_count(the_daemon.dir), before, "a check has made a file");
    cr_assert_eq(RUN(NULL, "--aclfile", missing, "--check-config"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "a start would fail: "), "%s", printed);
    file_write(aclfile, "user nobody on nonsense\n", 24);
    cr_assert_eq(RUN(NULL, "--aclfile", aclfile, "--check-config"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "users.acl:1: Error in applying operation"), "%s", printed);
    cr_assert_null(strstr(printed, "nonsense"), "it could be a password: %s", printed);
    file_write(keys, "no key\n", 7);
    cr_assert_eq(RUN(NULL, "--bf-key-file", keys, "--check-config"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, keys), "%s", printed);
    cr_assert_eq(RUN(NULL, "--tls-port", "1", "--tls-auth-clients", "no", "--tls-cert-file", missing, "--tls-key-file",
                     missing, "--check-config"),
                 DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "tls-cert-file"), "%s", printed);
    cr_assert_eq(RUN(NULL, "--dir", keys, "--check-config"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "Not a directory"), "%s", printed);
}

DAEMON_TEST(the_daemon, settings, a_check_refuses_a_directory_that_a_start_refuses)
{
    char junk[300], manifest[320];
    daemon_prepare(&the_daemon);
    snprintf(junk, sizeof(junk), "%s/junk", the_daemon.dir);
    snprintf(manifest, sizeof(manifest), "%s/MANIFEST", junk);
    cr_assert_eq(mkdir(junk, 0700), 0);
    file_write(manifest, "junk\n", 5);
    cr_assert_eq(RUN(NULL, "--dir", junk, "--check-config"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "MANIFEST"), "%s", printed);
}

/* A wrong setting ends the start with a message that names the place and the reason. */
DAEMON_TEST(the_daemon, settings, refusals_say_where_and_why)
{
    cr_assert_eq(RUN(NULL, "--port", "x"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(
        strstr(printed, "argument --port: 'port': argument couldn't be parsed into an integer (given: 'x')"), "%s",
        printed);
    cr_assert_eq(RUN("port 1\nthraeds 2\n", "-"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "standard input:2: unknown setting 'thraeds'"), "%s", printed);
    cr_assert_eq(RUN(NULL, "/nonexistent/bloomery.conf"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "/nonexistent/bloomery.conf: No such file or directory"), "%s", printed);
    cr_assert_eq(RUN(NULL, "--logfile", "/nonexistent/log"), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "/nonexistent/log"), "%s", printed);
}

/* No opened file gets the number of a standard descriptor that was closed at the start, and the log lines with it. */
DAEMON_TEST(the_daemon, settings, closed_standard_descriptors_stay_nobodys)
{
    char output[4096];

    daemon_prepare(&the_daemon);
    program_expect(output, sizeof(output), 1, "cannot write to the standard output: Bad file descriptor",
                   "'%s' --version >&-", BLOOMERYD_PATH);
    program_expect(output, sizeof(output), 0, "/dev/null\n/dev/null\n/dev/null\n",
                   "cd %s; '%s' --port 0 --unixsocket s --logfile log <&- >&- 2>&- & "
                   "while kill -0 $! && ! grep -qs ready: log; do sleep 0.01; done; "
                   "readlink /proc/$!/fd/0 /proc/$!/fd/1 /proc/$!/fd/2; kill $!; wait $!",
                   the_daemon.dir, BLOOMERYD_PATH);
}

/* The log shows the data directory as an absolute path, and under systemd has its priorities. */
DAEMON_TEST(the_daemon, settings, a_relative_data_directory_is_logged_as_an_absolute_path)
{
    char output[4096], expected[400];

    daemon_prepare(&the_daemon);
    snprintf(expected, sizeof(expected), "data in %s/here\n", the_daemon.dir);
    program_expect(
        output, sizeof(output), 0, expected,
        "cd %s; '%s' --port 0 --unixsocket s --dir ./here --logfile log & "
        "while kill -0 $! && ! grep -qs ready: log; do sleep 0.01; done; kill $!; wait $!; grep 'data in' log",
        the_daemon.dir, BLOOMERYD_PATH);
    program_expect(output, sizeof(output), 0, "\n<5>ready: listening on s; 0 filters, ",
                   "cd %s; exec 2>journal; JOURNAL_STREAM=$(stat -c %%d:%%i journal) '%s' --port 0 --unixsocket s & "
                   "while kill -0 $! && ! grep -qs ready: journal; do sleep 0.01; done; kill $!; wait $!; cat journal",
                   the_daemon.dir, BLOOMERYD_PATH);
    program_expect(output, sizeof(output), 0, "<3>wrong settings (bloomeryd --help lists all): argument --nosuch",
                   "cd %s; exec 2>journal; JOURNAL_STREAM=$(stat -c %%d:%%i journal) '%s' --nosuch 1; cat journal",
                   the_daemon.dir, BLOOMERYD_PATH);
}

/* An occupied port ends the start, and the message names it. */
DAEMON_TEST(the_daemon, settings, a_taken_port_is_named)
{
    char port[16], text[64], dir[300];

    daemon_start(&the_daemon, NULL);
    snprintf(port, sizeof(port), "%d", the_daemon.port);
    snprintf(text, sizeof(text), "127.0.0.1:%d", the_daemon.port);
    snprintf(dir, sizeof(dir), "%s/another", the_daemon.dir);
    cr_assert_eq(RUN(NULL, "--port", port, "--bind", "127.0.0.1", "--dir", dir), DAEMON_MISCONFIGURED, "%s", printed);
    cr_assert_not_null(strstr(printed, text), "%s", printed);
}

/* CONFIG GET finds by name and pattern, CONFIG SET changes all or nothing. */
DAEMON_TEST(the_daemon, settings, config_set_is_all_or_nothing)
{
    redisContext *client;

    client = client_start(&the_daemon, NULL);
    expect(client, "[\"maxmemory\",\"0\"]", "CONFIG GET maxmemory");
    expect(client, "[\"maxmemory-policy\",\"noeviction\"]", "CONFIG GET MAX*policy");
    expect(client, "[]", "CONFIG GET nosuch");
    expect(client, "+OK", "CONFIG SET maxmemory 64mb timeout 100 bf-error-rate 0.001");
    expect(client, "[\"maxmemory\",\"67108864\"]", "CONFIG GET maxmemory");
    expect(client, "[\"bf-error-rate\",\"0.001\"]", "CONFIG GET bf-error-rate");
    expect(
        client,
        "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer",
        "CONFIG SET maxmemory 1gb timeout x");
    expect(client, "[\"maxmemory\",\"67108864\"]", "CONFIG GET maxmemory");
    expect(client, "-ERR CONFIG SET failed (possibly related to argument 'unixsocket') - can't set immutable config",
           "CONFIG SET unixsocket x");
    expect(client, "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'", "CONFIG SET nosuch 1");
}

/* Values are read on an event loop: values of megabytes delay nobody. */
DAEMON_TEST(the_daemon, settings, config_set_refuses_very_long_values)
{
    static const char *const names[] = {"client-output-buffer-limit", "save", "notify-keyspace-events"};
    redisContext *client = client_start(&the_daemon, NULL);
    char *text = malloc(65537 + 16), expected[160];
    for (size_t i = 0; text && i < sizeof(names) / sizeof(names[0]); i++) {
        for (size_t at = 0; at <= 65536; at += 13)
            memcpy(text + at, "normal 0 0 0 ", 13);
        text[65537] = '\0';
        snprintf(expected, sizeof(expected),
                 "-ERR CONFIG SET failed (possibly related to argument '%s') - argument must have at most 65536 bytes",
                 names[i]);
        expect(client, expected, "CONFIG SET %s %s", names[i], text);
        text[13 * 5000] = '\0'; /* shorter: the parser of the setting decides */
        if (i == 0)
            expect(client, "+OK", "CONFIG SET %s %s", names[i], text);
    }
    free(text);
}

/* The defaults for new filters are those in force when a filter is created. */
DAEMON_TEST(the_daemon, settings, filter_defaults_apply_to_new_filters)
{
    const char *const args[] = {"--bf-initial-size", "1000", "--bf-expansion-factor", "0", NULL};
    redisContext *client;

    client = client_start(&the_daemon, args);
    expect(client, ":1", "BF.ADD f x");
    expect(client, "[:1000]", "BF.INFO f CAPACITY");
    expect(client, "[nil]", "BF.INFO f EXPANSION");
    expect(client, "+OK", "CONFIG SET bf-initial-size 7 bf-expansion-factor 3");
    expect(client, "[:1]", "BF.MADD g x");
    expect(client, "[:7]", "BF.INFO g CAPACITY");
    expect(client, "[:3]", "BF.INFO g EXPANSION");
    expect(client, "[:1000]", "BF.INFO f CAPACITY");
}

/* Memory limits refuse new filters and keep existing ones. */
DAEMON_TEST(the_daemon, settings, memory_limits_refuse_creation)
{
    redisContext *client;

    client = client_start(&the_daemon, NULL);
    expect(client, ":1", "BF.ADD f x");
    expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 1kb");
    cr_assert_eq(client_ask(client, "BF.RESERVE g 0.001 100000")[0], '-');
    expect(client, ":0", "EXISTS g");
    expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 0");
    expect(client, "+OK", "BF.RESERVE g 0.001 100000");
    expect(client, "+OK", "CONFIG SET maxmemory 1");
    expect(client, "-OOM command not allowed when used memory > 'maxmemory'.", "BF.ADD f y");
    expect(client, ":1", "BF.EXISTS f x");
    expect(client, "+OK", "CONFIG SET maxmemory 0");
    expect(client, ":1", "BF.ADD f y");
}

/* EXEC counts as its commands: commands queued while there was memory are refused as a whole when there is none. */
DAEMON_TEST(the_daemon, settings, memory_limits_refuse_what_was_queued_before)
{
    daemon_start(&the_daemon, NULL);
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    expect(client, ":1", "BF.ADD f x");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.EXISTS f x");
    expect(client, "+QUEUED", "BF.ADD f y");
    expect(other, "+OK", "CONFIG SET maxmemory 1");
    expect(client,
           "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.",
           "EXEC");
    expect(client, "[:1,:0]", "BF.MEXISTS f x y");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.EXISTS f x");
    expect(client, "[:1]", "EXEC");
}

/* An argument over the limit ends the connection with an error. */
DAEMON_TEST(the_daemon, settings, proto_limits_are_kept)
{
    const char *const args[] = {
        "--proto-max-bulk-len", "1mb", "--proto-max-args", "16", "--proto-inline-max-size", "64", NULL};
    static char line[80];
    struct wire wire;

    daemon_start(&the_daemon, args);
    wire_open(&wire, the_daemon.port);
    cr_assert(wire_send_text(&wire, "*2\r\n$4\r\nECHO\r\n$1048577\r\n"));
    cr_assert_str_eq(wire_text(&wire), "-ERR Protocol error: invalid bulk length");
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
    wire_close(&wire);
    wire_open(&wire, the_daemon.port);
    cr_assert(wire_send_text(&wire, "*17\r\n"));
    cr_assert_str_eq(wire_text(&wire), "-ERR Protocol error: invalid multibulk length");
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
    wire_close(&wire);
    wire_open(&wire, the_daemon.port);
    memset(line, 'x', 70);
    cr_assert(wire_send_text(&wire, line));
    cr_assert_str_eq(wire_text(&wire), "-ERR Protocol error: too big inline request");
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
}

static void expect_refused(const char *sent, const char *error)
{

    struct wire wire = wire_to(the_daemon.port);
    cr_assert(wire_send_text(&wire, sent));
    cr_assert_str_eq(wire_text(&wire), error);
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
    wire_close(&wire);
}

/* A client without the password has its own limits, never above those of the others. */
DAEMON_TEST(the_daemon, settings, limits_before_the_password)
{
    const char *const args[] = {"--requirepass", "sesame", "--proto-max-args", "16", NULL};
    struct wire wire;

    daemon_start(&the_daemon, args);
    expect_refused("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length");
    expect_refused("*1\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length");
    wire_open(&wire, the_daemon.port);
    wire_ask(&wire, "AUTH sesame");
    cr_assert_str_eq(wire_ask(&wire, "CONFIG SET proto-max-args-unauthenticated 12"), "+OK");
    cr_assert_str_eq(wire_ask(&wire, "CONFIG SET proto-max-bulk-len-unauthenticated 20000"), "+OK");
    expect_refused("*13\r\n", "-ERR Protocol error: unauthenticated multibulk length");
    expect_refused("*12\r\n$20001\r\n", "-ERR Protocol error: unauthenticated bulk length");
    cr_assert_str_eq(wire_ask(&wire, "CONFIG SET proto-max-args-unauthenticated 100"), "+OK");
    expect_refused("*17\r\n", "-ERR Protocol error: unauthenticated multibulk length");
}

/* A client that does not read: its input waits, and beyond the limit it is disconnected; others are served. */
DAEMON_TEST(the_daemon, settings, a_slow_reader_is_bounded)
{
    const char *const args[] = {"--reply-buffer-high-water", "64kb", "--reply-buffer-limit", "1mb", NULL};
    static char item[262144];
    struct wire slow, other;
    struct lines lines = {NULL, 0, 0};
    struct word words[2] = {{"ECHO", 4}, {item, sizeof(item)}};
    size_t replies = 0;

    daemon_start(&the_daemon, args);
    memset(item, 'x', sizeof(item));
    wire_open(&slow, the_daemon.port);
    wire_open(&other, the_daemon.port);
    for (int i = 0; i < 8; i++)
        cr_assert(wire_send_command(&slow, words, 2));
    cr_assert_str_eq(wire_ask(&other, "PING"), "+PONG");
    while (replies < 8 && wire_reply(&slow, WIRE_PATIENCE_MS, &lines) == WIRE_OK) {
        replies++;
        lines_truncate(&lines, 0);
    }
    cr_assert_eq(replies, 8, "a client that reads in the end gets everything");
    lines_deinit(&lines);
}

/* SIGHUP continues the log in a new file after the old one was moved away. */
DAEMON_TEST(the_daemon, settings, the_log_file_can_be_rotated)
{
    char dir[] = "/tmp/bloomery-rotate-XXXXXX", log[64], moved[64];
    const char *const args[] = {"--logfile", log, NULL};

    cr_assert_not_null(mkdtemp(dir));
    snprintf(log, sizeof(log), "%s/log", dir);
    snprintf(moved, sizeof(moved), "%s/log.1", dir);
    daemon_start(&the_daemon, args);
    cr_assert_eq(rename(log, moved), 0);
    kill(the_daemon.pid, SIGHUP);
    wait_until(access(log, F_OK) == 0);
    daemon_stop(&the_daemon);
    cr_assert_not_null(strstr(file_text(moved), " notice ready: listening on 127.0.0.1:"));
    cr_assert_null(strstr(file_text(moved), "bye"));
    cr_assert_not_null(strstr(file_text(log), " notice bye"), "%s", file_text(log));
    unlink(log);
    unlink(moved);
    rmdir(dir);
}

/* A daemon that cannot listen does not start, and reports the reason. */
DAEMON_TEST(the_daemon, settings, what_cannot_be_listened_on_is_named)
{
    char path[300], dir[300], text[400];
    daemon_prepare(&the_daemon);
    snprintf(dir, sizeof(dir), "%s/data", the_daemon.dir);
    snprintf(path, sizeof(path), "%s/socket", the_daemon.dir);
    cr_assert_eq(RUN(NULL, "--port", "0", "--dir", dir), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "nothing to listen on: 'port' is 0 or 'bind' is empty"), "%s", printed);
    cr_assert_eq(RUN(NULL, "--port", "1", "--bind", "-203.0.113.7", "--dir", dir), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "nothing to listen on"), "%s", printed);
    cr_assert_eq(RUN(NULL, "--port", "1", "--bind", "203.0.113.7", "--dir", dir), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "cannot listen on 203.0.113.7:1: Cannot assign requested address"), "%s",
                       printed);
    cr_assert_eq(RUN(NULL, "--port", "0", "--unixsocket", "/nonexistent/socket", "--dir", dir), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "cannot listen on unixsocket /nonexistent/socket: No such file"), "%s", printed);
    memset(text, 'x', 200);
    text[0] = '/';
    text[200] = '\0';
    cr_assert_eq(RUN(NULL, "--port", "0", "--unixsocket", text, "--dir", dir), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "the path has more than"), "%s", printed);
    file_write(path, "precious", 8);
    cr_assert_eq(RUN(NULL, "--port", "0", "--unixsocket", path, "--dir", dir), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "exists and is not a socket"), "%s", printed);
    cr_assert(file_is(path, "precious", 8));
}

/* A socket of a running process is left to it; a socket left by a crash is replaced. An optional address may be
 * missing. */
DAEMON_TEST(the_daemon, settings, a_unix_socket_of_another_is_not_taken)
{
    char path[300], dir[300];
    daemon_prepare(&the_daemon);
    snprintf(dir, sizeof(dir), "%s/another", the_daemon.dir);
    snprintf(path, sizeof(path), "%s/socket", the_daemon.dir);
    const char *const args[] = {"--unixsocket", path, "--bind", "127.0.0.1 -203.0.113.7", NULL};
    daemon_start(&the_daemon, args);
    cr_assert_eq(RUN(NULL, "--port", "0", "--unixsocket", path, "--dir", dir), DAEMON_MISCONFIGURED);
    cr_assert_not_null(strstr(printed, "is in use by another process"), "%s", printed);
    for (int again = 0; again < 2; again++) {
        redisContext *client = redisConnectUnix(path);
        cr_assert(client && client->err == 0, "%s", client ? client->errstr : "no memory");
        expect(client, "+PONG", "PING");
        client_kill(client, &the_daemon);
        cr_assert(file_exists(path));
        daemon_restart(&the_daemon);
    }
}

/* The level of the log can be changed while the daemon runs. */
DAEMON_TEST(the_daemon, settings, the_log_level_can_be_changed)
{
    redisContext *client;

    client = client_start(&the_daemon, NULL);
    expect(client, "+OK", "CONFIG SET loglevel warning");
    expect(client, "[\"loglevel\",\"warning\"]", "CONFIG GET loglevel");
    client_stop(client, &the_daemon);
    cr_assert_null(strstr(daemon_output(&the_daemon), "bye"));
}

/* The pid file exists while the daemon runs. */
DAEMON_TEST(the_daemon, settings, the_pid_file_holds_the_process_id)
{
    char path[] = "/tmp/bloomery-pid-XXXXXX";
    const char *const args[] = {"--pidfile", path, NULL};
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    close(fd);
    cr_assert_eq(unlink(path), 0);
    mode_t before = umask(0);
    daemon_start(&the_daemon, args);
    umask(before);
    struct stat st;
    cr_assert_eq(atol(file_text(path)), (long)the_daemon.pid);
    cr_assert(stat(path, &st) == 0 && (st.st_mode & 07133) == 0, "others may write in it: %o", (unsigned)st.st_mode);
    daemon_stop(&the_daemon);
    cr_assert_neq(access(path, F_OK), 0, "the pid file is left behind");
}

/* A pid file that cannot be written is reported, and an existing object of this name is left alone: a link is not
 * followed. */
DAEMON_TEST(the_daemon, settings, a_pid_file_that_cannot_be_written_is_reported)
{
    char path[] = "/tmp/bloomery-pid-XXXXXX", link[sizeof(path) + 5], target[sizeof(path) + 7];
    const char *const args[] = {"--pidfile", path, NULL}, *const linked[] = {"--pidfile", link, NULL};
    struct stat st;

    cr_assert_not_null(mkdtemp(path));
    snprintf(link, sizeof(link), "%s/link", path);
    snprintf(target, sizeof(target), "%s/target", path);
    cr_assert_eq(symlink(target, link), 0);
    daemon_start(&the_daemon, linked);
    cr_assert_not_null(strstr(daemon_output(&the_daemon), "/link: Too many levels of symbolic links"));
    daemon_stop(&the_daemon);
    cr_assert_eq(lstat(link, &st), 0, "it is not there any more");
    cr_assert_neq(access(target, F_OK), 0, "a link was followed");
    cr_assert_eq(unlink(link), 0);

    daemon_start(&the_daemon, args);
    cr_assert(strstr(daemon_output(&the_daemon), "cannot write pidfile") &&
                  strstr(daemon_output(&the_daemon), "Is a directory"),
              "%s", daemon_output(&the_daemon));
    daemon_stop(&the_daemon);
    cr_assert_eq(rmdir(path), 0, "the directory is not there any more");
}

/* A Unix socket is served beside the port, with the requested mode. */
DAEMON_TEST(the_daemon, settings, a_unix_socket_is_served)
{
    char path[] = "/tmp/bloomery-socket-XXXXXX";
    const char *const args[] = {"--unixsocket", path, "--unixsocketperm", "700", NULL};
    struct stat st;
    redisContext *client;
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    close(fd);
    unlink(path);
    daemon_start(&the_daemon, args);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0700);
    client = redisConnectUnix(path);
    cr_assert(client != NULL && client->err == 0, "%s", path);
    expect(client, ":1", "BF.ADD f x");
    redisFree(client);
    client = client_open(the_daemon.port);
    expect(client, ":1", "BF.EXISTS f x");
    client_stop(client, &the_daemon);
    cr_assert_neq(access(path, F_OK), 0, "the socket is left behind");
}
