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

/* ---- without memory ---- */

static const char *const changes[] = {
    "bf.reserve new 0.01 1000",
    "bf.reserve new 0.01 3000000",
    "bf.add new x",
    "bf.insert g CAPACITY 2 ITEMS c d e f g",
    "bf.merge union g g2",
    "bf.merge g g2",
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

int main(void)
{
    static const char *const rates[] = {"0.5", "0", "1", "x", "-1", "nan"};
    in_a_process("all functions", without_optional, NULL);
    for (size_t i = 0; i < stand_in_functions(); i++)
        in_a_process(stand_in_function(i), stand_in_is_required(i) ? without_required : without_optional,
                     stand_in_function(i));
    in_a_process("replication", replication, NULL);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        in_a_process("no memory", fail_each, changes[i]);
    in_a_process("taken over", taken_over, NULL);
    in_a_process("values", values, NULL);
    in_a_process("values of RedisBloom", redisbloom_values, NULL);
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        in_a_process("arguments", arguments, rates[i]);
    printf("%zu functions, each missing once\n", stand_in_functions());
    return 0;
}
