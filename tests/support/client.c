#include "client.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[1 << 20];
static _Thread_local size_t text_len;

static void append(const char *bytes, size_t len)
{
    cr_assert_lt(text_len + len, sizeof(text), "a reply too long for its compact form");
    memcpy(text + text_len, bytes, len);
    text_len += len;
    text[text_len] = '\0';
}

static void append_escaped(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        char escape[8];

        if (c == '\\')
            append("\\\\", 2);
        else if (c < ' ' || c > '~')
            append(escape, (size_t)snprintf(escape, sizeof(escape), "\\x%02x", c));
        else
            append(bytes + i, 1);
    }
}

static void append_reply(const redisReply *reply)
{
    char number[32];

    switch (reply->type) {
    case REDIS_REPLY_STRING:
        append("\"", 1);
        append_escaped(reply->str, (size_t)reply->len);
        append("\"", 1);
        break;
    case REDIS_REPLY_ARRAY:
        append("[", 1);
        for (size_t i = 0; i < reply->elements; i++) {
            append(",", i > 0);
            append_reply(reply->element[i]);
        }
        append("]", 1);
        break;
    case REDIS_REPLY_INTEGER:
        append(number, (size_t)snprintf(number, sizeof(number), ":%lld", reply->integer));
        break;
    case REDIS_REPLY_NIL:
        append("nil", 3);
        break;
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
        append(reply->type == REDIS_REPLY_STATUS ? "+" : "-", 1);
        append_escaped(reply->str, (size_t)reply->len);
        break;
    default:
        cr_assert_fail("a reply of type %d", reply->type);
    }
}

redisContext *client_open(int port)
{
    struct timeval patience = {.tv_sec = 300};
    redisContext *client = redisConnectWithTimeout("127.0.0.1", port, patience);

    cr_assert_not_null(client);
    cr_assert_eq(client->err, 0, "connect to port %d: %s", port, client->errstr);
    cr_assert_eq(redisSetTimeout(client, patience), REDIS_OK);
    return client;
}

redisContext *client_start(struct daemon *daemon, const char *const *args)
{
    daemon_start(daemon, args);
    return client_open(daemon->port);
}

redisContext *client_restart(struct daemon *daemon)
{
    daemon_restart(daemon);
    return client_open(daemon->port);
}

static redisContext *start_again(struct daemon *daemon, const char *const *args)
{
    return args ? client_start(daemon, args) : client_restart(daemon);
}

void client_kill(redisContext *client, struct daemon *daemon)
{
    redisFree(client);
    daemon_kill(daemon);
}

void client_stop(redisContext *client, struct daemon *daemon)
{
    redisFree(client);
    daemon_stop(daemon);
}

redisContext *client_after_kill(redisContext *client, struct daemon *daemon, const char *const *args)
{
    client_kill(client, daemon);
    return start_again(daemon, args);
}

redisContext *client_after_stop(redisContext *client, struct daemon *daemon, const char *const *args)
{
    client_stop(client, daemon);
    return start_again(daemon, args);
}

static const char *show(redisContext *client, redisReply *reply)
{
    text_len = 0;
    if (reply == NULL) {
        snprintf(text, sizeof(text), "(%s)", client->errstr);
        return text;
    }
    append_reply(reply);
    freeReplyObject(reply);
    return text;
}

const char *client_reply(redisContext *client)
{
    redisReply *reply = NULL;

    redisGetReply(client, (void **)&reply);
    return show(client, reply);
}

const char *client_ask(redisContext *client, const char *format, ...)
{
    redisReply *reply;
    va_list ap;

    va_start(ap, format);
    reply = redisvCommand(client, format, ap);
    va_end(ap);
    return show(client, reply);
}

long long client_number(redisContext *client, const char *format, ...)
{
    redisReply *reply;
    long long number;
    va_list ap;

    va_start(ap, format);
    reply = redisvCommand(client, format, ap);
    va_end(ap);
    cr_assert_not_null(reply, "%s: %s", format, client->errstr);
    cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s: not an integer: %s", format, reply->str ? reply->str : "");
    number = reply->integer;
    freeReplyObject(reply);
    return number;
}

void client_skip(redisContext *client, int n)
{
    for (int i = 0; i < n; i++) {
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK, "%s", client->errstr);
        cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
        freeReplyObject(reply);
    }
}

void client_add_items(redisContext *client, const char *filter, int from, int to)
{
    for (int i = from; i < to; i++)
        redisAppendCommand(client, "BF.ADD %s item:%d", filter, i);
    client_skip(client, to - from);
}

#define PIPELINE 10000 /* commands on their way at once */

void client_expect_items(redisContext *client, const char *filter, int from, int to)
{
    for (int start = from; start < to; start += PIPELINE) {
        int end = to - start < PIPELINE ? to : start + PIPELINE;
        for (int i = start; i < end; i++)
            redisAppendCommand(client, "BF.EXISTS %s item:%d", filter, i);
        for (int i = start; i < end; i++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
            cr_assert(reply->type == REDIS_REPLY_INTEGER && reply->integer == 1, "item:%d of %s is absent", i, filter);
            freeReplyObject(reply);
        }
    }
}

long long client_for_items(redisContext *c, const char *command, const char *key, const char *prefix, int n)
{
    char words[1000][32];
    const char *argv[1002] = {command, key};
    long long ones = 0;
    for (int done = 0; done < n; done += 1000) {
        int batch = n - done < 1000 ? n - done : 1000;
        for (int i = 0; i < batch; i++) {
            snprintf(words[i], sizeof(words[i]), "%s%d", prefix, done + i);
            argv[i + 2] = words[i];
        }
        redisReply *reply = redisCommandArgv(c, batch + 2, argv, NULL);
        cr_assert(reply && reply->type == REDIS_REPLY_ARRAY, "%s %s: %s", command, key, reply ? reply->str : c->errstr);
        cr_assert_eq(reply->elements, (size_t)batch);
        for (int i = 0; i < batch; i++)
            ones += reply->element[i]->integer;
        freeReplyObject(reply);
    }
    return ones;
}

long long client_info(redisContext *client, const char *section, const char *field)
{
    redisReply *reply = redisCommand(client, "INFO %s", section);
    char line[64];

    cr_assert(reply && reply->str);
    snprintf(line, sizeof(line), "\n%s:", field);
    const char *at = strstr(reply->str, line);
    cr_assert(at, "INFO %s has no %s: %s", section, field, reply->str);
    long long value = strtoll(at + strlen(line), NULL, 10);
    freeReplyObject(reply);
    return value;
}

long long info_number(int port, const char *section, const char *field)
{
    redisContext *client = client_open(port);
    long long value = client_info(client, section, field);

    redisFree(client);
    return value;
}
