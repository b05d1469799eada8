/* The module in a stand-in engine, under sanitizers, too: without each of the engine's functions, without memory at
 * each allocation, with values that come short or damaged. Every step has a fresh module, in its own process. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_stand_in.h"

const char *step = "";
const char *const prefix[] = {"prefix", "bf"};
const char *const take_over[] = {"take-over", "yes"};

void in_a_process(const char *name, void (*run)(const void *data), const void *data)
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

bool use_restored(const char *const *uses, size_t n)
{
    if (!stand_in_restore("bad", SIZE_MAX))
        return false;
    for (size_t i = 0; i < n; i++)
        stand_in_run(uses[i], NULL, 0);
    EXPECT(stand_in_save("bad") && stand_in_restore("again", SIZE_MAX), "what was taken cannot be loaded again");
    return true;
}

/* ---- functions that are missing ---- */

void expect(const char *line, const char *reply)
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
    EXPECT(strncmp(stand_in_run("bf.plan 0.01 1000 LAYOUT na", NULL, 0), "*22 ", 4) == 0, "BF.PLAN");
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

/* What a client says comes back within an error, which is one line. */
static void errors_are_lines(const void *data)
{
    static const char *const lines[] = {
        "bf.merge f no\r\nsuch",          "bf.merge no\nsuch no\nsuch", "bf.info f \r\nFIELD",
        "bf.insert f OP\nTION ITEMS a",   "bf.reserve g 0.01 1\n0",     "bf.reserve g 0.01 10 \rX",
        "bf.loadchunk f 1\n x",           "bf.scandump f \n1",          "bf.plan 0.01 \n1000",
        "bf.query f MISS\nING ITEMS a",   "bf.falsepositive f \n1",     "bf.reserve g 0\n.01 10",
        "bf.insert f LAYOUT \nx ITEMS a", "bf.apply f WH\nAT x",        "bf.apply f ITEMS \n1",
    };
    (void)data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    expect("bf.add f a", "1 ");
    expect("bf.reserve other\nlayout 0.001 1000", "OK ");
    for (size_t i = 0; i < 2 * sizeof(lines) / sizeof(lines[0]); i++) {
        stand_in_obey(i % 2 == 1);
        const char *reply = stand_in_run(lines[i / 2], NULL, 0);
        EXPECT(strncmp(reply, "-", 1) == 0 || strncmp(reply, "*1 -", 4) == 0, "'%s' was answered '%s'", lines[i / 2],
               reply);
    }
    stand_in_obey(false);
    EXPECT(strstr(stand_in_run("bf.merge f other\nlayout", NULL, 0), "-ERR 'f' and 'other layout' cannot be merged"),
           "another layout");
    stand_in_end();
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
    stand_in_fail_allocation(1);
    const char *failed = stand_in_run("bf.loadchunk half 1", header, len);
    EXPECT(stand_in_allocations() == 0 || strcmp(failed, "-ERR out of memory ") == 0, "a header without memory: %s",
           failed);
    stand_in_fail_allocation(0);
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
    cuckoo_scenario();
    stand_in_end();
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

/* Completed under another name it is a value of the module's own type before, and of RedisBloom's after. */
static void times_to_live(const void *data)
{
    const long long at = 4102444800000; /* in 2100 */
    char line[64];
    size_t len;
    EXPECT(stand_in_load(MODULE_PATH, data, 2, take_over), "it has not loaded");
    expect("bf.insert rb CAPACITY 4 LAYOUT REDISBLOOM ITEMS a b c d", "*4 1 1 1 1 ");
    for (long long iterator = 0;;) {
        snprintf(line, sizeof(line), "bf.scandump rb %lld", iterator);
        EXPECT(sscanf(stand_in_run(line, NULL, 0), "*2 %lld", &iterator) == 1, "BF.SCANDUMP");
        if (iterator == 0)
            break;
        const void *bytes = stand_in_bytes(&len);
        char *chunk = malloc(len);
        memcpy(chunk, bytes, len);
        snprintf(line, sizeof(line), "bf.loadchunk copy %lld", iterator);
        EXPECT(strcmp(stand_in_run(line, chunk, len), "OK ") == 0, "BF.LOADCHUNK");
        free(chunk);
        stand_in_set_expiry("copy", at);
    }
    expect("bf.mexists copy a d z", "*3 1 1 0 ");
    long long off = stand_in_expiry("copy") - at;
    EXPECT(off > -5000 && off < 5000 && (data || off == 0), "the time to live has moved by %lld ms", off);
    expect("bf.clear copy", "OK ");
    EXPECT(stand_in_expiry("copy") == off + at, "BF.CLEAR");
    expect("bf.merge copy rb", "OK ");
    EXPECT(stand_in_expiry("copy") == off + at, "BF.MERGE");
    expect("bf.reserve other 0.01 10", "OK ");
    EXPECT(stand_in_expiry("other") == -1, "a new filter");
    stand_in_end();
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
    cuckoo_scenario();
    stand_in_end();
    (void)stand_in_replicated();
    stand_in_run("bf.madd f a b a", NULL, 0);
    const char *told = stand_in_replicated();
    EXPECT(strcmp(told, "bf.apply f MAKE <128 bytes>\nbf.reserve f 0.01 100 EXPANSION 2\nbf.madd f a b\n") == 0, "%s",
           told);
    stand_in_end();
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
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
    "cf.reserve new 1000",
    "cf.reserve new 3000000",
    "cf.add new x",
    "cf.insert c ITEMS q q q q q q q q q q q q",
    "cf.add c x",
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
        stand_in_run("cf.insert c CAPACITY 4 ITEMS a x x x x", NULL, 0);
        stand_in_fail_allocation(n);
        const char *reply = stand_in_run(line, NULL, 0);
        failed = stand_in_allocations() >= n;
        EXPECT(!failed || strchr(reply, '-') || strstr(line, "bf.insert") || line[0] == 'c',
               "'%s' at allocation %zu: %s", line, n, reply);
        EXPECT(failed || !strchr(reply, '-'), "'%s' was answered %s", line, reply);
        stand_in_fail_allocation(0);
        if (failed)
            expect("bf.mexists g a b nothing", "*3 1 1 0 ");
        expect("cf.mexists c a x", "*2 1 1 ");
        stand_in_end();
        EXPECT(stand_in_held() == before, "'%s' at allocation %zu leaves %zu", line, n, stand_in_held() - before);
    }
}

