/* Cuckoo filters in a stand-in engine. */
#include <stdint.h>
#include <string.h>

#include "rng.h"
#include "test_stand_in.h"

#define FULL "cf.reserve full 2 BUCKETSIZE 1 EXPANSION 0 MAXITERATIONS 1"

static void by_chunks(const char *from, const char *to)
{
    char line[128];
    for (long long iterator = 0;;) {
        size_t len;
        snprintf(line, sizeof(line), "cf.scandump %s %lld", from, iterator);
        EXPECT(sscanf(stand_in_run(line, NULL, 0), "*2 %lld", &iterator) == 1, "CF.SCANDUMP");
        if (iterator == 0)
            return;
        const void *bytes = stand_in_bytes(&len);
        void *chunk = malloc(len);
        memcpy(chunk, bytes, len);
        snprintf(line, sizeof(line), "cf.loadchunk %s %lld", to, iterator);
        EXPECT(strcmp(stand_in_run(line, chunk, len), "OK ") == 0, "CF.LOADCHUNK");
        free(chunk);
    }
}

/* Filters that keep a rate. */
static void rates(void)
{
    static const struct {
        const char *line, *error;
    } refused[] = {
        {"cf.reserve r 100 ERROR 0.0001", "-ERR ERROR must be in the range [0.000116, 1)"},
        {"cf.reserve r 100 ERROR 1", "-ERR ERROR must be in the range [0.000116, 1)"},
        {"cf.reserve r 100 ERROR x", "-ERR ERROR must be in the range [0.000116, 1)"},
        {"cf.reserve r 0 ERROR 0.01", "-Capacity must be in the range [1, 1073741824]"},
        {"cf.reserve r x ERROR 0.01", "-Bad capacity"},
        {"cf.reserve r 100 ERROR", "-ERR wrong number of arguments"},
        {"cf.reserve r 100 ERROR 0.01 EXPANSION", "-ERR wrong number of arguments"},
        {"cf.reserve r 100 ERROR 0.01 EXPANSION -1", "-EXPANSION: value must be in the range [0, 32768]"},
        {"cf.reserve r 100 ERROR 0.01 BUCKETSIZE 4", "-ERR syntax error: the options beside ERROR are"},
        {"cf.reserve r 100 KEYED", "-ERR KEYED needs ERROR rate"},
        {"cf.reserve r 100 ERROR 0.01 KEYED", "-ERR there is no key for new filters"},
        {"cf.insert r ERROR", "-ERR wrong number of arguments"},
        {"cf.insert r ERROR 0 ITEMS a", "-ERR ERROR must be in the range"},
        {"cf.insert r CAPACITY 0 ERROR 0.1 ITEMS a", "-Capacity must be in the range [1, 1073741824]"},
        {"cf.insert r KEYED ITEMS a", "-ERR KEYED needs ERROR rate"},
        {"cf.plan 100 ERROR 0.01 ITEMS 0", "-ERR ITEMS must be"},
        {"cf.plan 100 ERROR 0.001 ITEMS 100000000", "-ERR 100000000 items do not fit into 8 sub-filters"},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const char *reply = stand_in_run(refused[i].line, NULL, 0);
        EXPECT(strstr(reply, refused[i].error) == reply, "'%s' answers '%s'", refused[i].line, reply);
    }
    expect("cf.exists r a", "0 ");
    expect("cf.reserve r 1 ERROR 0.01 EXPANSION 0", "OK ");
    expect("cf.insert r ITEMS a a a a a a a a a", "*9 1 1 1 1 1 1 1 1 -1 ");
    expect("cf.add r a", "-Filter is full ");
    expect("cf.count r a", "8 ");
    expect("cf.insert r2 CAPACITY 1 ERROR 0.001 ITEMS a b", "*2 1 1 ");
    EXPECT(strncmp(stand_in_run("cf.info r2 FULL", NULL, 0), "*30 ", 4) == 0, "CF.INFO FULL");
    EXPECT(strncmp(stand_in_run("cf.plan 1000 ERROR 0.01", NULL, 0), "*14 ", 4) == 0, "CF.PLAN");
    by_chunks("r2", "r3");
    EXPECT(stand_in_save("r2") && stand_in_restore("r4", SIZE_MAX), "a save");
    stand_in_rewrite("r2", "r5");
    for (int i = 3; i <= 5; i++) {
        char line[32];
        snprintf(line, sizeof(line), "cf.mexists r%d a b c", i);
        expect(line, "*3 1 1 0 ");
    }
}

