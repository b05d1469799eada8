/* The module in a stand-in engine, under sanitizers, too: without each of the engine's functions, without memory at
 * each allocation, with values that come short or damaged. Every step has a fresh module, in a process of its own. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rng.h"
#include "stand_in.h"

#define EXPECT(condition, ...)                                        \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, step); \
            fprintf(stderr, __VA_ARGS__);                             \
            fprintf(stderr, "\n%s\n", stand_in_log());                \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static const char *step = "";
static const char *const prefix[] = {"prefix", "bf"};
static const char *const take_over[] = {"take-over", "yes"};

static void in_a_process(const char *name, void (*run)(const void *data), const void *data)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        step = name;
        run(data);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "%s: failed\n", name);
        exit(1);
    }
}

/* ---- functions that are missing ---- */

static void expect(const char *line, const char *reply)
{
    const char *got = stand_in_run(line, NULL, 0);
    EXPECT(strcmp(got, reply) == 0, "'%s' was answered '%s', not '%s'", line, got, reply);
}

/* Copies the filter by chunks; returns the reply to the last. */
static const char *by_chunks(const char *from, const char *to)
{
    char line[128];
    long long iterator = 0;
    for (;;) {
        snprintf(line, sizeof(line), "bf.scandump %s %lld", from, iterator);
        const char *reply = stand_in_run(line, NULL, 0);
        if (sscanf(reply, "*2 %lld", &iterator) != 1 || iterator == 0)
            return reply;
        size_t len;
        const void *bytes = stand_in_bytes(&len);
        void *chunk = malloc(len);
        memcpy(chunk, bytes, len);
        snprintf(line, sizeof(line), "bf.loadchunk %s %lld", to, iterator);
        reply = stand_in_run(line, chunk, len);
        free(chunk);
        if (strcmp(reply, "OK ") != 0)
            return reply;
    }
}

static void scenario(void)
{
    expect("bf.reserve f 0.01 1000", "OK ");
    expect("bf.reserve f 0.01 1000", "-ERR item exists ");
    expect("bf.reserve t 0.01 1000 TTL 100", "OK ");
    expect("bf.add f a", "1 ");
    expect("bf.add f a", "0 ");
    expect("bf.madd f a b c", "*3 0 1 1 ");
    expect("bf.mexists f a b z", "*3 1 1 0 ");
    expect("bf.insert g CAPACITY 2 NONSCALING ITEMS a b c d", "*3 1 1 -ERR non scaling filter is full ");
    expect("bf.insert s CAPACITY 2 ITEMS a b c d e f g h i j", "*10 1 1 1 1 1 1 1 1 1 1 ");
    expect("bf.info f ITEMS", "*1 3 ");
    expect("bf.card nosuch", "0 ");
    expect("bf.query nosuch MISSING NULL ITEMS a", "*1 null ");
    expect("bf.falsepositive f", "1 ");
    expect("bf.apply f ITEMS 1", "-ERR this command is for replication only ");
    EXPECT(strncmp(stand_in_run("bf.plan 0.01 1000", NULL, 0), "*20 ", 4) == 0, "BF.PLAN");
    EXPECT(strncmp(stand_in_run("bf.info f FULL", NULL, 0), "*42 ", 4) == 0, "BF.INFO FULL");
    EXPECT(strncmp(stand_in_run("bf.debug s", NULL, 0), "*", 1) == 0, "BF.DEBUG");
    expect("bf.reserve f2 0.01 1000", "OK ");
    expect("bf.add f2 y", "1 ");
    expect("bf.merge f f2", "OK ");
    expect("bf.mexists f a y z", "*3 1 1 0 ");
    expect("bf.clear f2", "OK ");
    expect("bf.exists f2 y", "0 ");
    EXPECT(strcmp(by_chunks("f", "copied"), "*2 0 \"\" ") == 0, "chunks");
    expect("bf.mexists copied a y z", "*3 1 1 0 ");
    EXPECT(stand_in_save("s") && stand_in_restore("saved", SIZE_MAX), "a save");
    expect("bf.mexists saved a j z", "*3 1 1 0 ");
    stand_in_rewrite("s", "rewritten");
    expect("bf.mexists rewritten a j z", "*3 1 1 0 ");
    expect("bf.reserve large 0.01 3000000", "OK ");
    expect("bf.add large x", "1 ");
    expect("bf.exists large x", "1 ");
}