/* A replica makes each change or ends: what a command lacks, the engine's own function gives, which ends the process.
 */
static void replica_without_memory(const void *data)
{
    const char *line = data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    for (size_t n = 1;; n++) {
        stand_in_fail_allocation(0);
        stand_in_end();
        stand_in_run("bf.insert g CAPACITY 2 ITEMS a b", NULL, 0);
        stand_in_run("bf.insert g2 CAPACITY 2 ITEMS y z w", NULL, 0);
        stand_in_run("bf.insert v CAPACITY 2 WINDOW 60 PARTS 1 ITEMS a b", NULL, 0);
        stand_in_run("bf.insert v2 CAPACITY 2 WINDOW 60 PARTS 1 ITEMS b c", NULL, 0);
        stand_in_run("cf.insert c CAPACITY 4 ITEMS a x x x x", NULL, 0);
        stand_in_obey(true);
        stand_in_fail_allocation(n);
        const char *reply = stand_in_run(line, NULL, 0);
        EXPECT(!strchr(reply, '-'), "'%s' at allocation %zu: %s", line, n, reply);
        bool failed = stand_in_allocations() >= n;
        stand_in_fail_allocation(0);
        stand_in_obey(false);
        if (!failed)
            break;
    }
    stand_in_end();
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

static void adds_are_told(void)
{
    (void)stand_in_replicated();
    expect("bf.mexists f a b z", "*3 1 1 0 ");
    expect("bf.add f c", "1 ");
    EXPECT(strcmp(stand_in_replicated(), "verbatim\n") == 0, "an add is not told");
    expect("bf.info f CAPACITY", "*1 50 ");
    expect("bf.clear f", "OK ");
    expect("bf.madd f a b", "*2 1 1 ");
    EXPECT(stand_in_save("f") && stand_in_restore("saved", SIZE_MAX), "a save");
    expect("bf.mexists saved a b z", "*3 1 1 0 ");
}

/* A second MODULE LOAD of the same file is the same instance: whatever it is refused for, the running module stays as
 * it is. */
static void second_load(const void *data)
{
    static const char *const first[] = {"bf-initial-size", "50"}, *const other[] = {"bf-initial-size", "60"},
                             *const wrong[] = {"bf-error-rate", "2"}, *const moved[] = {"prefix", "other"};
    static const char *const taken[] = {"bloomery1", "bloomeryC", "MBbloom--", "MBbloomCF", "bf.add", "cf.add"};
    EXPECT(stand_in_load(MODULE_PATH, data, 2, first), "it has not loaded");
    expect("bf.madd f a b", "*2 1 1 ");
    const char *const *const all[] = {first, other, wrong, moved, take_over, prefix};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        EXPECT(!stand_in_load(MODULE_PATH, data, 2, all[i]), "it has loaded twice");
        EXPECT(strstr(stand_in_log(), "already loaded"), "no reason");
        adds_are_told();
    }
    expect("bf.add new x", "1 ");
    expect("bf.info new CAPACITY", "*1 50 ");
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        stand_in_take(taken[i]);
        EXPECT(!stand_in_load(MODULE_PATH, data, 2, take_over), "it has loaded twice");
        adds_are_told();
    }
    for (size_t i = 0; i < stand_in_functions(); i++) {
        EXPECT(!stand_in_load(MODULE_PATH, stand_in_function(i), 2, first), "it has loaded twice");
        adds_are_told();
    }
    stand_in_end();
}