void cuckoo_scenario(void)
{
    expect("cf.reserve c 64 EXPANSION 2", "OK ");
    expect("cf.reserve c 64", "-ERR item exists ");
    expect("cf.add c a", "1 ");
    expect("cf.addnx c a", "0 ");
    expect("cf.insertnx c ITEMS a b", "*2 0 1 ");
    expect("cf.insert c ITEMS x x x x x x", "*6 1 1 1 1 1 1 ");
    expect("cf.mexists c a b z", "*3 1 1 0 ");
    expect("cf.exists c b", "1 ");
    expect("cf.exists nosuch b", "0 ");
    expect("cf.del c b", "1 ");
    expect("cf.del c b", "0 ");
    expect("cf.del nosuch b", "-Not found ");
    expect("cf.compact c", "OK ");
    expect("cf.count nosuch x", "0 ");
    expect(FULL, "OK ");
    expect("cf.insert full ITEMS a a a a a", "*5 1 -1 -1 -1 -1 ");
    expect("cf.add full a", "-Filter is full ");
    EXPECT(strncmp(stand_in_run("cf.info c", NULL, 0), "*16 ", 4) == 0, "CF.INFO");
    EXPECT(strncmp(stand_in_run("cf.info c FULL", NULL, 0), "*22 ", 4) == 0, "CF.INFO FULL");
    EXPECT(strstr(stand_in_run("cf.debug c", NULL, 0), "bktsize:2 buckets:32 items:"), "CF.DEBUG");
    expect("cf.add auto x", "1 ");
    expect("bf.exists auto x", "0 ");
    EXPECT(strstr(stand_in_run("bf.add auto x", NULL, 0), "WRONGTYPE"), "the other kind");
    by_chunks("c", "c2");
    EXPECT(stand_in_save("c") && stand_in_restore("c3", SIZE_MAX), "a save");
    stand_in_rewrite("c", "c4");
    for (int i = 2; i <= 4; i++) {
        char line[32];
        snprintf(line, sizeof(line), "cf.mexists c%d a b x z", i);
        expect(line, "*4 1 0 1 0 ");
    }
    rates();
    expect("cf.reserve large 3000000", "OK ");
    expect("cf.add large x", "1 ");
    expect("cf.exists large x", "1 ");
}

/* ---- replication ---- */

static void told(const char *line, const char *expected)
{
    stand_in_run(line, NULL, 0);
    const char *got = stand_in_replicated();
    EXPECT(strcmp(got, expected) == 0, "'%s' tells '%s', not '%s'", line, got, expected);
}

static void replication(const void *data)
{
    const char *const words[] = {"take-over", data, "cf-initial-size", "64", "cf-max-expansions", "2"};
    EXPECT(stand_in_load(MODULE_PATH, NULL, 6, words), "it has not loaded");
    told("cf.add f a", "cf.reserve f 64 BUCKETSIZE 2 MAXITERATIONS 20 EXPANSION 1\ncf.insert f ITEMS a\n");
    told("cf.add f a", "verbatim\n");
    told("cf.addnx f a", "");
    told("cf.addnx f b", "verbatim\n");
    told("cf.insert f ITEMS c d", "verbatim\n");
    told("cf.insert f CAPACITY 100 ITEMS c d", "cf.insert f ITEMS c d\n");
    told("cf.insertnx f ITEMS c d e", "cf.insert f ITEMS e\n");
    told("cf.insertnx f ITEMS c d e", "");
    told("cf.reserve expansion 100", "cf.loadchunk expansion 1 <38 bytes>\n");
    told("cf.reserve rate 100 ERROR 0.01", "cf.loadchunk rate 1 <64 bytes>\n");
    told("cf.insert rate2 ERROR 0.01 ITEMS a", "cf.loadchunk rate2 1 <64 bytes>\ncf.insert rate2 ITEMS a\n");
    told("cf.add rate a", "verbatim\n");
    told("cf.reserve f2 100 EXPANSION 3 BUCKETSIZE 4", "cf.reserve f2 100 BUCKETSIZE 4 MAXITERATIONS 20 EXPANSION 3\n");
    stand_in_run(FULL, NULL, 0);
    (void)stand_in_replicated();
    told("cf.insert full ITEMS a a a a", "cf.insert full ITEMS a\n");
    told("cf.insert full ITEMS a a a a", "");
    told("cf.add full a", "");
    told("cf.del f c", "verbatim\n");
    told("cf.del f nothing", "");
    told("cf.compact f", "verbatim\n"); /* the count of deletions */
    told("cf.compact f", "");
    told("cf.exists f a", "");
    stand_in_run("cf.insert many ITEMS q q q q q q q q q q", NULL, 0);
    (void)stand_in_replicated();
    told("cf.add many r", ""); /* it has more sub-filters than its clients may ask for */
    stand_in_obey(true);
    told("cf.add many r", "verbatim\n");
    stand_in_obey(false);
    stand_in_end();
}

/* ---- values ---- */

