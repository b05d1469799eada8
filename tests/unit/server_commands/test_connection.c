/* Commands on the connection, the settings and the server: replies that the recordings lack. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "memory_use.h"

#define CALL(...) harness_call(&h, NULL, __VA_ARGS__, NULL)

static struct harness h;

static void set_up(void)
{
    harness_init(&h);
}

static void tear_down(void)
{
    harness_deinit(&h);
}

TestSuite(connection, .init = set_up, .fini = tear_down);
TestSuite(settings, .init = set_up, .fini = tear_down);
TestSuite(introspection, .init = set_up, .fini = tear_down);
TestSuite(info, .init = set_up, .fini = tear_down);

static bool authenticated(void)
{
    return atomic_load(&h.session.acl.authenticated);
}

/* ---- HELLO, AUTH, RESET ---- */

/* An error in any option leaves version, name and authentication as they were. */
Test(connection, hello_that_fails_changes_nothing)
{
    CALL("CONFIG", "SET", "requirepass", "sesame");
    harness_reconnect(&h, 2);
    cr_expect_not(authenticated());
    cr_expect_eq(strncmp(CALL("HELLO", "3"), "-NOAUTH HELLO must be called", 28), 0);
    cr_expect_eq(strncmp(CALL("HELLO", "3", "SETNAME", "x"), "-NOAUTH ", 8), 0);
    cr_expect_eq(strncmp(CALL("HELLO", "3", "AUTH", "default", "wrong", "SETNAME", "x"), "-WRONGPASS ", 11), 0);
    cr_expect_eq(strncmp(CALL("HELLO", "3", "AUTH", "default", "sesame", "SETNAME", "a b"), "-ERR Client names", 17),
                 0);
    cr_expect_eq(strncmp(CALL("HELLO", "3", "AUTH", "default", "sesame", "FOO"), "-ERR Syntax error", 17), 0);
    cr_expect_eq(strncmp(CALL("HELLO", "4", "AUTH", "default", "sesame"), "-NOPROTO ", 9), 0);
    cr_expect_not(authenticated());
    cr_expect_null(h.session.texts.of[SESSION_NAME]);
    cr_expect_eq(atomic_load(&h.session.resp), 2);

    cr_expect_eq(strncmp(CALL("HELLO", "3", "AUTH", "default", "sesame", "SETNAME", "x"), "%7\r\n", 4), 0);
    cr_expect(authenticated());
    cr_expect_str_eq(h.session.texts.of[SESSION_NAME], "x");
}

Test(connection, auth_takes_the_exact_password_and_a_failure_keeps_the_old_state)
{
    static const char *const wrong[] = {"", "s", "sesam", "sesame ", "sesamesesame", "Sesame", "sesamf"};

    CALL("CONFIG", "SET", "requirepass", "sesame");
    harness_reconnect(&h, 2);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_expect_eq(strncmp(CALL("AUTH", wrong[i]), "-WRONGPASS ", 11), 0, "'%s'", wrong[i]);
        cr_expect_eq(strncmp(CALL("AUTH", "default", wrong[i]), "-WRONGPASS ", 11), 0, "'%s'", wrong[i]);
        cr_expect_not(authenticated());
    }
    cr_expect_eq(strncmp(CALL("AUTH", "Default", "sesame"), "-WRONGPASS ", 11), 0, "names of users have case");
    cr_expect_str_eq(CALL("AUTH", "sesame"), "+OK\r\n");
    cr_expect(authenticated());
    cr_expect_eq(strncmp(CALL("AUTH", "wrong"), "-WRONGPASS ", 11), 0);
    cr_expect(authenticated());
}

/* A password set while clients are connected is required from new ones, and from old ones after RESET. */
Test(connection, reset_undoes_authentication_name_and_version)
{
    CALL("HELLO", "3", "SETNAME", "x");
    cr_expect_str_eq(CALL("RESET"), "+RESET\r\n");
    cr_expect(authenticated(), "no password, nothing to ask for");
    CALL("HELLO", "3", "SETNAME", "x");
    CALL("CONFIG", "SET", "requirepass", "sesame");
    cr_expect(authenticated());
    cr_expect_str_eq(CALL("RESET"), "+RESET\r\n");
    cr_expect_not(authenticated());
    cr_expect_null(h.session.texts.of[SESSION_NAME]);
    cr_expect_eq(atomic_load(&h.session.resp), 2);
}