/* RedisBloom's layout: bits in its chunks, values in its encoding where its place is taken. */
static void redisbloom_scenario(void)
{
    expect("bf.insert rb CAPACITY 4 LAYOUT REDISBLOOM ITEMS a b c d e f g", "*7 1 1 1 1 1 1 1 ");
    EXPECT(strcmp(by_chunks("rb", "rb2"), "*2 0 \"\" ") == 0, "RedisBloom's chunks");
    expect("bf.mexists rb2 a g z", "*3 1 1 0 ");
    EXPECT(stand_in_save("rb") && stand_in_restore("rb3", SIZE_MAX), "a save");
    expect("bf.mexists rb3 a g z", "*3 1 1 0 ");
    stand_in_rewrite("rb", "rb4");
    expect("bf.mexists rb4 a g z", "*3 1 1 0 ");
    expect("bf.merge rb4 rb", "OK ");
    expect("bf.clear rb4", "OK ");
    expect("bf.exists rb4 a", "0 ");

    stand_in_run("bf.scandump rb 0", NULL, 0);
    size_t len;
    const void *bytes = stand_in_bytes(&len);
    char *header = malloc(len);
    memcpy(header, bytes, len);
    EXPECT(strcmp(stand_in_run("bf.loadchunk half 1", header, len), "OK ") == 0, "a header");
    EXPECT(strcmp(stand_in_run("bf.loadchunk half 1", header, len), "OK ") == 0, "a header once more");
    EXPECT(strcmp(stand_in_run("bf.loadchunk half 3", "\1", 1), "OK ") == 0, "a byte");
    EXPECT(strcmp(stand_in_run("bf.loadchunk half 6", "\1", 1), "OK ") == 0, "another byte");
    EXPECT(strstr(stand_in_run("bf.loadchunk half 99999", "\1", 1), "-ERR received bad data"), "a byte too many");
    free(header);
    EXPECT(strstr(stand_in_run("bf.exists half a", NULL, 0), "being loaded"), "half of it");
    EXPECT(stand_in_save("half") && stand_in_restore("half2", SIZE_MAX), "half of it, saved");
    stand_in_rewrite("half", "half3");
    EXPECT(strstr(stand_in_run("bf.card half2", NULL, 0), "being loaded"), "half of it, loaded");
    EXPECT(strstr(stand_in_run("bf.card half3", NULL, 0), "being loaded"), "half of it, rewritten");
}

/* A window by items: parts of two, of which three are alive. */
static void window_scenario(void)
{
    expect("bf.reserve w 0.01 4 WINDOW ITEMS 4 PARTS 2", "OK ");
    expect("bf.madd w a b c d e", "*5 1 1 1 1 1 ");
    expect("bf.add w a", "0 ");
    expect("bf.madd w f g", "*2 1 1 ");
    expect("bf.mexists w a b c f g", "*5 0 0 1 1 1 ");
    expect("bf.card w", "5 ");
    EXPECT(strcmp(by_chunks("w", "copied"), "*2 0 \"\" ") == 0, "chunks");
    EXPECT(stand_in_save("w") && stand_in_restore("saved", SIZE_MAX), "a save");
    stand_in_rewrite("w", "rewritten");
    expect("bf.mexists copied a b c f g", "*5 0 0 1 1 1 ");
    expect("bf.mexists saved a b c f g", "*5 0 0 1 1 1 ");
    expect("bf.mexists rewritten a b c f g", "*5 0 0 1 1 1 ");
    expect("bf.insert t CAPACITY 2000000 ERROR 0.01 WINDOW 100 PARTS 4 REFRESH ITEMS a b", "*2 1 1 ");
    expect("bf.add t a", "0 ");
    expect("bf.clear t", "OK ");
    expect("bf.card t", "0 ");
    EXPECT(strstr(stand_in_run("bf.merge t w", NULL, 0), "-ERR"), "a union");
}

static void without_required(const void *data)
{
    const char *missing = data;
    EXPECT(!stand_in_load(MODULE_PATH, missing, 2, prefix), "it has loaded");
    EXPECT(strcmp(missing, "Log") == 0 || strstr(stand_in_log(), missing), "the log does not name it");
}

