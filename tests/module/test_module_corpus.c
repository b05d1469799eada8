/* The recorded conversations with Redis and RedisBloom about filters, played against redis-server with the module, in
 * both versions of the protocol, each also byte by byte. What differs must be in the section "Filters" of
 * tests/golden/corpus/DIFFERENCES.md, where it holds for the daemon, too, or in DIFFERENCES-module.md; and what is in
 * the latter must differ. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "corpus.h"
#include "daemon.h"
#include "tmpdir.h"

static struct corpus_result play_once(const char *topic, int resp, bool dripping, struct compat *compat)
{
    struct daemon host = {.engine = true};
    struct corpus_result result;
    struct corpus corpus;
    char path[512];

    daemon_prepare(&host);
    struct tmp_path socket = tmp_path(host.dir, "socket");
    const char *const args[] = {"--unixsocket", socket.text, "--loadmodule", MODULE_PATH, NULL};
    snprintf(path, sizeof(path), BLOOMERY_GOLDEN_DIR "/corpus/%s.resp%d.replies", topic, resp);
    corpus_load(&corpus, path);
    daemon_start(&host, args);
    result = corpus_play(&corpus, host.port, dripping ? socket.text : NULL, resp, compat);
    daemon_deinit(&host);
    cr_assert_eq(result.cases, corpus.count);
    corpus_deinit(&corpus);
    return result;
}

static void play(const char *topic)
{
    struct corpus_result sum = {0, 0, 0};
    char file[3] = {topic[0], topic[1], '\0'};
    struct compat compat = {NULL, 0};
    size_t shared;

    compat_add(&compat, BLOOMERY_GOLDEN_DIR "/corpus/DIFFERENCES.md", "## Filters", file);
    shared = compat.count;
    compat_add(&compat, BLOOMERY_GOLDEN_DIR "/corpus/DIFFERENCES-module.md", NULL, file);
    for (int i = 0; i < 4; i++) {
        corpus_result_add(&sum, play_once(topic, 2 + i % 2, i >= 2, &compat));
    }
    corpus_judge(topic, &sum, &compat, shared, "DIFFERENCES-module.md");
    compat_deinit(&compat);
}

/* BF.RESERVE: parameters and their refusals. */
Test(module_corpus, reserve)
{
    play("01_reserve");
}

/* Adds and queries, single and in batches; binary items; wrong types. */
Test(module_corpus, add_and_exists)
{
    play("02_add_exists");
}

/* BF.INSERT with all its options. */
Test(module_corpus, insert)
{
    play("03_insert");
}

/* BF.INFO and BF.CARD. */
Test(module_corpus, info_and_card)
{
    play("04_info_card");
}

/* BF.SCANDUMP and BF.LOADCHUNK. */
Test(module_corpus, dump_and_load)
{
    play("05_scandump");
}

/* MULTI, EXEC, DISCARD, WATCH. */
Test(module_corpus, transactions)
{
    play("08_multi");
}

/* Filters that are too large for any machine. */
Test(module_corpus, too_large)
{
    play("12_oom");
}