/* Errors contain words of the client; they must not break the framing. */
Test(connection, errors_that_repeat_a_word_stay_one_line)
{
    struct slice hello[] = {{"HELLO", 5}, {"2", 1}, {"a\r\n+OK\r\n", 8}};
    size_t len;
    const char *reply = harness_run(&h, hello, 3, &len);

    cr_expect_eq(reply[0], '-');
    cr_expect_eq(strcspn(reply, "\r\n"), len - 2);
}

/* ---- CLIENT ---- */

Test(connection, client_list_is_a_text_of_lines_made_off_the_loop)
{
    struct session other;
    char id[24];
    const char *reply;

    memset(&other, 0, sizeof(other));
    sessions_add(h.server->clients.sessions, &other);
    reply = CALL("CLIENT", "LIST");
    cr_expect_eq(reply[0], '$');
    cr_expect_eq(h.deferred, 1);
    snprintf(id, sizeof(id), "id=%d ", (int)h.session.id);
    cr_expect_not_null(strstr(reply, id));
    cr_expect_not_null(strstr(reply, "cmd=client|list"));
    snprintf(id, sizeof(id), "\nid=%d ", (int)other.id);
    cr_expect_not_null(strstr(reply, id));

    atomic_store(&h.session.resp, 3);
    snprintf(id, sizeof(id), "%d", (int)other.id);
    reply = CALL("CLIENT", "LIST", "ID", "999", id);
    cr_expect_eq(reply[0], '=');
    snprintf(id, sizeof(id), "txt:id=%d ", (int)other.id);
    cr_expect_not_null(strstr(reply, id));
    cr_expect_null(strstr(reply, "client|list"), "this session was not asked for");
    cr_expect_str_eq(CALL("CLIENT", "LIST", "TYPE", "pubsub"), "=4\r\ntxt:\r\n");
    cr_expect_str_eq(CALL("CLIENT", "LIST", "ID", "0"), "=4\r\ntxt:\r\n");
    cr_expect_str_eq(CALL("CLIENT", "LIST", "ID", "x"), "-ERR Invalid client ID\r\n");
    cr_expect_str_eq(CALL("CLIENT", "LIST", "ID"), "-ERR syntax error\r\n");
    cr_expect_str_eq(CALL("CLIENT", "LIST", "FOO"), "-ERR syntax error\r\n");
    sessions_remove(h.server->clients.sessions, &other);
}

/* ---- CONFIG ---- */

Test(settings, several_are_set_together_or_not_at_all)
{
    cr_expect_str_eq(CALL("CONFIG", "SET", "timeout", "60", "maxclients", "77"), "+OK\r\n");
    cr_expect_eq(server_config(h.server)->network.timeout, 60);
    cr_expect_eq(server_config(h.server)->network.maxclients, 77);

    cr_expect_eq(CALL("CONFIG", "SET", "timeout", "61", "maxclients", "none")[0], '-');
    cr_expect_eq(CALL("CONFIG", "SET", "timeout", "61", "nosuch", "1")[0], '-');
    cr_expect_eq(CALL("CONFIG", "SET", "timeout", "61", "unixsocket", "x")[0], '-', "fixed at start");
    cr_expect_str_eq(CALL("CONFIG", "SET", "timeout", "61", "TIMEOUT", "62"),
                     "-ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter\r\n");
    cr_expect_str_eq(CALL("CONFIG", "SET", "timeout", "61", "maxclients"), "-ERR syntax error\r\n");
    cr_expect_eq(server_config(h.server)->network.timeout, 60);
    cr_expect_eq(server_config(h.server)->network.maxclients, 77);
}

Test(settings, several_patterns_name_each_setting_once)
{
    const char *reply;

    atomic_store(&h.session.resp, 3);
    reply = CALL("CONFIG", "GET", "maxmemory*", "MAXMEMORY", "max*");
    cr_expect_eq(strncmp(reply, "%4\r\n", 4), 0, "%s", reply);
    cr_expect_not_null(strstr(reply, "$10\r\nmaxclients\r\n"));
    cr_expect_not_null(strstr(reply, "$9\r\nmaxmemory\r\n$1\r\n0\r\n"));
    cr_expect_str_eq(CALL("CONFIG", "GET", "[", "\\"), "%0\r\n");
}