static void without_optional(const void *data)
{
    EXPECT(stand_in_load(MODULE_PATH, data, 2, prefix), "it has not loaded");
    size_t before = stand_in_held();
    scenario();
    stand_in_end();
    redisbloom_scenario();
    stand_in_end();
    window_scenario();
    stand_in_end();
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

static void taken_over(const void *data)
{
    (void)data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, take_over), "it has not loaded");
    size_t before = stand_in_held();
    scenario();
    stand_in_end();
    redisbloom_scenario();
    stand_in_end();
    (void)stand_in_replicated();
    stand_in_run("bf.madd f a b a", NULL, 0);
    const char *told = stand_in_replicated();
    EXPECT(strcmp(told, "bf.apply f MAKE <128 bytes>\nbf.reserve f 0.01 100 EXPANSION 2\nbf.madd f a b\n") == 0, "%s",
           told);
    stand_in_end();
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

/* ---- replication ---- */

static void replication(const void *data)
{
    (void)data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    stand_in_run("bf.madd f a b a", NULL, 0);
    const char *told = stand_in_replicated();
    EXPECT(strcmp(told, "bf.apply f MAKE <104 bytes>\nbf.madd f a b\n") == 0, "%s", told);
    stand_in_run("bf.madd f a b", NULL, 0);
    stand_in_run("bf.exists f a", NULL, 0);
    stand_in_run("bf.reserve f 0.1 5", NULL, 0);
    told = stand_in_replicated();
    EXPECT(*told == '\0', "%s", told);
    stand_in_run("bf.add f c", NULL, 0);
    told = stand_in_replicated();
    EXPECT(strcmp(told, "verbatim\n") == 0, "%s", told);
    stand_in_run("bf.insert g CAPACITY 2 ITEMS a b c d", NULL, 0);
    told = stand_in_replicated();
    EXPECT(strcmp(told,
                  "bf.apply g MAKE <104 bytes>\nbf.madd g a b\nbf.apply g LAYER 1 <104 bytes>\nbf.madd g c d\n") == 0,
           "%s", told);
    stand_in_run("bf.insert h CAPACITY 2 NONSCALING ITEMS a b c d", NULL, 0);
    told = stand_in_replicated();
    EXPECT(strcmp(told, "bf.apply h MAKE <104 bytes>\nbf.madd h a b\n") == 0, "%s", told);
    stand_in_run("bf.merge g g", NULL, 0);
    told = stand_in_replicated();
    EXPECT(*told == '\0', "%s", told);
    stand_in_run("bf.insert g2 CAPACITY 2 ITEMS x", NULL, 0);
    (void)stand_in_replicated();
    stand_in_run("bf.merge g2 g", NULL, 0);
    told = stand_in_replicated();
    EXPECT(strncmp(told, "verbatim\nbf.apply g2 ITEMS ", 27) == 0, "%s", told);
    stand_in_end();
}

static void expect_told(const char *line, const char *const *told)
{
    stand_in_run(line, NULL, 0);
    const char *all = stand_in_replicated(), *at = all;
    for (; *told; told++) {
        at = strstr(at, *told);
        EXPECT(at, "'%s' is not told in its place by '%s': %s", *told, line, all);
        at += strlen(*told);
    }
    EXPECT(strcmp(at, "\n") == 0 || (at == all && *at == '\0'), "'%s' tells more: %s", line, all);
}