/* They have no checksum: what is taken can be used as any filter, and is saved and loaded again. */
static void values(const void *data)
{
    static const char *const uses[] = {"cf.insert bad ITEMS p p p p p p p p",
                                       "cf.insertnx bad ITEMS a q r s t u v",
                                       "cf.mexists bad a p",
                                       "cf.count bad p",
                                       "cf.del bad p",
                                       "cf.del bad p",
                                       "cf.del bad a",
                                       "cf.compact bad",
                                       "cf.info bad FULL",
                                       "cf.debug bad",
                                       "cf.scandump bad 1",
                                       "cf.scandump bad 7",
                                       "cf.loadchunk bad 2 x",
                                       "cf.insert bad ITEMS a b c d e f g h i j"};
    struct rng rng;
    unsigned taken = 0;
    rng_init(&rng, 15);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, data), "it has not loaded");
    size_t before = stand_in_held();
    for (int i = 0; i < 2000; i++) {
        stand_in_run("cf.insert good CAPACITY 8 ITEMS a b c d e f g h i j k l m n", NULL, 0);
        stand_in_run("cf.del good a", NULL, 0);
        stand_in_save("good");
        size_t fields = stand_in_saved_fields();
        if ((size_t)i < fields)
            EXPECT(!stand_in_restore("bad", (size_t)i), "%d of %zu fields were taken", i, fields);
        EXPECT(i > 0 || stand_in_restore("same", SIZE_MAX), "what was saved is refused");
        for (size_t flips = 1 + (size_t)rng_below(&rng, 2); flips > 0; flips--)
            stand_in_damage((size_t)rng_below(&rng, fields), (size_t)rng_below(&rng, 1u << 20),
                            (unsigned char)(1u << rng_below(&rng, 8)));
        if (use_restored(uses, sizeof(uses) / sizeof(uses[0]))) {
            taken++;
            stand_in_rewrite("bad", "rewritten");
        }
        stand_in_end();
    }
    EXPECT(taken > 100, "%u were taken", taken);
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

/* Damaged headers of CF.LOADCHUNK, and chunks wherever they may point to. */
static void chunks(const void *data)
{
    static const char *const arguments[] = {"bf-max-filter-bytes", "10000000"};
    struct rng rng;
    size_t len;
    (void)data;
    rng_init(&rng, 16);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, arguments), "it has not loaded");
    stand_in_run("cf.insert good CAPACITY 8 ITEMS a b c d e f g h i j k l m n", NULL, 0);
    stand_in_run("cf.scandump good 0", NULL, 0);
    const void *bytes = stand_in_bytes(&len);
    unsigned char header[64], bad[64];
    EXPECT(len <= sizeof(header), "a long header");
    memcpy(header, bytes, len);
    for (int i = 0; i < 3000; i++) {
        char line[64];
        memcpy(bad, header, len);
        for (size_t flips = (size_t)rng_below(&rng, 3); flips > 0; flips--)
            bad[rng_below(&rng, len)] ^= (unsigned char)(1u << rng_below(&rng, 8));
        stand_in_run("cf.loadchunk bad 1", bad, len - (rng_below(&rng, 8) == 0));
        for (int chunk = 0; chunk < 8; chunk++) {
            long long iterator = (long long)rng_below(&rng, 60) - 5;
            if (rng_below(&rng, 8) == 0)
                iterator = (long long)(UINT64_C(1) << rng_below(&rng, 63)) + iterator;
            snprintf(line, sizeof(line), "cf.loadchunk bad %lld", iterator);
            stand_in_run(line, header, rng_below(&rng, len));
        }
        stand_in_run("cf.insert bad NOCREATE ITEMS p q r s t u v", NULL, 0);
        stand_in_run("cf.compact bad", NULL, 0);
        stand_in_end();
    }
}

/* While another thread frees filters, this one makes some, grows, deletes and compacts. */
void cuckoo_freed_in_the_background(const void *data)
{
    (void)data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    size_t before = stand_in_held();
    for (int i = 0; i < 50; i++) {
        expect("cf.reserve f 200000", "OK ");
        expect("cf.add f x", "1 ");
        stand_in_run("cf.insert small CAPACITY 4 ITEMS a b c d e f g h i j k", NULL, 0);
        stand_in_unlink("f");
        expect("cf.exists f x", "0 ");
        expect("cf.reserve f 200000", "OK ");
        expect("cf.insert f ITEMS x x x x x x x", "*7 1 1 1 1 1 1 1 ");
        expect("cf.del f x", "1 ");
        expect("cf.compact f", "OK ");
        expect("cf.exists small k", "1 ");
        stand_in_unlink("f");
    }
    stand_in_end();
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

void test_cuckoo(void)
{
    in_a_process("cuckoo filters are told", replication, "no");
    in_a_process("cuckoo filters are told, taken over", replication, "yes");
    in_a_process("cuckoo values", values, prefix);
    in_a_process("cuckoo values, taken over", values, take_over);
    in_a_process("cuckoo chunks", chunks, NULL);
}
