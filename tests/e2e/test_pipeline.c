/* Random pipelines on one connection against a simple model: with any commands that run ahead, are deferred or wait
 * in between, every reply equals that of running the commands one by one in their order. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "tmpdir.h"
#include "wait.h"

#define NAMES    6
#define ITEMS    300
#define BATCH    7
#define COMMANDS 60000
#define RATE     0.0001

DAEMON_SUITE(the_daemon, pipeline, "--threads", "2", "--bf-error-rate", "0.0001");

/* The state of a watched name: which filter it has, and how many items that has counted. */
struct version {
    unsigned filter; /* 0: none */
    long long added;
};

#define QUEUE 64

/* The expected content of the daemon, and the state of the connection's transaction. An item that seemed to be
 * present counts as added. */
struct model {
    bool exists[NAMES];
    bool has[NAMES][ITEMS];
    long long added[NAMES];
    unsigned filter[NAMES]; /* a number that no earlier filter had */
    unsigned filters;
    bool multi, tainted;
    const struct command *queue[QUEUE];
    size_t queued;
    bool watched[NAMES];
    struct version watch[NAMES];
    long long executed, refused; /* EXECs that ran their queue, and EXECs refused because a watched name had changed */
    long long false_positives;   /* seen so far */
    long long negatives;         /* items absent in the model at the query */
};

enum kind {
    ADD,
    EXISTS,
    MADD,
    MEXISTS,
    DEL,
    RENAME,
    RESERVE,
    CARD,
    DBSIZE,
    KEYS,
    PING,
    UNKNOWN,
    INFO_ITEMS,
    KINDS,
    MULTI,
    EXEC,
    DISCARD,
    WATCH,
    UNWATCH
};

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

/* The next command of a sequence with transactions; `in_multi` is the state of the transaction. */
static struct command next_command(unsigned *state, unsigned *in_multi)
{
    struct command c = random_command(state);
    unsigned dice = (unsigned)rand_r(state) % 100;
    if (*in_multi) {
        if (dice < 15 || *in_multi == QUEUE) {
            c.kind = dice < 2 ? DISCARD : EXEC;
            *in_multi = 0;
        } else if (dice < 16) {
            c.kind = dice % 2 ? MULTI : WATCH; /* errors that do not fail the transaction */
        } else {
            *in_multi += 1;
            if (c.kind == UNKNOWN && dice < 80)
                c.kind = PING; /* most transactions should run */
            if (c.kind == KEYS)
                c.kind = DBSIZE; /* KEYS is refused in transactions */
        }
    } else if (dice < 3) {
        c.kind = MULTI;
        *in_multi = 1;
    } else if (dice < 5) {
        c.kind = WATCH;
    } else if (dice < 6) {
        c.kind = (rand_r(state) & 1) ? UNWATCH : (rand_r(state) & 1) ? EXEC : DISCARD;
    }
    return c;
}

static void send_command(redisContext *client, const struct command *c)
{
    static const struct {
        const char *format;
        enum { NONE, NAME, TWO_NAMES, NAME_AND_ITEMS } takes;
    } forms[] = {
        [ADD] = {"BF.ADD f%u i%u", NAME_AND_ITEMS},
        [EXISTS] = {"bf.exists f%u i%u", NAME_AND_ITEMS},
        [MADD] = {"BF.MADD f%u i%u i%u i%u i%u i%u i%u i%u", NAME_AND_ITEMS},
        [MEXISTS] = {"BF.MEXISTS f%u i%u i%u i%u i%u i%u i%u i%u", NAME_AND_ITEMS},
        [DEL] = {"DEL f%u", NAME},
        [RENAME] = {"RENAME f%u f%u", TWO_NAMES},
        [RESERVE] = {"BF.RESERVE f%u 0.0001 20", NAME},
        [CARD] = {"BF.CARD f%u", NAME},
        [DBSIZE] = {"DBSIZE", NONE},
        [KEYS] = {"KEYS f*", NONE},
        [PING] = {"PING", NONE},
        [UNKNOWN] = {"NOSUCH f%u", NAME},
        [INFO_ITEMS] = {"BF.INFO f%u ITEMS", NAME},
        [MULTI] = {"MULTI", NONE},
        [EXEC] = {"EXEC", NONE},
        [DISCARD] = {"DISCARD", NONE},
        [WATCH] = {"WATCH f%u f%u", TWO_NAMES},
        [UNWATCH] = {"UNWATCH", NONE},
    };
    const char *format = forms[c->kind].format;
    const unsigned *i = c->items;

    switch (forms[c->kind].takes) {
    case NONE:
        redisAppendCommand(client, format);
        break;
    case NAME:
        redisAppendCommand(client, format, c->name);
        break;
    case TWO_NAMES:
        redisAppendCommand(client, format, c->name, c->other);
        break;
    case NAME_AND_ITEMS: /* as many of them as the format takes */
        redisAppendCommand(client, format, c->name, i[0], i[1], i[2], i[3], i[4], i[5], i[6]);
        break;
    }
}