/* The windows' own: the numbers between have the time. */
static void windows_told(const void *data)
{
    (void)data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    expect_told("bf.reserve w 0.01 4 WINDOW ITEMS 4 PARTS 2 REFRESH",
                (const char *const[]){"bf.apply w MAKE <144 bytes>", NULL});
    expect_told("bf.madd w a b c", (const char *const[]){"bf.apply w TURN 0 1 ", " <144 bytes>\nbf.madd w a b\n",
                                                         "bf.apply w TURN 1 2 ", " <144 bytes>\nbf.add w c", NULL});
    expect_told("bf.madd w c c", (const char *const[]){NULL}); /* the newest part has it */
    expect_told("bf.add w a", (const char *const[]){"verbatim", NULL});
    expect_told("bf.madd w a c d", (const char *const[]){"bf.apply w TURN 2 3 ", " <144 bytes>\nbf.add w d", NULL});
    expect_told("bf.clear w", (const char *const[]){"verbatim", NULL});
    /* Parts of 3 MB, two of which are alive: what is over is dropped by an add, and emptied by a timer. */
    expect_told("bf.insert large CAPACITY 2000000 ERROR 0.001 WINDOW ITEMS 1 PARTS 1 ITEMS a b c",
                (const char *const[]){"bf.apply large MAKE <144 bytes>\nbf.apply large TURN 0 1 ", "TURN 1 2 ",
                                      "TURN 2 3 ", "bf.add large c\nbf.apply large DROP 2", NULL});
    expect_told("bf.add large d", (const char *const[]){"bf.apply large TURN 0 4 ",
                                                        " <144 bytes>\nbf.add large d\nbf.apply large DROP 3", NULL});
    expect("bf.mexists large a b c d", "*4 0 0 1 1 ");
    expect_told("bf.clear w", (const char *const[]){NULL});
    /* Unions: the places begin with layer 0, a byte 0. */
    expect("bf.insert a CAPACITY 10 WINDOW 60 PARTS 2 ITEMS x", "*1 1 ");
    expect("bf.insert b CAPACITY 10 WINDOW 60 PARTS 2 ITEMS x y", "*2 1 1 ");
    expect_told("bf.merge u a b",
                (const char *const[]){"bf.apply u UNION <144 bytes> a  b \nbf.apply u ITEMS 2", NULL});
    expect_told("bf.merge u a u", (const char *const[]){NULL});
    expect("bf.mexists u x y z", "*3 1 1 0 ");
    stand_in_end();
}

static void obeyed(const char *line, const void *header, size_t len, const char *reply)
{
    const char *got = stand_in_run(line, header, len);
    EXPECT(strncmp(got, reply, strlen(reply)) == 0, "'%s' was answered '%s', not '%s'", line, got, reply);
}

/* What a primary says is carried out as it is, whatever the own clock and the own filter say. */
static void windows_obeyed(const void *data)
{
    (void)data;
    size_t len;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    expect("bf.reserve w 0.01 4 WINDOW ITEMS 4 PARTS 2", "OK ");
    stand_in_run("bf.scandump w 0", NULL, 0);
    const void *bytes = stand_in_bytes(&len);
    char *header = malloc(len);
    memcpy(header, bytes, len);
    stand_in_obey(true);
    obeyed("bf.apply v MAKE", header, len, "OK ");
    obeyed("bf.apply v TURN 0 7 1", header, len, "OK ");
    obeyed("bf.madd v a a a", NULL, 0, "*3 1 1 1 "); /* the part has two places */
    expect("bf.card v", "2 ");
    obeyed("bf.apply v TURN 1 8 1", header, len, "OK ");
    obeyed("bf.add v a", NULL, 0, "1 ");
    expect("bf.card v", "3 ");
    obeyed("bf.apply v TURN 3 9 1", header, len, "-ERR layer 3 of a window that has 2");
    obeyed("bf.apply v TURN 1 x 1", header, len, "-ERR it takes");
    obeyed("bf.apply v TURN 1 9", header, len, "-ERR it takes");
    obeyed("bf.apply v TURN 1 9 1", "x", 1, "-ERR ");
    obeyed("bf.apply v DROP", NULL, 0, "");
    obeyed("bf.apply v DROP x", NULL, 0, "-ERR it takes");
    obeyed("bf.apply v DROP 8", NULL, 0, "OK ");
    expect("bf.card v", "1 ");
    obeyed("bf.apply v TURN 0 9 1", header, len, "OK ");
    obeyed("bf.add v b", NULL, 0, "1 ");
    expect("bf.mexists v a b", "*2 1 1 ");
    obeyed("bf.apply u UNION", "x", 1, "-ERR ");
    obeyed("bf.apply u UNION", header, len, "OK ");
    expect("bf.card u", "0 ");
    obeyed("bf.reserve plain 0.1 10", NULL, 0, "OK ");
    obeyed("bf.apply plain TURN 1 9 1", header, len, "-ERR the filter is not a window");
    obeyed("bf.apply plain DROP 8", NULL, 0, "-ERR the filter is not a window");
    stand_in_obey(false);
    obeyed("bf.apply v DROP 9", NULL, 0, "-ERR this command is for replication only");
    free(header);
    stand_in_end();
}

