/* Random pipelines on one connection against a simple model: whatever runs ahead, is deferred or waits in between,
 * every reply is the one that running the commands one by one in their order would give. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"

#define NAMES    6
#define ITEMS    300
#define BATCH    7
#define COMMANDS 60000
#define RATE     0.0001

static struct daemon the_daemon;

static void start(void)
{
    const char *const args[] = {"--threads", "2", "--bf-error-rate", "0.0001", NULL};
    daemon_start(&the_daemon, args);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(pipeline, .init = start, .fini = discard, .timeout = 300);

/* What the daemon should hold. An item that looked as if it were there is as good as added. */
struct model {
    bool exists[NAMES];
    bool has[NAMES][ITEMS];
    long long added[NAMES];
    long long false_positives; /* seen so far */
    long long negatives;       /* items that were absent in the model when asked for */
};

enum kind { ADD, EXISTS, MADD, MEXISTS, DEL, RENAME, RESERVE, CARD, DBSIZE, KEYS, PING, UNKNOWN, INFO_ITEMS, KINDS };

struct command {
    enum kind kind;
    unsigned name, other;
    unsigned items[BATCH];
};

static struct command random_command(unsigned *state)
{
    static const unsigned char weights[KINDS] = {
        [ADD] = 60, [EXISTS] = 60, [MADD] = 10, [MEXISTS] = 10, [DEL] = 3,     [RENAME] = 3,    [RESERVE] = 2,
        [CARD] = 4, [DBSIZE] = 2,  [KEYS] = 1,  [PING] = 3,     [UNKNOWN] = 1, [INFO_ITEMS] = 3};
    struct command c = {0};
    unsigned total = 0, at;
    for (int k = 0; k < KINDS; k++)
        total += weights[k];
    at = (unsigned)rand_r(state) % total;
    while (at >= weights[c.kind])
        at -= weights[c.kind++];
    c.name = (unsigned)rand_r(state) % NAMES;
    c.other = (unsigned)rand_r(state) % NAMES;
    for (int i = 0; i < BATCH; i++)
        c.items[i] = (unsigned)rand_r(state) % ITEMS;
    return c;
}

static void send_command(redisContext *client, const struct command *c)
{
    const unsigned *i = c->items;
    switch (c->kind) {
    case ADD:
        redisAppendCommand(client, "BF.ADD f%u i%u", c->name, i[0]);
        break;
    case EXISTS:
        redisAppendCommand(client, "bf.exists f%u i%u", c->name, i[0]);
        break;
    case MADD:
        redisAppendCommand(client, "BF.MADD f%u i%u i%u i%u i%u i%u i%u i%u", c->name, i[0], i[1], i[2], i[3], i[4],
                           i[5], i[6]);
        break;
    case MEXISTS:
        redisAppendCommand(client, "BF.MEXISTS f%u i%u i%u i%u i%u i%u i%u i%u", c->name, i[0], i[1], i[2], i[3], i[4],
                           i[5], i[6]);
        break;
    case DEL:
        redisAppendCommand(client, "DEL f%u", c->name);
        break;
    case RENAME:
        redisAppendCommand(client, "RENAME f%u f%u", c->name, c->other);
        break;
    case RESERVE:
        redisAppendCommand(client, "BF.RESERVE f%u %f 20", c->name, RATE);
        break;
    case CARD:
        redisAppendCommand(client, "BF.CARD f%u", c->name);
        break;
    case DBSIZE:
        redisAppendCommand(client, "DBSIZE");
        break;
    case KEYS:
        redisAppendCommand(client, "KEYS f*");
        break;
    case PING:
        redisAppendCommand(client, "PING");
        break;
    case UNKNOWN:
        redisAppendCommand(client, "NOSUCH f%u", c->name);
        break;
    default:
        redisAppendCommand(client, "BF.INFO f%u ITEMS", c->name);
        break;
    }
}

static void check_query(struct model *m, unsigned name, unsigned item, long long answer)
{
    bool present = m->exists[name] && m->has[name][item];
    cr_assert(!present || answer == 1, "i%u of f%u is absent", item, name);
    m->negatives += !present && m->exists[name];
    m->false_positives += !present && answer;
    cr_assert(m->exists[name] || answer == 0, "an item of a filter that does not exist");
}

static void check_add(struct model *m, unsigned name, unsigned item, long long answer)
{
    if (!m->exists[name]) {
        m->exists[name] = true;
        memset(m->has[name], 0, sizeof(m->has[name]));
        m->added[name] = 0;
    }
    cr_assert(!m->has[name][item] || answer == 0, "i%u was added to f%u twice", item, name);
    m->negatives += !m->has[name][item];
    m->false_positives += !m->has[name][item] && !answer;
    m->has[name][item] = true;
    m->added[name] += answer;
}