Test(settings, patterns_beyond_the_limit_are_refused)
{
    char pattern[4097];

    memset(pattern, '*', sizeof(pattern) - 1);
    pattern[sizeof(pattern) - 1] = '\0';
    cr_expect_eq(CALL("CONFIG", "GET", pattern)[0], '-');
    pattern[sizeof(pattern) - 2] = '\0';
    cr_expect_eq(CALL("CONFIG", "GET", pattern)[0], '*');
}

/* ---- COMMAND ---- */

/* Steps over one reply; the test fails if it is not well-formed. Counts the bulk strings that equal `word`. */
static const char *skip_reply(const char *at, const char *word, unsigned *count)
{
    char *end;
    char kind = *at;
    long n = strtol(at + 1, &end, 10);
    const char *next = strstr(at, "\r\n") + 2;

    switch (kind) {
    case '+':
    case ':':
    case '_':
        return next;
    case '$':
        cr_assert_eq(strncmp(end, "\r\n", 2), 0);
        if (n < 0)
            return next;
        cr_assert_eq(strncmp(next + n, "\r\n", 2), 0);
        *count += strlen(word) == (size_t)n && strncmp(next, word, (size_t)n) == 0;
        return next + n + 2;
    case '*':
    case '~':
    case '%':
        for (long i = 0; i < (kind == '%' ? 2 * n : n); i++)
            next = skip_reply(next, word, count);
        return next;
    default:
        cr_assert_fail("a reply of kind '%c'", kind);
    }
    return NULL;
}

/* The number of times the word is in a well-formed reply with nothing after it. */
static unsigned count_in_reply(const char *reply, size_t len, const char *word)
{
    unsigned count = 0;

    cr_assert_eq((size_t)(skip_reply(reply, word, &count) - reply), len);
    return count;
}

Test(introspection, whole_table_is_well_formed_in_both_versions)
{
    size_t ntop, nall = 0, len;
    const char *reply;

    command_table(&ntop);
    while (command_row(nall) != NULL)
        nall++;
    for (int version = 2; version <= 3; version++) {
        char head[16];

        harness_reconnect(&h, version);
        reply = harness_call(&h, &len, "COMMAND", NULL);
        snprintf(head, sizeof(head), "*%zu\r\n", ntop);
        cr_expect_eq(strncmp(reply, head, strlen(head)), 0);
        count_in_reply(reply, len, "");
        reply = harness_call(&h, &len, "COMMAND", "DOCS", NULL);
        cr_expect_eq(count_in_reply(reply, len, "summary"), nall);
        reply = harness_call(&h, &len, "COMMAND", "LIST", NULL);
        snprintf(head, sizeof(head), "*%zu\r\n", nall);
        cr_expect_eq(strncmp(reply, head, strlen(head)), 0);
        snprintf(head, sizeof(head), ":%zu\r\n", ntop);
        cr_expect_str_eq(CALL("COMMAND", "COUNT"), head);
    }
}

Test(introspection, subcommands_are_asked_for_by_their_full_name)
{
    size_t len;
    const char *reply =
        harness_call(&h, &len, "COMMAND", "INFO", "Client|SetInfo", "client|nosuch", "nosuch|x", "|", NULL);

    cr_expect_eq(count_in_reply(reply, len, "client|setinfo"), 1);
    cr_expect_eq(strcmp(reply + len - 15, "$-1\r\n$-1\r\n$-1\r\n"), 0);
    reply = harness_call(&h, &len, "COMMAND", "DOCS", "config|get", "nosuch", NULL);
    cr_expect_eq(strncmp(reply, "*2\r\n$10\r\nconfig|get\r\n", 21), 0);
    reply = harness_call(&h, &len, "COMMAND", "DOCS", "config", NULL);
    cr_expect_eq(count_in_reply(reply, len, "config|resetstat"), 1);
}

/* Each of as many names as a command can have gets an answer. */
Test(introspection, many_names_are_answered_each_by_itself)
{
    enum { N = 1000 };
    struct slice words[N + 2] = {{"COMMAND", 7}, {"DOCS", 4}};
    const char *reply;
    size_t len;

    for (size_t i = 0; i < N; i++)
        words[i + 2] = i % 2 == 0 ? (struct slice){"ping", 4} : (struct slice){"nosuch", 6};
    reply = harness_run(&h, words, N + 2, &len);
    cr_expect_eq(count_in_reply(reply, len, "summary"), N / 2);
}

