/* Filters that strangers cannot aim at. Each attack works against a plain filter, so that the test can fail, and is
 * no better than chance against a KEYED one: in the daemon, after a restart, in the module, after a move. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attacks.h"
#include "client.h"
#include "daemon.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

static struct daemon the_daemon, engine;
static redisContext *client, *in_engine;

static void begin(void)
{
    static const char *const args[] = {"--appendonly", "yes", NULL};

    client = client_start(&the_daemon, args);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
    daemon_discard(&engine);
}

TestSuite(keyed, .init = begin, .fini = discard, .timeout = 3000);

static void finish(void)
{
    daemon_deinit(&the_daemon);
    daemon_deinit(&engine);
}

#define KEYED_TEST(name) ENDED_TEST(keyed, name, finish())

static void key_file(char path[512])
{
    snprintf(path, 512, "%s/KEYS", the_daemon.data);
}

/* Moves the key file to `away` while the daemon is down. */
static void restart_without_keys(char away[600])
{
    char path[512];

    daemon_kill(&the_daemon);
    key_file(path);
    snprintf(away, 600, "%s/away", the_daemon.dir);
    cr_assert_eq(rename(path, away), 0);
    redisFree(client);
    client = client_restart(&the_daemon);
}

/* redis-server with the module and the daemon's keys. */
static void start_engine(void)
{
    char path[512];

    static const char *const args[] = {"--loadmodule", MODULE_PATH, NULL};

    engine.engine = true;
    in_engine = client_start(&engine, args);
    key_file(path);
    expect(in_engine, "+OK", "CONFIG SET bloomery.bf-key-file %s", path);
}

/* ---- the attacks ---- */

#define CAPACITY 2000

static struct attack_filter reserve(redisContext *server, const char *key, const char *rate, bool is_keyed)
{
    if (is_keyed)
        expect(server, "+OK", "BF.RESERVE %s %s %d NONSCALING KEYED", key, rate, CAPACITY);
    else
        expect(server, "+OK", "BF.RESERVE %s %s %d NONSCALING LAYOUT na", key, rate, CAPACITY);
    long long bits, k;
    cr_assert_eq(sscanf(client_ask(server, "BF.INFO %s BITS", key), "[:%lld]", &bits), 1);
    cr_assert_eq(sscanf(client_ask(server, "BF.INFO %s HASHES", key), "[:%lld]", &k), 1);
    return attack_begin((uint64_t)bits, (unsigned)k);
}

/* Whether an item that was not added is present after its twin was added. */
static bool twin_works(redisContext *server, bool is_keyed)
{
    struct attack_filter filter = reserve(server, "twin", "1e-9", is_keyed);
    unsigned char twin[16];

    attack_twin("https://victim.example/", twin);
    expect(server, ":1", "BF.ADD twin %b", twin, sizeof(twin));
    attack_free(&filter);
    return client_number(server, "BF.ADD twin https://victim.example/") == 0;
}

/* The same after the addition of texts that cover its bits. */
static bool cover_works(redisContext *server, bool is_keyed)
{
    struct attack_filter filter = reserve(server, "cover", "1e-4", is_keyed);
    char items[ATTACK_MAX_K + 1][ATTACK_ITEM];
    size_t n = attack_cover(&filter, "https://victim.example/", items);

    cr_assert_leq(n, filter.k);
    for (size_t i = 0; i < n; i++)
        expect(server, ":1", "BF.ADD cover %s", items[i]);
    attack_free(&filter);
    return client_number(server, "BF.EXISTS cover https://victim.example/") == 1;
}

/* Bits set by items chosen to set new ones, less those set by random items, in standard deviations of the latter. */
static double saturation(redisContext *server, bool is_keyed)
{
    struct attack_filter filter = reserve(server, "saturated", "1e-3", is_keyed);
    unsigned at = 0, n = CAPACITY / 2;
    char item[ATTACK_ITEM];
    long long set;

    for (unsigned i = 0; i < n; i++) {
        attack_saturate(&filter, &at, item);
        bool added = client_number(server, "BF.ADD saturated %s", item) == 1;
        cr_assert(added || is_keyed, "%s sets no new bit", item); /* under a random key, one in some thousand runs */
    }
    cr_assert_eq(sscanf(client_ask(server, "BF.INFO saturated BITSSET"), "[:%lld]", &set), 1);
    double bits = (double)filter.bits, absent = exp(-(double)n * filter.k / bits);
    double deviation = sqrt(bits * absent * (1 - absent * (1 + (double)n * filter.k / bits)));
    attack_free(&filter);
    return ((double)set - bits * (1 - absent)) / deviation;
}