/* A part of a union into which nothing went, as it ended on the primary while that made the union, is over here, too.
 */
static void union_of_what_is_over(const void *data)
{
    (void)data;
    size_t len;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    expect("bf.insert a CAPACITY 10 WINDOW 60 PARTS 2 ITEMS x", "*1 1 ");
    stand_in_run("bf.scandump a 0", NULL, 0);
    const void *bytes = stand_in_bytes(&len);
    char *header = malloc(len);
    memcpy(header, bytes, len);
    stand_in_obey(true);
    obeyed("bf.apply u UNION", header, len, "OK ");
    stand_in_obey(false);
    expect("bf.info u RING", "*1 *0 ");
    expect("bf.add u y", "1 ");
    EXPECT(strncmp(stand_in_run("bf.info u RING", NULL, 0), "*1 *1 ", 6) == 0, "the add has begun no part");
    free(header);
    stand_in_end();
}

/* ---- without memory ---- */

static const char *const changes[] = {
    "bf.reserve new 0.01 1000",
    "bf.reserve new 0.01 3000000",
    "bf.add new x",
    "bf.insert g CAPACITY 2 ITEMS c d e f g",
    "bf.insert w CAPACITY 300000 WINDOW ITEMS 2 PARTS 1 ITEMS a b c d e f g h",
    "bf.merge union g g2",
    "bf.merge g g2",
    "bf.merge union v v2",
    "bf.clear g",
};

static void fail_each(const void *data)
{
    const char *line = data;
    bool failed = true;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    for (size_t n = 1; failed; n++) {
        stand_in_end();
        size_t before = stand_in_held();
        stand_in_fail_allocation(0);
        stand_in_run("bf.insert g CAPACITY 2 ITEMS a b", NULL, 0);
        stand_in_run("bf.insert g2 CAPACITY 2 ITEMS y z w", NULL, 0);
        stand_in_run("bf.insert v CAPACITY 2 WINDOW 60 PARTS 1 ITEMS a b", NULL, 0);
        stand_in_run("bf.insert v2 CAPACITY 2 WINDOW 60 PARTS 1 ITEMS b c", NULL, 0);
        stand_in_fail_allocation(n);
        const char *reply = stand_in_run(line, NULL, 0);
        failed = stand_in_allocations() >= n;
        EXPECT(!failed || strchr(reply, '-') || strstr(line, "bf.insert"), "'%s' at allocation %zu: %s", line, n,
               reply);
        EXPECT(failed || !strchr(reply, '-'), "'%s' was answered %s", line, reply);
        stand_in_fail_allocation(0);
        if (failed)
            expect("bf.mexists g a b nothing", "*3 1 1 0 ");
        stand_in_end();
        EXPECT(stand_in_held() == before, "'%s' at allocation %zu leaves %zu", line, n, stand_in_held() - before);
    }
}

/* ---- values that come short or damaged ---- */

/* RedisBloom's values have no checksum: damage is found by the file's. Here nothing but an end is expected. */
static void redisbloom_values(const void *data)
{
    struct rng rng;
    (void)data;
    rng_init(&rng, 12);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, take_over), "it has not loaded");
    size_t before = stand_in_held();
    stand_in_run("bf.insert f CAPACITY 10 ITEMS a b c d e f g h i j k l m n", NULL, 0);
    stand_in_save("f");
    size_t fields = stand_in_saved_fields();
    for (size_t i = 0; i < fields; i++)
        EXPECT(!stand_in_restore("bad", i), "%zu of %zu fields were taken", i, fields);
    EXPECT(stand_in_restore("good", SIZE_MAX), "what was saved is refused");
    for (int i = 0; i < 2000; i++) {
        stand_in_save("f");
        size_t field = (size_t)rng_below(&rng, fields), byte = (size_t)rng_below(&rng, 1u << 20);
        stand_in_damage(field, byte, (unsigned char)(1u << rng_below(&rng, 8)));
        if (stand_in_restore("bad", SIZE_MAX))
            stand_in_run("bf.madd bad a b c", NULL, 0);
    }
    stand_in_end();
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

