/* All clients wait while a transaction runs, so it is short: what is refused when it is queued, and what is not. */
#include <criterion/criterion.h>
#include <string.h>

#include "client.h"
#include "daemon.h"

DAEMON_SUITE(the_daemon, transaction_limits, "--threads", "2");

/* All clients wait while a transaction runs. So what may take long is refused when it is queued, and with it all. */
DAEMON_TEST(the_daemon, transaction_limits, what_takes_long_is_refused_when_queued)
{
    static const char *const refused[] = {
        "SAVE",
        "SHUTDOWN NOSAVE",
        "KEYS *",
        "FLUSHALL",
        "FLUSHDB",
        "INFO",
        "DUMP f",
        "RESTORE g 0 x",
        "COPY f g",
        "BF.MERGE g f",
        "BF.SCANDUMP f 0",
        "BF.LOADCHUNK g 1 x",
        "CLIENT LIST",
        "CLIENT KILL ID 99999",
        "CONFIG REWRITE",
        "CONFIG RESETSTAT",
        "SLOWLOG GET",
        "LATENCY HISTOGRAM",
        "MEMORY STATS",
        "MEMORY DOCTOR",
        "MEMORY PURGE",
        "MEMORY MALLOC-STATS",
        "PUBSUB CHANNELS",
        "PUBSUB SHARDCHANNELS",
    };
    redisContext *c = client_open(the_daemon.port);
    expect(c, ":1", "BF.ADD f x");
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        expect(c, "+OK", "MULTI");
        expect(c, "+QUEUED", "BF.ADD f y");
        const char *reply = client_ask(c, refused[i]);
        cr_expect(strstr(reply, "-ERR") == reply && (i < 2 || strstr(reply, "call it outside of MULTI")), "%s: %s",
                  refused[i], reply);
        expect(c, "-EXECABORT Transaction discarded because of previous errors.", "EXEC");
    }
    expect(c, ":1", "BF.CARD f");
    redisFree(c);
}

/* Of those that defer in some forms only, these forms are errors in their place; they write nothing. The others run. */
DAEMON_TEST(the_daemon, transaction_limits, short_forms_run_in_their_place)
{
    redisContext *c = client_open(the_daemon.port);
    expect(c, ":1", "BF.ADD f x");
    expect(c, "+OK", "MULTI");
    expect(c, "+QUEUED", "SCAN 0 COUNT 100");
    expect(c, "+QUEUED", "SCAN 0 MATCH f* COUNT 100");
    expect(c, "+QUEUED", "BF.INFO f ITEMS");
    expect(c, "+QUEUED", "BF.CLEAR f");
    expect(c, "+QUEUED", "BF.CARD f");
    expect(c,
           "[[\"0\",[\"f\"]],-ERR this call of 'scan' may take long: it is not run in a transaction,"
           "[:1],+OK,:0]",
           "EXEC");
    redisFree(c);
}

/* So many words, or so many slow commands, that others would wait for long: refused when it is one too many. */
DAEMON_TEST(the_daemon, transaction_limits, long_ones_are_refused)
{
    static const char *const calls[] = {"PING", "BF.ADD f x", "BF.RESERVE f 0.01 100", "CONFIG GET *"};
    static const int most[] = {65536, 10922, 744, 81};
    redisContext *c = client_open(the_daemon.port);
    for (int i = 0; i < 4; i++) {
        redisReply *reply = NULL;
        int queued = 0;
        expect(c, "+OK", "MULTI");
        for (int j = 0; j < 70000; j++)
            redisAppendCommand(c, calls[i]);
        for (int j = 0; j < 70000; j++) {
            cr_assert_eq(redisGetReply(c, (void **)&reply), REDIS_OK);
            if (reply->type == REDIS_REPLY_ERROR)
                cr_assert(strstr(reply->str, "the transaction is too long"), "%s", reply->str);
            else if (queued == j)
                queued++;
            freeReplyObject(reply);
        }
        cr_expect_leq(queued, most[i], "%s: %d", calls[i], queued);
        cr_expect_gt(queued, most[i] / 2, "%s: %d", calls[i], queued);
        expect(c, "-EXECABORT Transaction discarded because of previous errors.", "EXEC");
    }
    redisFree(c);
}

/* EXEC compares all names that are watched while everybody waits: they are few. */
DAEMON_TEST(the_daemon, transaction_limits, watched_names_are_bounded)
{
    redisContext *c = client_open(the_daemon.port);
    for (int i = 0; i < 4096; i++)
        redisAppendCommand(c, "WATCH w%d", i);
    client_skip(c, 4096);
    expect(c, "-ERR a client can watch at most 4096 names", "WATCH one-more");
    expect(c, "+OK", "UNWATCH");
    expect(c, "+OK", "WATCH one-more");
    redisFree(c);
}