#define CHOSEN 300

/* The number of CHOSEN absent items, chosen with knowledge of the content, that pass. The rate is 0.01. */
static int known_content(redisContext *server, bool is_keyed)
{
    struct attack_filter filter = reserve(server, "known", "0.01", is_keyed);
    char item[ATTACK_ITEM];
    unsigned at = 0;
    int passed = 0;

    for (int i = 0; i < CAPACITY; i++) {
        snprintf(item, sizeof(item), "content/%d", i);
        attack_note(&filter, item);
        redisAppendCommand(server, "BF.ADD known %s", item);
    }
    client_skip(server, CAPACITY);
    for (int i = 0; i < CHOSEN; i++) {
        attack_pass(&filter, &at, item);
        passed += client_number(server, "BF.EXISTS known %s", item) == 1;
    }
    attack_free(&filter);
    return passed;
}

#define KNOWN_BY_CHANCE 20 /* of 300 at 0.01: 3 are expected, and 20 come once in 10^10 */

static void expect_attacks(redisContext *server, bool is_keyed)
{
    cr_assert_eq(twin_works(server, is_keyed), !is_keyed);
    cr_assert_eq(cover_works(server, is_keyed), !is_keyed);
    double deviations = saturation(server, is_keyed);
    cr_assert(is_keyed ? fabs(deviations) < 6 : deviations > 10, "%g", deviations);
    int passed = known_content(server, is_keyed);
    cr_assert(is_keyed ? passed <= KNOWN_BY_CHANCE : passed == CHOSEN, "%d", passed);
}

/* The attackers' items were added before: their victims are still absent. */
static void expect_nothing_gained(redisContext *server)
{
    expect(server, ":0", "BF.EXISTS cover https://victim.example/");
    expect(server, "[:1,:1]", "BF.MEXISTS known content/0 content/1999");
    int passed = 0;
    for (int i = 0; i < CHOSEN; i++)
        passed += client_number(server, "BF.EXISTS known absent/%d", i) == 1;
    cr_assert_leq(passed, KNOWN_BY_CHANCE);
}

KEYED_TEST(attacks_work_against_a_plain_filter_of_the_daemon)
{
    expect_attacks(client, false);
}

KEYED_TEST(attacks_gain_nothing_against_a_keyed_filter_nor_after_a_restart)
{
    expect_attacks(client, true);
    expect_nothing_gained(client);
    client = client_after_kill(client, &the_daemon, NULL);
    expect_nothing_gained(client);
    expect(client, "+OK", "SAVE");
    client = client_after_stop(client, &the_daemon, NULL);
    expect_nothing_gained(client);
    expect(client, ":4", "DEL twin cover saturated known");
    expect_attacks(client, true);
}

KEYED_TEST(the_module_resists_too)
{
    expect(client, "+OK", "BF.RESERVE first 0.01 100 KEYED"); /* creates the key */
    if (DAEMON_SANITIZED)
        cr_skip_test("redis-server loads no module with a sanitizer");
    start_engine();
    expect_attacks(in_engine, false);
    expect(in_engine, ":4", "DEL twin cover saturated known");
    expect_attacks(in_engine, true);
}

static void move(redisContext *to, const char *key)
{
    redisReply *dump = redisCommand(client, "DUMP %s", key);

    cr_assert(dump && dump->type == REDIS_REPLY_STRING);
    expect(to, "+OK", "RESTORE %s 0 %b REPLACE", key, dump->str, dump->len);
    freeReplyObject(dump);
}