static void create(struct model *m, unsigned name)
{
    m->exists[name] = true;
    memset(m->has[name], 0, sizeof(m->has[name]));
    m->added[name] = 0;
    m->filter[name] = ++m->filters;
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
    if (!m->exists[name])
        create(m, name);
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
    m->filter[c->other] = m->filter[c->name];
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
        if (!m->exists[c->name])
            create(m, c->name);
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

static struct version version(const struct model *m, unsigned name)
{
    return m->exists[name] ? (struct version){m->filter[name], m->added[name]} : (struct version){0, 0};
}

static bool changed(const struct model *m)
{
    bool any = false;
    for (unsigned i = 0; i < NAMES; i++) {
        struct version now = version(m, i);
        any |= m->watched[i] && (now.filter != m->watch[i].filter || now.added != m->watch[i].added);
    }
    return any;
}

static void end_transaction(struct model *m)
{
    m->multi = m->tainted = false;
    m->queued = 0;
    memset(m->watched, 0, sizeof(m->watched));
}

static void check_exec(struct model *m, const redisReply *reply)
{
    if (!m->multi) {
        cr_assert_str_eq(reply->str, "ERR EXEC without MULTI");
        return;
    }
    if (m->tainted) {
        cr_assert_str_eq(reply->str, "EXECABORT Transaction discarded because of previous errors.");
    } else if (changed(m)) {
        cr_assert_eq(reply->type, REDIS_REPLY_NIL);
        m->refused++;
    } else {
        cr_assert_eq(reply->type, REDIS_REPLY_ARRAY);
        cr_assert_eq(reply->elements, m->queued);
        for (size_t i = 0; i < m->queued; i++)
            check_reply(m, m->queue[i], reply->element[i]);
        m->executed++;
    }
    end_transaction(m);
}

static void watch(struct model *m, unsigned name)
{
    if (m->watched[name])
        return; /* the first WATCH of a name counts */
    m->watched[name] = true;
    m->watch[name] = version(m, name);
}

/* Like check_reply(), with the differences in a transaction. */
static void check_in_sequence(struct model *m, const struct command *c, const redisReply *reply)
{
    switch (c->kind) {
    case MULTI:
        cr_assert_str_eq(reply->str, m->multi ? "ERR MULTI calls can not be nested" : "OK");
        m->multi = true;
        break;
    case EXEC:
        check_exec(m, reply);
        break;
    case DISCARD:
        cr_assert_str_eq(reply->str, m->multi ? "OK" : "ERR DISCARD without MULTI");
        if (m->multi)
            end_transaction(m);
        break;
    case WATCH:
        cr_assert_str_eq(reply->str, m->multi ? "ERR WATCH inside MULTI is not allowed" : "OK");
        if (!m->multi) {
            watch(m, c->name);
            watch(m, c->other);
        }
        break;
    case UNWATCH:
        cr_assert_str_eq(reply->str, "OK");
        memset(m->watched, 0, sizeof(m->watched));
        break;
    default:
        if (!m->multi || c->kind == UNKNOWN) {
            check_reply(m, c, reply);
            m->tainted = m->multi;
        } else {
            cr_assert_str_eq(reply->str, "QUEUED");
            m->queue[m->queued++] = c;
        }
        break;
    }
}

/* Sends random commands in random pipelines and compares the replies with the model. */
static void play(const char *name, unsigned seed, bool transactions, struct model *model)
{
    static struct command sent[1024];
    redisContext *client = client_open(the_daemon.port);
    unsigned state = seed, in_multi = 0;
    fprintf(stderr, "%s: seed %u\n", name, seed);
    for (int done = 0; done < COMMANDS;) {
        int n = 1 + (int)((unsigned)rand_r(&state) % 400);
        int sending = 0;
        while (sending < n || in_multi) { /* a transaction is not split before its EXEC */
            sent[sending] = transactions ? next_command(&state, &in_multi) : random_command(&state);
            send_command(client, &sent[sending++]);
        }
        for (int i = 0; i < sending; i++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK, "%s", client->errstr);
            check_in_sequence(model, &sent[i], reply);
            freeReplyObject(reply);
        }
        done += sending;
    }
    redisFree(client);
}

