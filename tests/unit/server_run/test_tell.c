/* Reports of other clients' commands, by MONITOR and by CLIENT TRACKING: each change reaches all clients that need it,
 * and no other ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

TestSuite(tell, .timeout = 300);

/* A connection of RESP3 with these options of CLIENT TRACKING ON. */
static int track(unsigned worker, const char *options)
{
    char line[128];
    size_t len;
    int fd = rig_connect(worker);
    rig_request(&rig_requests, "HELLO 3");
    free(rig_replies(fd, &rig_requests, &len));
    snprintf(line, sizeof(line), "CLIENT TRACKING ON%s", options);
    rig_call(fd, line, "+OK\r\n");
    return fd;
}

static void expect_invalid(int fd, const char *name)
{
    char push[128];
    snprintf(push, sizeof(push), ">2\r\n$10\r\ninvalidate\r\n*1\r\n$%zu\r\n%s\r\n", strlen(name), name);
    rig_expect(fd, push);
}

#define ALL_INVALID ">2\r\n$10\r\ninvalidate\r\n_\r\n"

/* Every command that changes a filter, and every command that queries it. */
RIG_TEST(tell, a_name_that_was_asked_for_is_invalid_after_each_change)
{
    static const char *const asks[] = {"BF.EXISTS f x", "BF.MEXISTS f x y", "BF.CARD f", "BF.QUERY f ITEMS x"};
    static const struct {
        const char *change, *reply;
    } changes[] = {{"BF.ADD f #", ":1\r\n"},
                   {"BF.MADD f #", "*1\r\n:1\r\n"},
                   {"BF.INSERT f ITEMS #", "*1\r\n:1\r\n"},
                   {"BF.MERGE f other", "+OK\r\n"},
                   {"BF.CLEAR f", "+OK\r\n"},
                   {"RENAME f moved", "+OK\r\n"},
                   {"RENAME moved f", "+OK\r\n"},
                   {"PEXPIRE f 1000000", ":1\r\n"},
                   {"PERSIST f", ":1\r\n"},
                   {"COPY other f REPLACE", ":1\r\n"},
                   {"DEL f", ":1\r\n"},
                   {"BF.ADD f #", ":1\r\n"}};
    rig_begin(2, NULL, NULL);
    int writer = rig_connect(0);
    rig_call(writer, "BF.ADD f x", ":1\r\n");
    rig_call(writer, "BF.ADD other z", ":1\r\n");
    for (unsigned worker = 0; worker < 2; worker++) {
        int reader = track(worker, "");
        for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
            char line[64], *at;
            size_t len;
            rig_request(&rig_requests, asks[i % 4]);
            free(rig_replies(reader, &rig_requests, &len));
            snprintf(line, sizeof(line), "%s", changes[i].change);
            if ((at = strchr(line, '#')))
                snprintf(at, 16, "%u-%zu", worker, i);
            rig_call(writer, line, changes[i].reply);
            expect_invalid(reader, "f");
            rig_call(writer, "BF.EXISTS other z", ":1\r\n"); /* no report without a change */
            rig_expect_silence(reader);
        }
        rig_close(reader);
    }
}

