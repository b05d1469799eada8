/* BF.IMPORT: a running daemon imports Filter.db files, from one directory only, and keeps them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "tmpdir.h"

#define BUILT BLOOMERY_GOLDEN_DIR "/built"

static char dir[TMPDIR_SIZE]; /* import-dir is in/ below this directory */
static char output[4096];
static struct daemon the_daemon;
static redisContext *client;

/* A shell puts the files there: "$IN" is import-dir, "$BUILT" the golden files. */
#define SHELL(...) program_expect(output, sizeof(output), 0, "", "IN='%s/in' BUILT='" BUILT "'; " __VA_ARGS__)

static void start(void)
{
    static char in[TMPDIR_SIZE + 8];
    static const char *const args[] = {"--import-dir", in, "--appendfsync", "always", "--save-pack-limit", "0", NULL};

    tmpdir_create(dir);
    snprintf(in, sizeof(in), "%s/in", dir);
    cr_assert_eq(mkdir(in, 0700), 0);
    client = client_start(&the_daemon, args);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
    tmpdir_remove(dir);
}

TestSuite(import, .init = start, .fini = discard, .timeout = 3000);

/* The keys of a golden case are 32-bit numbers: the first ones. */
static void expect_keys(const char *filter, const char *name)
{
    char path[512], line[256];
    int n = 0;

    snprintf(path, sizeof(path), BUILT "/%s/keys.hex", name);
    FILE *keys = fopen(path, "r");
    cr_assert_not_null(keys);
    for (; n < 500 && fgets(line, sizeof(line), keys); n++) {
        unsigned char bytes[128];
        size_t len = strcspn(line, "\n") / 2;
        for (size_t i = 0; i < len; i++)
            sscanf(line + 2 * i, "%2hhx", &bytes[i]);
        redisReply *reply = redisCommand(client, "BF.EXISTS %s %b", filter, bytes, len);
        cr_assert(reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1, "%s: key %d is absent", filter,
                  n);
        freeReplyObject(reply);
    }
    fclose(keys);
    cr_assert_eq(n, 500);
}

/* A kill right after the reply loses nothing: 12,512 bytes are in the log, 125,016 in a file. */
DAEMON_TEST(the_daemon, import, imported_filters_are_there_after_a_kill_and_written_back_as_they_were)
{
    static const char *const names[] = {"n10000_p0.01_int", "n100000_p0.01"};
    static const char *const variants[] = {"na", "me", "ka"};

    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < 2; i++) {
            SHELL("cp \"$BUILT/%s/Filter.%s.db\" \"$IN/%s.db\"", dir, names[i], variants[v], names[i]);
            expect(client, "+OK", "BF.IMPORT %s_%d %s.db VARIANT %s", variants[v], i, names[i], variants[v]);
        }
    }
    client = client_after_kill(client, &the_daemon, NULL);
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < 2; i++) {
            char name[32];
            snprintf(name, sizeof(name), "%s_%d", variants[v], i);
            expect_keys(name, names[i]);
        }
    }
    expect(client, "+OK", "SAVE");
    for (int v = 0; v < 3; v++) {
        char name[32];
        snprintf(name, sizeof(name), "%s_0", variants[v]);
        SHELL("cmp \"$BUILT/n10000_p0.01_int/Filter.%s.db\" '%s'", dir, variants[v],
              daemon_layer(&the_daemon, name, 0).path);
    }
}

DAEMON_TEST(the_daemon, import, names_of_sstables_say_the_layout)
{
    SHELL("mkdir -p \"$IN/ks/t\" && cp \"$BUILT/n10000_p0.01_int/Filter.me.db\" \"$IN/ks/t/mc-1-big-Filter.db\" && "
          "cp \"$BUILT/n10000_p0.01_int/Filter.ka.db\" \"$IN/ks/t/ks-t-ka-1-Filter.db\"",
          dir);
    expect(client, "+OK", "BF.IMPORT a ks/t/mc-1-big-Filter.db");
    expect(client, "+OK", "BF.IMPORT b ks/t/ks-t-ka-1-Filter.db");
    expect_keys("a", "n10000_p0.01_int");
    expect_keys("b", "n10000_p0.01_int");
}

