/* The recorded conversations with Redis and RedisBloom, played against the daemon in both versions of the protocol,
 * each also byte by byte. All differences must be in tests/golden/corpus/DIFFERENCES.md. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "corpus.h"
#include "daemon.h"
#include "tmpdir.h"

#define STRING_OF(number) #number
#define STRING(number)    STRING_OF(number)

static void play_under(const char *topic, bool valkey)
{
    static const char protocols[] = {2, 3};
    struct corpus_result sum = {0, 0, 0};
    struct compat compat;
    char file[3] = {topic[0], topic[1], '\0'}, path[512];

    compat_load(&compat, BLOOMERY_GOLDEN_DIR "/corpus/DIFFERENCES.md", file);
    for (size_t i = 0; i < 4; i++) {
        struct daemon daemon = {0};
        struct corpus_result result;
        struct corpus corpus;
        int resp = protocols[i % 2];

        daemon_prepare(&daemon);
        struct tmp_path socket = tmp_path(daemon.dir, "socket");
        /* On a busy machine a command may take longer than the slow log's limit of 10 ms. */
        const char *const args[] = {"--slowlog-log-slower-than",
                                    "60000000",
                                    "--unixsocket",
                                    socket.text,
                                    "--threads",
                                    STRING(CORPUS_THREADS),
                                    valkey ? "--bf-compatibility" : NULL,
                                    "valkey",
                                    "--bf-max-filter-bytes",
                                    "134217728",
                                    NULL};
        snprintf(path, sizeof(path), BLOOMERY_GOLDEN_DIR "/corpus/%s.resp%d.replies", topic, resp);
        corpus_load(&corpus, path);
        daemon_start(&daemon, args);
        result = corpus_play(&corpus, daemon.port, i < 2 ? NULL : socket.text, resp, &compat);
        daemon_deinit(&daemon);
        cr_assert_eq(result.cases, corpus.count);
        corpus_result_add(&sum, result);
        corpus_deinit(&corpus);
    }
    corpus_judge(topic, &sum, &compat, 0, "DIFFERENCES.md");
    compat_deinit(&compat);
}

static void play(const char *topic)
{
    play_under(topic, false);
}

/* BF.RESERVE: parameters and their refusals. */
Test(corpus, reserve)
{
    play("01_reserve");
}

/* Adds and queries, single and in batches; binary items; wrong types. */
Test(corpus, add_and_exists)
{
    play("02_add_exists");
}

/* BF.INSERT with all its options. */
Test(corpus, insert)
{
    play("03_insert");
}

/* BF.INFO and BF.CARD. */
Test(corpus, info_and_card)
{
    play("04_info_card");
}

/* BF.SCANDUMP and BF.LOADCHUNK. */
Test(corpus, dump_and_load)
{
    play("05_scandump");
}

/* Keys: DEL, RENAME, TYPE, SCAN and the like. */
Test(corpus, keyspace)
{
    play("07_keyspace");
}

/* MULTI, EXEC, DISCARD, WATCH. */
Test(corpus, transactions)
{
    play("08_multi");
}

/* The protocol itself, well-formed and not. */
Test(corpus, protocol)
{
    play("09_proto");
}

/* The commands that client libraries send when they connect. */
Test(corpus, connect)
{
    play("10_connect");
}

/* Filters that are too large for any machine. */
Test(corpus, too_large)
{
    play("12_oom");
}

/* Passwords. */
Test(corpus, authentication)
{
    play("13_auth");
}

/* Memory limits and related commands. */
Test(corpus, limits)
{
    play("14_limits");
}

/* Cuckoo filters: CF.*, and the replies of other commands about them. */
Test(corpus, cuckoo)
{
    play("15_cuckoo");
}

/* The conversation with Valkey and valkey-bloom, and its limit of a filter. */
Test(corpus, valkey)
{
    play_under("17_valkeybloom", true);
}