RIG_TEST(tell, options_say_who_is_told_what)
{
    size_t len;
    rig_begin(2, NULL, NULL);
    int writer = rig_connect(0);
    rig_call(writer, "BF.MADD user:1 0", "*1\r\n:1\r\n"); /* a new filter is a change, and its first item another */
    rig_call(writer, "BF.MADD item:1 0", "*1\r\n:1\r\n");
    int prefix = track(1, " BCAST PREFIX user: PREFIX item:"), own = track(1, " NOLOOP"), chosen = track(0, " OPTIN");
    rig_call(writer, "BF.ADD user:1 a", ":1\r\n");
    expect_invalid(prefix, "user:1");
    rig_call(writer, "BF.ADD users a", ":1\r\n");
    rig_call(writer, "BF.ADD item:1 a", ":1\r\n");
    expect_invalid(prefix, "item:1");
    rig_request(&rig_requests, "BF.EXISTS f x");
    rig_request(&rig_requests, "BF.ADD f x"); /* its own change */
    free(rig_replies(own, &rig_requests, &len));
    rig_expect_silence(own);
    rig_request(&rig_requests, "BF.EXISTS f x");
    free(rig_replies(own, &rig_requests, &len));
    rig_call(chosen, "BF.EXISTS f x", "#t\r\n");
    rig_call(writer, "BF.ADD f y", ":1\r\n");
    expect_invalid(own, "f");
    rig_expect_silence(chosen);
    rig_call(chosen, "CLIENT CACHING YES", "+OK\r\n");
    rig_call(chosen, "BF.EXISTS f x", "#t\r\n");
    rig_call(chosen, "BF.EXISTS users a", "#t\r\n"); /* the next command only */
    rig_call(writer, "BF.ADD users b", ":1\r\n");
    rig_call(writer, "BF.ADD f z", ":1\r\n");
    expect_invalid(chosen, "f");
    rig_expect_silence(chosen);
}

RIG_TEST(tell, when_all_names_have_changed_all_is_invalid)
{
    static const char *const commands[] = {"FLUSHALL", "FLUSHDB", "SWAPDB 0 1"};
    rig_begin(2, NULL, NULL);
    int writer = rig_connect(0), reader = track(1, "");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        size_t len;
        rig_send(writer, "BF.ADD f x");
        free(rig_read(writer, 4));
        rig_request(&rig_requests, "BF.EXISTS f x");
        free(rig_replies(reader, &rig_requests, &len));
        rig_call(writer, commands[i], "+OK\r\n");
        rig_expect(reader, ALL_INVALID);
    }
}

/* ---- MONITOR ---- */

/* Every command is shown once, in the order of its connection, in every way of execution; passwords are not shown. */
RIG_TEST(tell, a_monitor_sees_each_command_once)
{
    static const char *const shown[] = {"\"BF.ADD\" \"f\" \"1\"",
                                        "\"BF.ADD\" \"f\" \"2\"",
                                        "\"BF.EXISTS\" \"f\" \"1\"",
                                        "\"BF.MERGE\" \"g\" \"f\"",
                                        "\"MULTI\"",
                                        "\"EXEC\"",
                                        "\"PING\" \"the-end\""};
    rig_begin(2, NULL, NULL);
    int monitor = rig_connect(1), client = rig_connect(0);
    rig_call(monitor, "MONITOR", "+OK\r\n");
    rig_hold();
    rig_request(&rig_requests, "BF.ADD f 1");
    rig_request(&rig_requests, "BF.ADD f 2");
    rig_request(&rig_requests, "BF.EXISTS f 1");
    rig_request(&rig_requests, "BF.MERGE g f");
    rig_request(&rig_requests, "AUTH default very-secret");
    rig_request(&rig_requests, "MULTI");
    rig_request(&rig_requests, "BF.CARD f");
    rig_request(&rig_requests, "BF.CARD g");
    rig_request(&rig_requests, "EXEC");
    rig_request(&rig_requests, "PING the-end");
    rig_send_buf(client, &rig_requests);
    rig_let_go();
    rig_expect(client, ":1\r\n:1\r\n:1\r\n+OK\r\n");

    char text[4096] = "";
    for (size_t have = 0; !strstr(text, "the-end\"\r\n"); have++) {
        char *byte = rig_read(monitor, 1);
        cr_assert_lt(have, sizeof(text) - 1);
        text[have] = byte[0];
        free(byte);
    }
    const char *at = text;
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        const char *found = strstr(at, shown[i]);
        cr_assert_not_null(found, "'%s' is missing in its place: %s", shown[i], text);
        cr_assert_null(strstr(found + 1, shown[i]), "'%s' is shown twice: %s", shown[i], text);
        at = found;
    }
    cr_assert_null(strstr(text, "very-secret"));
}