DAEMON_TEST(the_daemon, pipeline, transactions_are_those_of_one_by_one)
{
    static struct model model;
    play("transactions", 20261122, true, &model);
    cr_expect_gt(model.executed, 500);
    cr_expect_gt(model.refused, 100);
    cr_expect_gt(model.filters, 100);
}

DAEMON_TEST(the_daemon, pipeline, replies_are_those_of_one_by_one)
{
    static struct model model;
    play("commands", 20261121, false, &model);
    /* Some hundred thousand negatives at 1e-4 give at most this many false positives, except once in a billion runs. */
    double expected = (double)model.negatives * RATE;
    cr_expect_lt((double)model.false_positives, expected + 6 * (1 + expected), "%lld of %lld", model.false_positives,
                 model.negatives);
}

/* Most client libraries write a whole pipeline before they read the first reply. Up to reply-buffer-limit the server
 * must not stop reading for good because the replies are not read. */
DAEMON_TEST(the_daemon, pipeline, written_whole_before_a_reply_is_read)
{
    enum { PINGS = 40000, BYTES = 1000 }; /* far more than the kernel buffers for a socket */
    const char *const args[] = {"--threads", "1", "--reply-buffer-high-water", "64kb", NULL};
    daemon_stop(&the_daemon);
    redisContext *client = client_start(&the_daemon, args);
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
}

/* A DUMP may be larger than reply-buffer-limit. Replies before it that have not left, and behind it, are as usual. A
 * UNIX socket, because the kernel keeps little there. */
DAEMON_TEST(the_daemon, pipeline, replies_around_a_dump_that_is_larger_than_their_limit)
{
    static char text[64 << 10];
    int done = 0;
    daemon_stop(&the_daemon);
    struct tmp_path path = tmp_path(the_daemon.dir, "socket");
    const char *const args[] = {
        "--threads", "1", "--reply-buffer-limit", "1mb", "--reply-buffer-high-water", "1mb", "--unixsocket",
        path.text,   NULL};
    redisContext *other = client_start(&the_daemon, args), *slow = redisConnectUnix(path.text);
    expect(other, "+OK", "BF.RESERVE f 0.01 3000000");
    expect(other, "+OK", "CONFIG RESETSTAT");
    memset(text, 'x', sizeof(text));
    for (int i = 0; i < 10; i++)
        cr_assert_eq(redisAppendCommand(slow, "PING %b", text, sizeof(text)), REDIS_OK);
    cr_assert_eq(redisAppendCommand(slow, "DUMP f"), REDIS_OK);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(redisAppendCommand(slow, "PING %b", text, sizeof(text)), REDIS_OK);
    while (!done)
        cr_assert_eq(redisBufferWrite(slow, &done), REDIS_OK, "%s", slow->errstr);
    wait_until(strstr(client_ask(other, "INFO commandstats"), "cmdstat_ping:calls=20,") ||
               client_info(other, "stats", "client_output_buffer_limit_disconnections"));
    for (int i = 0; i < 21; i++) {
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(slow, (void **)&reply), REDIS_OK, "reply %d: %s", i, slow->errstr);
        cr_assert(i == 10 ? reply->len > 3u << 20 : reply->len == sizeof(text), "reply %d: %zu bytes", i, reply->len);
        freeReplyObject(reply);
    }
    redisFree(slow);
}