KEYED_TEST(a_moved_filter_resists_where_its_key_is_and_answers_errors_elsewhere)
{
    char error[160];

    expect_attacks(client, true);
    if (DAEMON_SANITIZED)
        cr_skip_test("redis-server loads no module with a sanitizer");
    start_engine();
    static const char *const names[] = {"twin", "cover", "known"};
    for (size_t i = 0; i < 3; i++)
        move(in_engine, names[i]);
    expect_nothing_gained(in_engine);
    char id[17] = "";
    cr_assert_eq(sscanf(client_ask(client, "BF.INFO known KEY"), "[\"%16[0-9a-f]\"]", id), 1);
    expect(in_engine, "+OK", "CONFIG SET bloomery.bf-key-file %s", "");
    snprintf(error, sizeof(error),
             "-ERR the key %s of this filter is missing: add its line to the key file, then "
             "CONFIG SET bf-key-file again or SIGHUP",
             id);
    expect(in_engine, error, "BF.EXISTS known content/0");
    expect(in_engine, error, "BF.ADD known content/0");
    expect(in_engine, error, "BF.MADD known content/0 x");
    expect(in_engine, error, "BF.QUERY known ITEMS content/0 x");
    expect(in_engine, error, "BF.INSERT known ITEMS content/0 x");
}

/* ---- keys ---- */

KEYED_TEST(the_first_filter_makes_the_key_file_for_its_owner_only)
{
    char path[512];
    struct stat st;

    key_file(path);
    cr_assert_neq(stat(path, &st), 0);
    expect(client, "+OK", "BF.RESERVE a 0.01 100 KEYED");
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    expect(client, "[:1,:1]", "BF.INSERT b KEYED ITEMS 1 2");
    expect(client, "+OK", "CONFIG SET bf-keyed yes");
    expect(client, ":1", "BF.ADD c 1");
    expect(client, "+OK", "BF.RESERVE d 0.01 100 LAYOUT redisbloom");
    char id[64];
    snprintf(id, sizeof(id), "%s", client_ask(client, "BF.INFO a KEY"));
    cr_assert_eq(strlen(id), 20, "%s", id);
    expect(client, id, "BF.INFO b KEY");
    expect(client, id, "BF.INFO c KEY");
    expect(client, id, "BF.INFO d KEY");
    expect(client, "+OK", "CONFIG SET bf-keyed no");
    expect(client, ":1", "BF.ADD e 1");
    expect(client, "[nil]", "BF.INFO e KEY");
}

/* Another key file would make the filters unreadable. */
KEYED_TEST(the_first_filter_may_be_in_a_transaction)
{
    static const char *const makers[] = {"BF.RESERVE f 0.01 100 KEYED", "BF.INSERT f KEYED ITEMS x",
                                         "CF.RESERVE f 100 ERROR 0.01 KEYED"};
    char path[512];

    key_file(path);
    expect(client, "+OK", "MULTI"); /* items that are called so need no key */
    expect(client, "+QUEUED", "BF.MADD f x KEYED");
    expect(client, "+QUEUED", "BF.INSERT f ITEMS KEYED y");
    expect(client, "[[:1,:1],[:0,:1]]", "EXEC");
    cr_assert_not(file_exists(path));
    expect(client, ":1", "DEL f");
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        bool more = i < 2; /* alone in EXEC it stops no other worker */
        expect(client, "+OK", "MULTI");
        cr_assert_str_eq(client_ask(client, makers[i]), "+QUEUED");
        if (more)
            expect(client, "+QUEUED", "BF.ADD f y");
        const char *reply = client_ask(client, "EXEC");
        cr_assert(reply[0] == '[' && !strstr(reply, "ERR") && file_exists(path), "%s: %s", makers[i], reply);
        expect(client, ":1", "EXISTS f");
        client = client_after_kill(client, &the_daemon, NULL);
        expect(client, ":1", "EXISTS f");
        client_kill(client, &the_daemon);
        tmpdir_remove(the_daemon.data);
        client = client_start(&the_daemon, NULL);
    }
}

