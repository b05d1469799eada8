/* client: hiredis against the daemon, with replies as compact text, so that an expectation is one line:
 *
 *   expect(client, "[:1,:0]", "BF.MADD f %s %s", "a", "a");
 *
 * hiredis as Debian ships it speaks RESP2; wire.h does RESP3 and raw bytes. */
#pragma once

#include <criterion/criterion.h>
#include <hiredis/hiredis.h>
#include <string.h>

#include "daemon.h"

/* Connected to 127.0.0.1; a failure fails the test. redisFree() disconnects it; a connection still open at the end
 * of a test ends with it: each test is a process. */
redisContext *client_open(int port);

/* Start the daemon, like daemon_start() and daemon_restart(), and connect. */
redisContext *client_start(struct daemon *daemon, const char *const *args);
redisContext *client_restart(struct daemon *daemon);

/* DAEMON_SUITE() with a client. Defines the file's `variable` and `context`. */
#define CLIENT_SUITE(variable, context, suite, ...)     \
    static struct daemon variable;                      \
    static redisContext *context;                       \
    static void suite##_start(void)                     \
    {                                                   \
        const char *const args[] = {__VA_ARGS__, NULL}; \
        (context) = client_start(&(variable), args);    \
    }                                                   \
    static void suite##_discard(void)                   \
    {                                                   \
        daemon_discard(&(variable));                    \
    }                                                   \
    TestSuite(suite, .init = suite##_start, .fini = suite##_discard, .timeout = 3000)

/* DAEMON_TEST() with its own connection, `client`. */
#define CLIENT_TEST(daemon, suite, name)                     \
    static void suite##_##name##_body(redisContext *client); \
    Test(suite, name)                                        \
    {                                                        \
        suite##_##name##_body(client_open((daemon).port));   \
        daemon_deinit(&(daemon));                            \
    }                                                        \
    static void suite##_##name##_body(redisContext *client)

/* Disconnect, then kill the daemon, or stop it as daemon_stop() does. */
void client_kill(redisContext *client, struct daemon *daemon);
void client_stop(redisContext *client, struct daemon *daemon);

/* Disconnects, kills the daemon, starts it again with these arguments (NULL: those of the last start), and connects. */
redisContext *client_after_kill(redisContext *client, struct daemon *daemon, const char *const *args);

/* The same, but the daemon is stopped as daemon_stop() does. */
redisContext *client_after_stop(redisContext *client, struct daemon *daemon, const char *const *args);

/* Sends one command in hiredis's format (%s, %b) and returns the reply: ":1", "+OK", "-ERR ...", "\"bulk\"" (bytes
 * outside ' '..'~' as \xHH), "nil", "[a,b]"; "(<reason>)" when the connection is gone. Valid until the next call. */
const char *client_ask(redisContext *client, const char *format, ...);

/* The same for the reply to a command that was sent by redisAppendCommand(). */
const char *client_reply(redisContext *client);

/* Reads the replies to `n` commands that were sent by redisAppendCommand(); none of them may be an error. */
void client_skip(redisContext *client, int n);

#define expect(client, expected, ...)                                                                             \
    do {                                                                                                          \
        const char *reply_text = client_ask((client), __VA_ARGS__);                                               \
        cr_assert_str_eq(reply_text, (expected), "got '%s' instead of '%s'; command: %s", reply_text, (expected), \
                         #__VA_ARGS__);                                                                           \
    } while (0)

/* Demands that the reply contains the text. */
#define expect_has(client, text, ...)                                                                                \
    do {                                                                                                             \
        const char *reply_text = client_ask((client), __VA_ARGS__);                                                  \
        cr_assert(strstr(reply_text, (text)), "'%s' is not in '%s'; command: %s", (text), reply_text, #__VA_ARGS__); \
    } while (0)

/* Adds item:<from> .. item:<to - 1>, in one pipeline; demands that all of them are present. */
void client_add_items(redisContext *client, const char *filter, int from, int to);
void client_expect_items(redisContext *client, const char *filter, int from, int to);

/* Gives BF.MADD, BF.MEXISTS and similar commands the items <prefix>0 .. <prefix><n - 1>, a thousand at a time;
 * returns the number of replies 1. */
long long client_for_items(redisContext *client, const char *command, const char *key, const char *prefix, int n);

/* The reply as a number; fails the test when it is not an integer. */
long long client_number(redisContext *client, const char *format, ...);

/* A number of a section of INFO; fails the test when it is missing. The second function uses its own connection. */
long long client_info(redisContext *client, const char *section, const char *field);
long long info_number(int port, const char *section, const char *field);
