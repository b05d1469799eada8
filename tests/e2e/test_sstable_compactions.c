/* sstable-dir during compactions: a key goes from one SSTable into the next, which is complete before the previous
 * one is removed. At no moment does BF.FIND report that no SSTable has it. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rng.h"
#include "sstables_rig.h"
#include "tmpdir.h"

TestSuite(sstable_compactions, .fini = discard, .timeout = 3000);

/* A filter without keys. */
static const unsigned char empty_file[16] = {0, 0, 0, 5, 0, 0, 0, 1};

static const char *const folders[] = {"data1/ks/t-" ID, "data1/ks/t-" ID "/staging", "data2/ks/t-" ID};

#define OTHERS 1000

/* SSTables without the key; the names of those with it sort between them. */
static void write_others(void)
{
    char path[200];
    write_sstable("first/nb-1-big-Filter.db", empty_file, sizeof(empty_file));
    for (int i = 0; i < OTHERS; i++) { /* links: separate files take long on a busy disk */
        snprintf(path, sizeof(path), "%s/nb-%d-big-Filter.db", folders[i % 3], 1000 + i);
        link_to_first(path);
    }
    cr_assert_eq(rename(below_root("first"), below_root("../first")), 0);
}

/* ---- the database ---- */

static struct rng the_rng;
static char live[200]; /* the path of the Filter.db of the SSTable that has the key */
static unsigned generation;

/* Own buffers for paths: below_root() is the other thread's. */
static void component(char out[600], const char *filter, const char *name)
{
    snprintf(out, 600, "%s/%s", root, filter);
    strcpy(strstr(out, "Filter.db"), name);
}

static void write_component(const char *filter, const char *name, const void *bytes, size_t len)
{
    char path[600];
    component(path, filter, name);
    file_write(path, bytes, len);
}

static void remove_component(const char *filter, const char *name)
{
    char path[600];
    component(path, filter, name);
    if (unlink(path) != 0)
        abort();
}

/* Writes the next SSTable of the key in one of the directories, and removes the previous one. */
static void compact(void)
{
    char next[200];
    generation++;
    snprintf(next, sizeof(next), "%s/nb-%u%s-big-Filter.db", folders[rng_below(&the_rng, 3)],
             5000 + generation * 7919 % 1000000 * 1000, rng_below(&the_rng, 2) ? "" : "z_0000_x");
    write_component(next, "Data.db", "", 0);
    write_component(next, "Filter.db", na_file, sizeof(na_file));
    write_component(next, "TOC.txt", "Filter.db\n", 10);
    if (*live) {
        remove_component(live, "Data.db");
        remove_component(live, "Filter.db");
        remove_component(live, "TOC.txt");
    }
    strcpy(live, next);
}

static atomic_bool ended;

struct work {
    int compactions;
    unsigned pause_us; /* at most, between two */
};

static void *compact_all(void *arg)
{
    const struct work *work = arg;
    for (int i = 0; i < work->compactions; i++) {
        compact();
        if (rng_below(&the_rng, 4) != 0) /* otherwise several in a row */
            usleep((useconds_t)rng_below(&the_rng, work->pause_us));
    }
    atomic_store(&ended, true);
    return NULL;
}

/* ---- the readers ---- */

struct seen {
    int asked, found, unknown;
    long long round;
};

/* A few filters are looked up on the loop, many in the background, in steps. One of the items is the key. */
static redisReply *ask_for_key(bool many)
{
    const char *words[260] = {"BF.FIND", "ks.t/*", "KEY", "text:k"};
    int n = 4;
    for (int i = 0; many && i < 200; i++)
        words[n++] = "text:other";
    redisReply *reply = redisCommandArgv(client, n, words, NULL);
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 8, "%s",
              reply ? reply->str : client->errstr);
    return reply;
}

/* The key must be somewhere: it is found, or an SSTable is named as unknown. */
static void look_for_key(struct seen *seen, bool many)
{
    redisReply *reply = ask_for_key(many);
    size_t found = reply->element[3]->element[0]->elements, unknown = reply->element[5]->elements / 2;
    cr_assert_str_eq(reply->element[6]->str, "round");
    long long round = reply->element[7]->integer;
    cr_assert_geq(round, seen->round);
    cr_assert_gt(found + unknown, 0, "nobody has the key in round %lld, question %d (%s), after compaction %u", round,
                 seen->asked, many ? "many" : "few", generation);
    cr_assert_geq(reply->element[1]->integer + (long long)unknown, OTHERS + 1);
    seen->round = round;
    seen->asked++;
    seen->found += found > 0;
    seen->unknown += unknown > 0;
    freeReplyObject(reply);
}

static void wait_for_the_last_only(void)
{
    const char *generation_of = strrchr(live, '/') + strlen("/nb-");
    char expected[200];
    snprintf(expected, sizeof(expected), "[\"asked\",:1001,\"found\",[[\"ks.t/%.*s\"]],\"unknown\",[]]",
             (int)(strstr(generation_of, "-big") - generation_of), generation_of);
    wait_for(expected, "BF.FIND ks.t/* KEY text:k");
}

static void churn(struct work work)
{
    struct seen seen = {.round = 1};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, compact_all, &work), 0);
    for (unsigned i = 0; !atomic_load(&ended); i++)
        look_for_key(&seen, i % 8 == 7);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    fprintf(stderr, "%d compactions, %d questions: found in %d, with unknown ones in %d; round %lld\n",
            work.compactions, seen.asked, seen.found, seen.unknown, seen.round);
    cr_assert(seen.found > seen.asked / 10 || work.pause_us <= 1); /* it is faster than files can be read */
    wait_for_the_last_only();
    look_for_key(&seen, false);
    cr_assert_gt(seen.round, 1);
    long long filters = client_info(client, "bf", "sstable_filters");
    cr_assert_eq(filters, OTHERS + 1, "all others are forgotten: %lld", filters);
}

static int compactions_from_environment(int usual)
{
    const char *text = getenv("BLOOMERY_COMPACTIONS");
    return text ? atoi(text) : usual;
}

static void begin(uint64_t seed)
{
    rng_init(&the_rng, seed);
    prepare();
    write_others();
    compact();
}

DAEMON_TEST(the_daemon, sstable_compactions, lose_no_key)
{
    begin(1);
    start();
    struct seen seen = {.round = 1};
    look_for_key(&seen, false);
    churn((struct work){compactions_from_environment(600), 10000});
}

/* Faster than checks of the directories: SSTables come and go between two checks. */
DAEMON_TEST(the_daemon, sstable_compactions, lose_no_key_without_a_pause)
{
    begin(2);
    start();
    churn((struct work){compactions_from_environment(3000), 1});
}