KEYED_TEST(a_lost_key_file_is_not_replaced_while_its_keys_are_in_memory)
{
    char path[512];
    struct stat st;

    key_file(path);
    expect(client, "+OK", "BF.RESERVE a 0.01 100 KEYED");
    expect(client, ":1", "BF.ADD a 1");
    cr_assert_eq(unlink(path), 0);
    const char *refused = client_ask(client, "CONFIG SET bf-keyed yes");
    cr_expect(strstr(refused, "/KEYS, and the keys in memory stay in use: restore it from a backup"), "%s", refused);
    expect(client, ":1", "BF.EXISTS a 1");
    expect(client, "+OK", "BF.RESERVE b 0.01 100 KEYED");
    cr_assert_eq(kill(the_daemon.pid, SIGHUP), 0);
    daemon_wait_output(&the_daemon, "the key file is missing; its keys are in memory only");
    cr_assert_neq(stat(path, &st), 0);
    expect(client, ":1", "BF.EXISTS a 1");
}

/* The pages with keys are left out of core dumps (MADV_DONTDUMP: "dd" among the flags), and no file but the key file
 * has the key. */
KEYED_TEST(the_key_is_in_no_core_dump_and_no_other_file)
{
    char path[512], line[600], output[8192];
    unsigned left_out = 0;

    expect(client, "+OK", "BF.RESERVE a 0.01 100 KEYED");
    expect(client, "[:1,:1]", "BF.MADD a 1 2");
    expect(client, "+OK", "SAVE");
    snprintf(path, sizeof(path), "/proc/%d/smaps", (int)the_daemon.pid);
    FILE *file = fopen(path, "r");
    cr_assert(file);
    while (fgets(line, sizeof(line), file))
        left_out += strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " dd");
    fclose(file);
    cr_assert_geq(left_out, 1);
    program_expect(output, sizeof(output), 0, "KEYS\n",
                   "cd '%s' && key=$(cut -d ' ' -f 2 data/KEYS) && [ ${#key} = 64 ] && grep -rl \"$key\" .",
                   the_daemon.dir);
    cr_assert_str_eq(output, "./data/KEYS\n");
    const char *info = client_ask(client, "INFO everything");
    key_file(path);
    file = fopen(path, "r");
    cr_assert(file && fgets(line, sizeof(line), file));
    fclose(file);
    line[81] = '\0';
    cr_assert(!strstr(info, line + 17));
    cr_assert(!strstr(client_ask(client, "CONFIG GET *"), line + 17));
}

/* A filter without its key can be saved, copied and moved, but not queried. */
KEYED_TEST(a_filter_without_its_key_says_so_and_is_kept_as_it_is)
{
    char away[600], error[160], id[17], warning[100];

    expect(client, "+OK", "BF.RESERVE a 1e-9 100 KEYED");
    expect(client, "+OK", "BF.RESERVE w 1e-9 100 WINDOW 1000 KEYED");
    expect(client, "[:1,:1]", "BF.INSERT r LAYOUT redisbloom KEYED ITEMS item:0 item:1");
    client_add_items(client, "a", 0, 500); /* it grows */
    client_add_items(client, "w", 0, 500);
    expect(client, ":1", "BF.ADD plain item:0");
    cr_assert_eq(sscanf(client_ask(client, "BF.INFO a KEY"), "[\"%16[0-9a-f]\"]", id), 1);
    snprintf(error, sizeof(error),
             "-ERR the key %s of this filter is missing: add its line to the key file, then "
             "CONFIG SET bf-key-file again or SIGHUP",
             id);

    restart_without_keys(away);
    static const char *const names[] = {"a", "w", "r"};
    for (size_t i = 0; i < 3; i++) {
        expect(client, error, "BF.EXISTS %s item:0", names[i]);
        expect(client, error, "BF.ADD %s item:0", names[i]);
        expect(client, error, "BF.MEXISTS %s item:0 x", names[i]);
        expect(client, error, "BF.MADD %s item:0 x", names[i]);
        expect(client, error, "BF.INSERT %s ITEMS item:0 x", names[i]);
        expect(client, error, "BF.QUERY %s ITEMS item:0", names[i]);
        expect(client, ":1", "COPY %s copy:%s", names[i], names[i]);
        move(client, names[i]);
    }
    snprintf(warning, sizeof(warning), "loaded a KEYED filter, but its key %s is missing", id);
    cr_expect(strstr(daemon_output(&the_daemon), warning));
    expect(client, ":500", "BF.CARD a");
    snprintf(error, sizeof(error), "its key %s is missing", id);
    cr_assert(strstr(client_ask(client, "BF.FIND a plain ITEMS item:0"), error));
    expect(client, "+OK", "BF.MERGE union a copy:a");
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &the_daemon, NULL);

    expect(client, "+OK", "CONFIG SET bf-key-file %s", away);
    const char *refused = client_ask(client, "CONFIG SET bf-key-file %s", "");
    cr_expect(strstr(refused, "/KEYS, and the keys in memory stay in use: restore it from a backup"), "%s", refused);
    client_expect_items(client, "a", 0, 500);
    client_expect_items(client, "w", 0, 500);
    client_expect_items(client, "copy:a", 0, 500);
    client_expect_items(client, "copy:w", 0, 500);
    client_expect_items(client, "union", 0, 500);
    expect(client, "[:1,:1,:0]", "BF.MEXISTS r item:0 item:1 absent");
    expect_has(client, "[\"a\",\"plain\",\"r\"]", "BF.FIND a plain r ITEMS item:0");
}