static long long count_filters(const struct model *m)
{
    long long n = 0;
    for (int i = 0; i < NAMES; i++)
        n += m->exists[i];
    return n;
}

static void check_rename(struct model *m, const struct command *c, const redisReply *reply)
{
    if (!m->exists[c->name]) {
        cr_assert_str_eq(reply->str, "ERR no such key");
        return;
    }
    cr_assert_str_eq(reply->str, "OK");
    if (c->name == c->other)
        return;
    m->exists[c->other] = true;
    memcpy(m->has[c->other], m->has[c->name], sizeof(m->has[0]));
    m->added[c->other] = m->added[c->name];
    m->exists[c->name] = false;
}

static void check_reply(struct model *m, const struct command *c, const redisReply *reply)
{
    switch (c->kind) {
    case ADD:
        check_add(m, c->name, c->items[0], reply->integer);
        break;
    case EXISTS:
        check_query(m, c->name, c->items[0], reply->integer);
        break;
    case MADD:
    case MEXISTS:
        cr_assert_eq(reply->elements, BATCH);
        for (int i = 0; i < BATCH; i++)
            (c->kind == MADD ? check_add : check_query)(m, c->name, c->items[i], reply->element[i]->integer);
        break;
    case DEL:
        cr_assert_eq(reply->integer, m->exists[c->name]);
        m->exists[c->name] = false;
        break;
    case RENAME:
        check_rename(m, c, reply);
        break;
    case RESERVE:
        cr_assert_str_eq(reply->str, m->exists[c->name] ? "ERR item exists" : "OK");
        if (!m->exists[c->name]) {
            m->exists[c->name] = true;
            memset(m->has[c->name], 0, sizeof(m->has[0]));
            m->added[c->name] = 0;
        }
        break;
    case CARD:
        cr_assert_eq(reply->integer, m->exists[c->name] ? m->added[c->name] : 0);
        break;
    case DBSIZE:
        cr_assert_eq(reply->integer, count_filters(m));
        break;
    case KEYS:
        cr_assert_eq((long long)reply->elements, count_filters(m));
        break;
    case PING:
        cr_assert_str_eq(reply->str, "PONG");
        break;
    case UNKNOWN:
        cr_assert_eq(strncmp(reply->str, "ERR unknown command 'NOSUCH'", 28), 0);
        break;
    default:
        if (m->exists[c->name])
            cr_assert_eq(reply->element[0]->integer, m->added[c->name]);
        else
            cr_assert_str_eq(reply->str, "ERR not found");
        break;
    }
}

DAEMON_TEST(the_daemon, pipeline, replies_are_those_of_one_by_one)
{
    static struct command sent[512];
    static struct model model;
    unsigned state = 20261121;
    redisContext *client = client_open(the_daemon.port);
    for (int done = 0; done < COMMANDS;) {
        int n = 1 + (int)((unsigned)rand_r(&state) % 400);
        for (int i = 0; i < n; i++) {
            sent[i] = random_command(&state);
            send_command(client, &sent[i]);
        }
        for (int i = 0; i < n; i++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK, "%s", client->errstr);
            check_reply(&model, &sent[i], reply);
            freeReplyObject(reply);
        }
        done += n;
    }
    /* Some hundred thousand negatives at 1e-4 give at most this many false positives, but once in a billion runs. */
    double expected = (double)model.negatives * RATE;
    cr_expect_lt((double)model.false_positives, expected + 6 * (1 + expected), "%lld of %lld", model.false_positives,
                 model.negatives);
    redisFree(client);
}

/* Most client libraries write a whole pipeline before they read the first reply. Whatever its size, up to
 * reply-buffer-limit: the server must not stop reading for good because its replies are not taken. */
DAEMON_TEST(the_daemon, pipeline, written_whole_before_a_reply_is_read)
{
    enum { PINGS = 40000, BYTES = 1000 }; /* far more than what the kernel keeps for a socket */
    const char *const args[] = {"--threads", "1", "--reply-buffer-high-water", "64kb", NULL};
    daemon_stop(&the_daemon);
    daemon_start(&the_daemon, args);
    redisContext *client = client_open(the_daemon.port);
    char *text = malloc(BYTES);
    memset(text, 'x', BYTES);
    for (int i = 0; i < PINGS; i++)
        cr_assert_eq(redisAppendCommand(client, "PING %b", text, (size_t)BYTES), REDIS_OK);
    for (int i = 0; i < PINGS; i++) {
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK, "reply %d: %s", i, client->errstr);
        cr_assert_eq(reply->len, BYTES);
        freeReplyObject(reply);
    }
    free(text);
    redisFree(client);
}