DAEMON_TEST(the_daemon, import, capacity_and_rate_are_those_of_the_bits_or_given)
{
    SHELL("cp \"$BUILT/n10000_p0.01_int/Filter.na.db\" \"$IN/f\"", dir);
    expect(client, "+OK", "BF.IMPORT f f VARIANT na");
    expect(client, "[:13867]", "BF.INFO f CAPACITY");
    expect(client, "[:9983]", "BF.INFO f ITEMS");
    expect(client, "[nil]", "BF.INFO f EXPANSION");
    expect(client, "-ERR item exists", "BF.IMPORT f f VARIANT na");
    expect(client, ":1", "EXPIRE f 1000");
    expect(client, "+OK", "BF.IMPORT f f VARIANT na CAPACITY 20000 ERROR 0.25 REPLACE");
    expect(client, ":-1", "TTL f");
    expect(client, "[:20000]", "BF.INFO f CAPACITY");
    expect(client, "-ERR capacity must be at least 1", "BF.IMPORT g f VARIANT na CAPACITY 0");
    expect(client, "-ERR error rate must be in the range (0.000000, 1.000000)", "BF.IMPORT g f ERROR 1");
    expect(client, "-ERR the variant must be na, me or ka", "BF.IMPORT g f VARIANT nb");
    expect(client, "-ERR syntax error: the last option has no value", "BF.IMPORT g f VARIANT");
    expect(client, "-ERR unknown option 'NX': BF.IMPORT takes VARIANT, CAPACITY, ERROR and REPLACE",
           "BF.IMPORT g f NX");
    expect_has(client, "use VARIANT for a file", "BF.IMPORT g f");
    cr_assert_eq(client_number(client, "EXISTS g"), 0);
}

/* No path leads out of the directory. */
DAEMON_TEST(the_daemon, import, other_files_are_out_of_reach)
{
    static const struct {
        const char *path, *error;
    } table[] = {
        {"../outside", "'..'"},
        {"sub/../../outside", "'..'"},
        {"sub/..", "'..'"},
        {"..", "'..'"},
        {".", "'..'"},
        {"./f", "'..'"},
        {"sub//f", "'..'"},
        {"sub/", "'..'"},
        {"sub", "regular files"},
        {"pipe", "regular files"},
        {"link", "symbolic links are not followed"},
        {"inside", "symbolic links are not followed"},
        {"up/outside", "symbolic links are not followed"},
        {"sub/up/outside", "symbolic links are not followed"},
        {"f/x", "Not a directory"},
        {"nothing", "No such file"},
        {"/dev/zero", "'..'"},
    };

    SHELL("cp \"$BUILT/n10000_p0.01_int/Filter.na.db\" \"$IN/f\"; cp \"$IN/f\" \"$IN/../outside\"; mkdir \"$IN/sub\"; "
          "cp \"$IN/f\" \"$IN/sub/f\"; ln -s ../outside \"$IN/link\"; ln -s f \"$IN/inside\"; ln -s .. \"$IN/up\"; "
          "ln -s ../.. \"$IN/sub/up\"; mkfifo \"$IN/pipe\"",
          dir);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const char *reply = client_ask(client, "BF.IMPORT x %s VARIANT na", table[i].path);
        cr_expect(reply[0] == '-' && strstr(reply, table[i].error), "%s: %s", table[i].path, reply);
    }
    char absolute[TMPDIR_SIZE + 16];
    snprintf(absolute, sizeof(absolute), "%s/in/f", dir);
    const char *reply = client_ask(client, "BF.IMPORT x %s VARIANT na", absolute);
    cr_expect(strstr(reply, "'..'"), "%s", reply);
    reply = client_ask(client, "BF.IMPORT x %b VARIANT na", "f\0x", (size_t)3);
    cr_expect(strstr(reply, "byte 0"), "%s", reply);
    reply = client_ask(client, "BF.IMPORT x %b VARIANT na", "", (size_t)0);
    cr_expect(strstr(reply, "'..'"), "%s", reply);
    cr_expect_eq(client_number(client, "DBSIZE"), 0);
    expect(client, "+OK", "BF.IMPORT x sub/f VARIANT na");
}