/* ---- cuckoo filters ---- */

static void each_item(const char *command, const char *reply, const char *name, int first, int n)
{
    for (int i = first; i < first + n; i++)
        redisAppendCommand(client, "%s %s item:%d", command, name, i);
    for (int i = 0; i < n; i++)
        cr_assert_str_eq(client_reply(client), reply, "%s %s item:%d", command, name, first + i);
}

/* The id of its key. */
static void cuckoo_key(const char *name, char id[17])
{
    const char *info = client_ask(client, "CF.INFO %s FULL", name), *key = strstr(info, "Key");

    cr_assert(key && sscanf(key + strlen("Key,\""), "%16[0-9a-f]", id) == 1, "%s", info);
}

KEYED_TEST(a_cuckoo_filter_without_its_key_says_so_and_is_kept_as_it_is)
{
    char away[600], error[160], id[17] = "", other[17] = "", output[4096];
    static const char *const commands[] = {"EXISTS a x", "MEXISTS a x y", "COUNT a x",          "ADD a x",
                                           "ADDNX a x",  "DEL a x",       "INSERT a ITEMS x y", "INSERTNX copy ITEMS x",
                                           "EXISTS r x", "ADD chunks x"};

    expect(client, "[:1,:1]", "CF.INSERT b ERROR 0.001 KEYED ITEMS 1 2"); /* creates the key */
    expect(client, "+OK", "CF.RESERVE a 100 ERROR 0.001 KEYED");
    expect(client, "+OK", "CONFIG SET bf-keyed yes");
    expect(client, "+OK", "CF.RESERVE c 100 ERROR 0.01");
    expect(client, ":1", "CF.ADD plain 1");
    expect(client, "+OK", "CONFIG SET bf-keyed no");
    expect_has(client, "KEYED needs ERROR", "CF.RESERVE d 100 KEYED");
    expect_has(client, "KEYED needs ERROR", "CF.INSERT d KEYED ITEMS 1");
    cuckoo_key("a", id);
    cuckoo_key("b", other);
    cr_assert_str_eq(id, other);
    cuckoo_key("c", other);
    cr_assert_str_eq(id, other);
    each_item("CF.ADD", ":1", "a", 0, 500); /* it grows */
    each_item("CF.DEL", ":1", "a", 0, 100);

    restart_without_keys(away);
    expect(client, ":1", "COPY a copy");
    redisReply *dump = redisCommand(client, "DUMP a");
    cr_assert(dump && dump->type == REDIS_REPLY_STRING);
    redisReply *header = redisCommand(client, "CF.SCANDUMP a 0");
    cr_assert(header && header->type == REDIS_REPLY_ARRAY);
    freeReplyObject(redisCommand(client, "CF.LOADCHUNK chunks 1 %b", header->element[1]->str, header->element[1]->len));
    freeReplyObject(header);
    cr_expect(strstr(daemon_output(&the_daemon), "loaded a KEYED filter, but its key "));
    freeReplyObject(redisCommand(client, "RESTORE r 0 %b", dump->str, dump->len));
    freeReplyObject(dump);
    snprintf(error, sizeof(error),
             "-ERR the key %s of this filter is missing: add its line to the key file, then "
             "CONFIG SET bf-key-file again or SIGHUP",
             id);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        snprintf(output, sizeof(output), "CF.%s", commands[i]);
        expect(client, error, output);
    }
    expect(client, ":0", "CF.EXISTS plain x");
    expect(client, "+OK", "SAVE");
    program_expect(output, sizeof(output), 1, "copy\tmissing",
                   "cd '%s' && '" BLOOMERY_TOOL_PATH "' key >other; '" BLOOMERY_TOOL_PATH "' key data --key-file other",
                   the_daemon.dir);
    client = client_after_kill(client, &the_daemon, NULL);
    expect(client, "+OK", "CONFIG SET bf-key-file %s", away);
    static const char *const names[] = {"a", "copy", "r"};
    for (size_t i = 0; i < 3; i++)
        each_item("CF.EXISTS", ":1", names[i], 100, 400);
    expect(client, ":1", "CF.EXISTS b 1");
}