static void values(const void *data)
{
    struct rng rng;
    (void)data;
    rng_init(&rng, 11);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    stand_in_run("bf.insert f CAPACITY 100000 ITEMS a b c", NULL, 0);
    stand_in_save("f");
    size_t fields = stand_in_saved_fields();
    for (size_t i = 0; i < fields; i++)
        EXPECT(!stand_in_restore("bad", i) || i + 1 == fields, "%zu of %zu fields were taken", i, fields);
    EXPECT(stand_in_restore("good", SIZE_MAX), "what was saved is refused");
    for (int i = 0; i < 500; i++) {
        stand_in_save("f");
        size_t field = (size_t)rng_below(&rng, fields), byte = (size_t)rng_below(&rng, 1u << 20);
        stand_in_damage(field, byte, (unsigned char)(1u << rng_below(&rng, 8)));
        if (stand_in_restore("bad", SIZE_MAX)) /* fewer chunks than its header says: a filter that is being loaded */
            EXPECT(field == 0 && strstr(stand_in_run("bf.exists bad a", NULL, 0), "being loaded"),
                   "field %zu was taken", field);
    }
    stand_in_end();
}

/* Half of a filter in RedisBloom's layout, with two pieces. */
static void load_half(void)
{
    size_t len;
    stand_in_run("bf.insert rb CAPACITY 4 LAYOUT REDISBLOOM ITEMS a b c d e f g", NULL, 0);
    stand_in_run("bf.scandump rb 0", NULL, 0);
    const void *bytes = stand_in_bytes(&len);
    char *header = malloc(len);
    memcpy(header, bytes, len);
    stand_in_run("bf.loadchunk half 1", header, len);
    stand_in_run("bf.loadchunk half 3", "\1", 1);
    stand_in_run("bf.loadchunk half 6", "\1", 1);
    free(header);
}

/* They have no checksum either. */
static void half_values(const void *data)
{
    struct rng rng;
    unsigned taken = 0;
    rng_init(&rng, 14);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, data), "it has not loaded");
    size_t before = stand_in_held();
    for (int i = 0; i < 1500; i++) {
        load_half();
        stand_in_save("half");
        size_t field = (size_t)rng_below(&rng, stand_in_saved_fields());
        stand_in_damage(field, (size_t)rng_below(&rng, 1u << 20), (unsigned char)(1u << rng_below(&rng, 8)));
        if (stand_in_restore("bad", SIZE_MAX)) {
            taken++;
            stand_in_rewrite("bad", "again");
            for (int byte = 2; byte < 40; byte++) {
                char line[40];
                snprintf(line, sizeof(line), "bf.loadchunk bad %d", byte);
                stand_in_run(line, "\7", 1);
            }
            stand_in_run("bf.madd bad p q r s t", NULL, 0);
            EXPECT(stand_in_save("bad") && stand_in_restore("again", SIZE_MAX), "round %d: it cannot be loaded again",
                   i);
        }
        stand_in_end();
    }
    EXPECT(taken > 100, "%u were taken", taken);
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

/* Values with right checksums, as somebody may make them up: what is accepted can be used as any filter, and saved, and
 * is loaded again then. */