DAEMON_TEST(the_daemon, import, malformed_files_are_refused)
{
    SHELL("cp '" BLOOMERY_GOLDEN_DIR "/malformed/'*.db \"$IN\"", dir);
    expect_has(client, "truncated: 48 bytes expected, 40 found", "BF.IMPORT x words_5_for_4.db VARIANT na");
    expect_has(client, "every bit is set", "BF.IMPORT x k_21.db VARIANT na");
    expect_has(client, "empty file", "BF.IMPORT x empty_file.db VARIANT na");
    expect(client, "+OK", "BF.IMPORT x ok_4_words.db VARIANT na");
    SHELL("ls \"$IN\"", dir);
    for (char *name = strtok(output, "\n"); name; name = strtok(NULL, "\n"))
        cr_assert_str_not_empty(client_ask(client, "BF.IMPORT y:%s %s VARIANT na", name, name));
    expect(client, "+PONG", "PING");
}

/* Adds continue as in any filter of fixed size, and the same item is new only once. */
DAEMON_TEST(the_daemon, import, an_imported_filter_takes_adds)
{
    SHELL("cp \"$BUILT/n10000_p0.01_int/Filter.ka.db\" \"$IN/f\"", dir);
    expect(client, "+OK", "BF.IMPORT f f VARIANT ka");
    expect(client, ":1", "BF.ADD f a-new-item");
    expect(client, ":0", "BF.ADD f a-new-item");
    client = client_after_kill(client, &the_daemon, NULL);
    expect(client, ":1", "BF.EXISTS f a-new-item");
    expect(client, ":9961", "BF.CARD f");
}

/* `bloomery load`: the same over the network, whole or not at all. */
DAEMON_TEST(the_daemon, import, the_tool_loads_files_over_the_network)
{
    char url[64];

    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", the_daemon.port);
    for (int v = 0; v < 3; v++) {
        static const char *const variants[] = {"na", "me", "ka"};
        program_expect(output, sizeof(output), 0, "about 99",
                       "'%s' load %s net_%s '" BUILT "/n100000_p0.01/Filter.%s.db' "
                       "--variant %s",
                       BLOOMERY_TOOL_PATH, url, variants[v], variants[v], variants[v]);
    }
    SHELL("seq 1 2000000 | '%s' build \"$IN/large.db\" --error 0.001 --capacity 2000000", dir, BLOOMERY_TOOL_PATH);
    program_expect(output, sizeof(output), 0, "filter 'large'", "'%s' load %s large %s/in/large.db --variant na",
                   BLOOMERY_TOOL_PATH, url, dir);
    program_expect(output, sizeof(output), 1, "filter 'large' exists; --replace replaces it",
                   "'%s' load %s large %s/in/large.db --variant na", BLOOMERY_TOOL_PATH, url, dir);
    SHELL("echo x | '%s' build \"$IN/x.db\" --error 0.001", dir, BLOOMERY_TOOL_PATH);
    program_expect(output, sizeof(output), 0, "filter 'net_me'",
                   "'%s' load %s net_me %s/in/x.db --variant na --replace --capacity 50", BLOOMERY_TOOL_PATH, url, dir);
    client = client_after_kill(client, &the_daemon, NULL);
    expect_keys("net_na", "n100000_p0.01");
    expect_keys("net_ka", "n100000_p0.01");
    expect(client, ":1", "BF.EXISTS net_me x");
    expect(client, "[:50]", "BF.INFO net_me CAPACITY");
    for (int i = 1; i <= 2000000; i += 9973)
        expect(client, ":1", "BF.EXISTS large %d", i);
    cr_assert_eq(client_number(client, "DBSIZE"), 4, "a temporary name is left");

    program_expect(output, sizeof(output), 1,
                   "bloomery load: ", "'%s' load redis://127.0.0.1:1 x %s/in/x.db --variant na", BLOOMERY_TOOL_PATH,
                   dir);
    program_expect(output, sizeof(output), 2, "bloomery load: ", "'%s' load nonsense x %s/in/x.db --variant na",
                   BLOOMERY_TOOL_PATH, dir);
}

DAEMON_TEST(the_daemon, import, without_the_setting_it_is_refused)
{
    static const char *const none[] = {NULL};

    expect_has(client, "-ERR CONFIG SET failed", "CONFIG SET import-dir /");
    daemon_stop(&the_daemon);
    redisFree(client);
    client = client_start(&the_daemon, none);
    expect_has(client, "-ERR BF.IMPORT needs the setting import-dir", "BF.IMPORT x f");
    expect(client, "+OK", "MULTI");
    cr_assert_eq(client_ask(client, "BF.IMPORT x f")[0], '-', "it runs in the background: not in a transaction");
}