/* ---- the tool ---- */

#define TOOL(code, text, ...)                          \
    program_expect(output, sizeof(output), code, text, \
                   "cd '%s' && bloomery() { '" BLOOMERY_TOOL_PATH "' \"$@\"; } && " __VA_ARGS__)

/* The name of an exported file shows that it is KEYED: it is never taken for a plain one, and keeps the id. */
static void expect_no_plain_use(const char *file, const char *id)
{
    char output[8192];

    TOOL(0, "", "cmp %s f.db", the_daemon.dir, file);
    TOOL(2, "is KEYED: give --key-file", "bloomery query %s 17", the_daemon.dir, file);
    TOOL(2, "is KEYED: give --key-file", "bloomery query %s --variant na 17", the_daemon.dir, file);
    TOOL(2, "bf_missing_keys of INFO", "bloomery key redis://127.0.0.1", the_daemon.dir);
    TOOL(2, "has no key", "bloomery query %s --key-file data/KEYS 17", the_daemon.dir, file);
    TOOL(0, "17\n", "bloomery query %s --key-file both 17 2017", the_daemon.dir, file);
    TOOL(1, "have different keys", "bloomery merge u.db %s f.db --variant na", the_daemon.dir, file);
    TOOL(2, "needs a name that ends in", "bloomery merge u.db %s %s", the_daemon.dir, file, file);
    TOOL(0, "", "bloomery merge na-1-big-Filter.db.keyed-%s %s %s", the_daemon.dir, id, file, file);
}