static void made_up(const void *line)
{
    static const char *const arguments[] = {"bf-max-filter-bytes", "10000000"};
    static const char *const uses[] = {"bf.madd bad p q r s t u v w x y z",
                                       "bf.mexists bad a p",
                                       "bf.merge union bad",
                                       "bf.merge good bad",
                                       "bf.merge bad good",
                                       "bf.info bad FULL",
                                       "bf.debug bad",
                                       "bf.card bad",
                                       "bf.insert bad ITEMS a b c d e f",
                                       "bf.scandump bad 0",
                                       "bf.madd union 1 2 3 4",
                                       "bf.add good 1",
                                       "bf.madd bad 5 6 7 8 9 10 11 12 13 14"};
    struct rng rng;
    unsigned taken = 0;
    rng_init(&rng, 13);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, arguments), "it has not loaded");
    for (int i = 0; i < 2000; i++) {
        stand_in_run(line, NULL, 0);
        stand_in_save("good");
        size_t last = stand_in_saved_fields() - 1;
        for (size_t flips = 1 + (size_t)rng_below(&rng, 3); flips > 0; flips--)
            stand_in_damage(rng_below(&rng, 3) ? 1 : last, 32 + (size_t)rng_below(&rng, 400),
                            (unsigned char)(1u << rng_below(&rng, 8)));
        stand_in_seal();
        if (stand_in_restore("bad", SIZE_MAX)) {
            taken++;
            for (size_t use = 0; use < sizeof(uses) / sizeof(uses[0]); use++)
                stand_in_run(uses[use], NULL, 0);
            EXPECT(stand_in_save("bad") && stand_in_restore("again", SIZE_MAX), "round %d: it cannot be loaded again",
                   i);
            stand_in_run("bf.clear bad", NULL, 0);
        }
        stand_in_end();
    }
    EXPECT(taken > 100, "%u were taken", taken);
}

/* While another thread frees a filter with several layers, this one makes filters, adds, grows, asks and copies. The
 * name that is freed is used again at once: an item is looked for where its filter was before. */
static void freed_in_the_background(const void *data)
{
    (void)data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    size_t before = stand_in_held();
    for (int i = 0; i < 50; i++) {
        expect("bf.reserve f 0.01 100000", "OK ");
        for (int j = 0; j < 20; j++)
            expect("bf.add f x", j == 0 ? "1 " : "0 ");
        stand_in_run("bf.insert small CAPACITY 2 ITEMS a b c d e f g h i j k", NULL, 0);
        stand_in_unlink("f");
        expect("bf.exists f x", "0 ");
        expect("bf.reserve f 0.01 100000", "OK ");
        expect("bf.exists f x", "0 ");
        expect("bf.madd f x y z", "*3 1 1 1 ");
        expect("bf.exists small k", "1 ");
        stand_in_run("bf.merge merged f", NULL, 0);
        stand_in_unlink("f");
    }
    stand_in_end();
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

static void arguments(const void *data)
{
    const char *const words[] = {"bf-error-rate", data, "prefix", "other"};
    bool good = strcmp(data, "0.5") == 0;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 4, words) == good, "'%s'", words[1]);
    EXPECT(good || strstr(stand_in_log(), "bf-error-rate"), "the log does not name the setting");
    if (good)
        expect("other.add f x", "1 ");
    stand_in_end();
}

static void without_threads(void)
{
    static const char *const rates[] = {"0.5", "0", "1", "x", "-1", "nan"};
    in_a_process("all functions", without_optional, NULL);
    for (size_t i = 0; i < stand_in_functions(); i++)
        in_a_process(stand_in_function(i), stand_in_is_required(i) ? without_required : without_optional,
                     stand_in_function(i));
    in_a_process("replication", replication, NULL);
    in_a_process("windows are told", windows_told, NULL);
    in_a_process("windows obey", windows_obeyed, NULL);
    in_a_process("a union of what is over", union_of_what_is_over, NULL);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        in_a_process("no memory", fail_each, changes[i]);
    in_a_process("taken over", taken_over, NULL);
    in_a_process("values", values, NULL);
    in_a_process("values of RedisBloom", redisbloom_values, NULL);
    in_a_process("half values", half_values, prefix);
    in_a_process("half values, taken over", half_values, take_over);
    in_a_process("made up", made_up, "bf.insert good CAPACITY 4 ITEMS a b c d e f");
    in_a_process("made up", made_up, "bf.insert good CAPACITY 8 WINDOW 60 PARTS 4 REFRESH ITEMS a b c d e");
    in_a_process("made up", made_up, "bf.insert good CAPACITY 8 WINDOW ITEMS 8 PARTS 4 ITEMS a b c d e");
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        in_a_process("arguments", arguments, rates[i]);
    printf("%zu functions, each missing once\n", stand_in_functions());
}

int main(void)
{
    in_a_process("freed in the background", freed_in_the_background, NULL);
    if (!UNDER_THREAD_SANITIZER) /* it has nothing to find in the others, which take minutes there */
        without_threads();
    return 0;
}