/* A load that failed at any step leaves nothing behind: the next one succeeds, with its own words. */
static void load_after_a_failure(const void *data)
{
    static const char *const wrong[] = {"bf-initial-size", "70", "bf-error-rate", "2"};
    static const char *const right[] = {"bf-initial-size", "50"};
    static const char *const taken[] = {"bloomery1", "bloomeryC", "MBbloom--", "MBbloomCF",
                                        "bf.add",    "cf.add",    "bf.apply"};
    size_t before = stand_in_held();
    EXPECT(!stand_in_load(MODULE_PATH, NULL, 4, wrong), "it has loaded");
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        stand_in_take(taken[i]);
        EXPECT(!stand_in_load(MODULE_PATH, NULL, 2, take_over), "it has loaded, without %s", taken[i]);
        EXPECT(strstr(stand_in_log(), taken[i]), "the log does not name %s", taken[i]);
    }
    stand_in_take(NULL);
    size_t held = stand_in_held();
    EXPECT(stand_in_load(MODULE_PATH, data, 2, right), "it has not loaded");
    EXPECT(stand_in_held() <= held + 1, "failed loads leave %zu allocations", held - before);
    expect("bf.madd f a b", "*2 1 1 ");
    adds_are_told();
    stand_in_end();
}

static void without_threads(void)
{
    static const char *const rates[] = {"0.5", "0", "1", "x", "-1", "nan"};
    in_a_process("all functions", without_optional, NULL);
    for (size_t i = 0; i < stand_in_functions(); i++)
        in_a_process(stand_in_function(i), stand_in_is_required(i) ? without_required : without_optional,
                     stand_in_function(i));
    in_a_process("errors are lines", errors_are_lines, NULL);
    in_a_process("a second load", second_load, NULL);
    in_a_process("a second load, unknown to the engine", second_load, "IsModuleNameBusy");
    in_a_process("a load after a failure", load_after_a_failure, NULL);
    test_replication();
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        in_a_process("no memory", fail_each, changes[i]);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        in_a_process("a replica without memory", replica_without_memory, changes[i]);
    in_a_process("taken over", taken_over, NULL);
    in_a_process("times to live", times_to_live, NULL);
    in_a_process("times to live, relative", times_to_live, "GetAbsExpire");
    test_values();
    test_cuckoo();
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        in_a_process("arguments", arguments, rates[i]);
    printf("%zu functions, each missing once\n", stand_in_functions());
}

int main(void)
{
    in_a_process("freed in the background", freed_in_the_background, NULL);
    in_a_process("cuckoo filters freed in the background", cuckoo_freed_in_the_background, NULL);
    if (!UNDER_THREAD_SANITIZER) /* it has nothing to find in the others, which take minutes there */
        without_threads();
    return 0;
}