KEYED_TEST(the_tool_hashes_under_a_key_file_and_tells_who_needs_which_key)
{
    char output[8192], id[17] = "", url[64];

    expect(client, "+OK", "BF.RESERVE own 1e-6 100 KEYED");
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", the_daemon.port);
    TOOL(0, "", "(umask 077; bloomery key >keys)", the_daemon.dir);
    TOOL(0, "", "bloomery key --key-file keys", the_daemon.dir);
    cr_assert_eq(sscanf(output, "%16[0-9a-f]", id), 1, "%s", output);

    TOOL(0, "1000 items", "seq 1000 | bloomery build f.db --error 1e-9 --variant na --key-file keys", the_daemon.dir);
    TOOL(0, "1000\n", "seq 2000 | bloomery query f.db --variant na --count --key-file keys", the_daemon.dir);
    TOOL(1, "0\n", "seq 2000 | bloomery query f.db --variant na --count", the_daemon.dir);
    TOOL(0, "17\n", "bloomery query f.db --variant na --key-file keys --key-id %s 17 2017", the_daemon.dir, id);
    TOOL(2, "has no key", "bloomery query f.db --variant na --key-file keys --key-id 0123456789abcdef 17",
         the_daemon.dir);
    TOOL(2, "needs --key-file", "bloomery query f.db --variant na --key-id %s 17", the_daemon.dir, id);

    TOOL(0, "about", "bloomery load %s loaded f.db --variant na --key-file keys", the_daemon.dir, url);
    cr_assert(strstr(client_ask(client, "BF.EXISTS loaded 17"), id));
    TOOL(1, "filter 'loaded' exists; --replace replaces it",
         "bloomery load %s loaded f.db --variant na --key-file keys", the_daemon.dir, url);
    TOOL(0, "", "cat data/KEYS keys >both", the_daemon.dir);
    char both[600];
    snprintf(both, sizeof(both), "%s/both", the_daemon.dir);
    expect(client, "+OK", "CONFIG SET bf-key-file %s", both);
    expect(client, "[:1,:1,:0]", "BF.MEXISTS loaded 17 1000 1001");

    expect(client, "+OK", "SAVE");
    TOOL(1, "loaded\tmissing", "bloomery key data --key-file data/KEYS", the_daemon.dir);
    TOOL(0, "own", "bloomery key data --key-file both", the_daemon.dir);
    TOOL(2, "data/KEYS is a file, not a data directory; --key-file data/KEYS", "bloomery key data/KEYS",
         the_daemon.dir);
    TOOL(0, id, "bloomery key data", the_daemon.dir);
    TOOL(0, id, "bloomery list data --json", the_daemon.dir);
    redisFree(client);
    client = NULL;
    daemon_stop(&the_daemon);
    TOOL(0, "Cassandra cannot query them", "bloomery export data loaded out", the_daemon.dir);
    TOOL(0, "KEYED", "bloomery list data", the_daemon.dir);
    TOOL(0, "1 KEYED filter without a key in KEYS", "bloomery check data", the_daemon.dir);

    char file[64];
    snprintf(file, sizeof(file), "out/na-0-big-Filter.db.keyed-%s", id);
    expect_no_plain_use(file, id);
    TOOL(0, "imported", "bloomery import data imported %s", the_daemon.dir, file);
    client = client_restart(&the_daemon);
    cr_assert(strstr(client_ask(client, "BF.EXISTS imported 17"), id));
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", the_daemon.port);
    TOOL(0, "about", "bloomery load %s again %s", the_daemon.dir, url, file);
    expect(client, "+OK", "CONFIG SET bf-key-file %s", both);
    expect(client, "[:1,:1,:0]", "BF.MEXISTS imported 17 1000 1001");
    expect(client, "[:1,:1,:0]", "BF.MEXISTS again 17 1000 1001");

    redisFree(client);
    client = NULL;
    daemon_stop(&the_daemon);
    TOOL(1, "KEYS: line 1", "echo x >data/KEYS && bloomery check data 2>&1", the_daemon.dir);
}

/* Mounted secrets have these modes, so the file is accepted. */
KEYED_TEST(a_key_file_that_others_may_read_is_told_in_the_log)
{
    char path[512];

    expect(client, "+OK", "BF.RESERVE f 0.01 100 KEYED"); /* creates the file */
    cr_assert_null(strstr(daemon_output(&the_daemon), "has the mode"), "%s", daemon_output(&the_daemon));
    key_file(path);
    cr_assert_eq(chmod(path, 0644), 0);
    redisFree(client);
    daemon_stop(&the_daemon);
    daemon_restart(&the_daemon);
    client = client_open(the_daemon.port);
    wait_until(strstr(daemon_output(&the_daemon), "KEYS has the mode 0644: who reads a key can attack"));
    expect(client, ":1", "BF.ADD f x");
    cr_assert_eq(chmod(path, 0640), 0);
    expect(client, "+OK", "CONFIG SET bf-key-file %s", path);
    wait_until(strstr(daemon_output(&the_daemon), "KEYS has the mode 0640"));
    cr_assert_eq(chmod(path, 0600), 0);
    redisFree(client);
    daemon_stop(&the_daemon);
    daemon_restart(&the_daemon);
    client = client_open(the_daemon.port);
    expect(client, ":1", "BF.EXISTS f x");
    cr_assert_null(strstr(daemon_output(&the_daemon), "has the mode"), "%s", daemon_output(&the_daemon));
}