Test(introspection, keys_are_found_with_what_is_done_to_them)
{
    cr_expect_str_eq(CALL("COMMAND", "GETKEYS", "DEL", "a", "b", "c"), "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
    cr_expect_str_eq(
        CALL("COMMAND", "GETKEYSANDFLAGS", "rename", "a", "b"),
        "*2\r\n*2\r\n$1\r\na\r\n*3\r\n+RW\r\n+access\r\n+delete\r\n*2\r\n$1\r\nb\r\n*2\r\n+OW\r\n+update\r\n");
    cr_expect_str_eq(CALL("COMMAND", "GETKEYSANDFLAGS", "bf.add", "a", "b"), "*1\r\n*2\r\n$1\r\na\r\n*1\r\n+RW\r\n");
    cr_expect_str_eq(CALL("COMMAND", "GETKEYS", "PING"), "-ERR The command has no key arguments\r\n");
    for (size_t i = 0; i < 3; i++) { /* names of shard channels are no keys */
        static const char *const names[] = {"SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"};
        cr_expect_str_eq(CALL("COMMAND", "GETKEYSANDFLAGS", names[i], "a", "b"),
                         "-ERR The command has no key arguments\r\n");
    }
    cr_expect_str_eq(CALL("COMMAND", "GETKEYS", "CLIENT", "LIST"), "-ERR The command has no key arguments\r\n");
    cr_expect_str_eq(CALL("COMMAND", "GETKEYS", "CLIENT", "NOSUCH"), "-ERR Invalid command specified\r\n");
    cr_expect_str_eq(CALL("COMMAND", "GETKEYS", "RENAME", "a"),
                     "-ERR Invalid number of arguments specified for command\r\n");
}

Test(introspection, lists_are_filtered)
{
    size_t len;
    const char *reply = harness_call(&h, &len, "COMMAND", "LIST", "FILTERBY", "MODULE", "bf", NULL);

    const struct command *row;
    for (size_t i = 0; (row = command_row(i)) != NULL; i++)
        cr_expect_eq(count_in_reply(reply, len, row->full_name), (row->flags & CMD_MODULE) != 0, "%s", row->full_name);
    reply = harness_call(&h, &len, "COMMAND", "LIST", "FILTERBY", "aclcat", "Dangerous", NULL);
    cr_expect_eq(count_in_reply(reply, len, "keys"), 1);
    cr_expect_eq(count_in_reply(reply, len, "config|set"), 1);
    cr_expect_eq(count_in_reply(reply, len, "ping"), 0);
    cr_expect_str_eq(CALL("COMMAND", "LIST", "FILTERBY", "ACLCAT", "danger"), "*0\r\n");
    cr_expect_str_eq(CALL("COMMAND", "LIST", "FILTERBY", "PATTERN", "CLIENT|GETN*"), "*1\r\n$14\r\nclient|getname\r\n");
    cr_expect_str_eq(CALL("COMMAND", "LIST", "FILTERBY", "FOO", "x"), "-ERR syntax error\r\n");
    cr_expect_str_eq(CALL("COMMAND", "LIST", "x"), "-ERR syntax error\r\n");
}

Test(introspection, help_begins_with_the_name_of_the_command)
{
    static const char *const containers[] = {"CLIENT", "COMMAND", "CONFIG", "MODULE"};

    for (size_t i = 0; i < sizeof(containers) / sizeof(containers[0]); i++) {
        size_t len;
        const char *reply = harness_call(&h, &len, containers[i], "HELP", NULL);
        char head[64];

        count_in_reply(reply, len, "");
        snprintf(head, sizeof(head), "+%s <subcommand>", containers[i]);
        cr_expect_eq(strncmp(strchr(reply, '\n') + 1, head, strlen(head)), 0, "%s", reply);
    }
}

/* ---- INFO ---- */

/* The value of a field, or NULL; valid until the next call. */
static const char *field(const char *text, const char *name)
{
    static char value[256];
    char head[64];
    const char *at;

    snprintf(head, sizeof(head), "\n%s:", name);
    at = strstr(text, head);
    if (at == NULL)
        return NULL;
    at += strlen(head);
    snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

Test(info, bytes_are_given_for_people_as_well)
{
    static const struct {
        const char *bytes, *human;
    } cases[] = {{"1023", "1023B"}, {"1024", "1.00K"}, {"1536", "1.50K"}, {"1073741824", "1.00G"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_expect_str_eq(CALL("CONFIG", "SET", "maxmemory", cases[i].bytes), "+OK\r\n");
        cr_expect_str_eq(field(CALL("INFO", "memory"), "maxmemory_human"), cases[i].human);
    }
}
