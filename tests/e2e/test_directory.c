/* All states of a data directory: each row has the way to make the state, whether the daemon starts, its message and
 * the filters it serves then. A refused start changes nothing.
 *
 * The rows begin with the files of three filters after kill -9: "one" has 4 items saved and 1 in the log, "two" 30
 * in two layers, "three" 3 in the log only. The log has segments of three processes: 2 has the changes after the
 * save; 3 the same written again by the next process, and 4 its own; 5 and 6, likewise. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

#define ALL     "one=5 two=30 three=3"
#define NOTHING "one=0 two=0 three=0"

static struct daemon daemon_under_test;
static int lock_fd = -1;

static void discard(void)
{
    daemon_discard(&daemon_under_test);
}

#define AT(...) (tmp_path(daemon_under_test.data, __VA_ARGS__).text)

/* ---- making a state ---- */

/* For the shell: the files of the two saved filters, and of a later layer, without and with packs. */
static char variables[2][400];

/* Runs a shell command in the data directory. */
static void shell(const char *command, bool packed)
{
    char text[1024];

    snprintf(text, sizeof(text), "%scd %s && { %s; }", variables[packed], daemon_under_test.data, command);
    cr_assert_eq(system(text), 0, "%s", text);
}

static void change_manifest(void)
{
    file_change_byte(AT("MANIFEST"), 60);
}

static void change_filter(void)
{
    file_change_byte(daemon_layer(&daemon_under_test, "one", 0).path, 20);
}

static void change_filter_header(void)
{
    file_change_byte(daemon_layer(&daemon_under_test, "one", 0).path, 3);
}

static void change_second_layer(void)
{
    file_change_byte(daemon_layer(&daemon_under_test, "two", 1).path, -1);
}

static void change_packed(void)
{
    daemon_damage_layer(&daemon_under_test, "one", 20);
}

static void change_packed_header(void)
{
    daemon_damage_layer(&daemon_under_test, "one", 3);
}

static void change_record_header(void)
{
    daemon_damage_layer(&daemon_under_test, "one", -1);
}

static void tear_log(void)
{
    file_truncate(AT("log/00000004.log"), log_end(AT("log/00000004.log")) - 5);
}

static void put_garbage_behind_log(void)
{
    int fd = open(AT("log/00000004.log"), O_WRONLY);

    cr_assert(fd >= 0 && pwrite(fd, "garbage", 7, (long)log_end(AT("log/00000004.log"))) == 7);
    close(fd);
}

static void change_log_in_the_middle(void)
{
    file_change_byte(AT("log/00000003.log"), 4096 + 10);
}

static void change_log_header(void)
{
    file_change_byte(AT("log/00000003.log"), 26);
}

/* Takes the lock as another daemon does, and does nothing else. */
static void lock_by_another(void)
{
    lock_fd = open(AT("LOCK"), O_RDWR | O_CLOEXEC);
    cr_assert(lock_fd >= 0 && flock(lock_fd, LOCK_EX | LOCK_NB) == 0);
    dprintf(lock_fd, "4711\n");
}

/* ---- the states ---- */

enum outcome { STARTS, REFUSES };

struct row {
    const char *name;
    void (*make)(void);  /* NULL: by the command alone */
    const char *command; /* a shell command in the data directory; "": none */
    enum outcome outcome;
    const char *says;            /* in its log; "": no particular text */
    const char *serves;          /* an incomplete filter is "!" */
    const char *left;            /* a shell test that succeeds afterwards; "": none */
    const char *setting, *value; /* one more setting; NULL: none */
    bool unprivileged;
    bool packed; /* "one" and "two" are in a pack; else they have files */
};

#define ACCEPT   .setting = "--aof-load-damaged", .value = "yes"
#define AS_SAVED "one=4 two=30 three=0"
#define NONE     "one=! two=! three=3"
#define PACKED   .packed = true

#define ROW(name_, make_, command_, outcome_, says_, serves_, left_, ...)                                         \
    {                                                                                                             \
        .name = name_, .make = make_, .command = command_, .outcome = outcome_, .says = says_, .serves = serves_, \
        .left = left_, __VA_ARGS__                                                                                \
    }

static const struct row rows[] = {
    /* The directory. */
    ROW("as kill -9 has left it", NULL, "", STARTS, "ready", ALL, ""),
    ROW("empty", NULL, "rm -r ../data/*", STARTS, "loaded 0 filters", NOTHING, "test -f MANIFEST"),
    ROW("missing", NULL, "rm -r ../data", STARTS, "loaded 0 filters", NOTHING, "test -f MANIFEST"),
    ROW("with a parent that is missing", NULL, "", REFUSES, "No such file or directory", "", "", .setting = "--dir",
        .value = "/nowhere/data"),
    ROW("a file", NULL, "rm -r ../data && echo > ../data", REFUSES, "Not a directory", "", ""),
    ROW("a symbolic link to it", NULL, "mv ../data ../elsewhere && ln -s elsewhere ../data", STARTS, "ready", ALL, ""),
    ROW("a symbolic link to nothing", NULL, "rm -r ../data && ln -s nowhere ../data", REFUSES, "data", "", ""),
    ROW("read-only", NULL, "chmod -R a-w .", REFUSES, "LOCK: cannot lock: Permission denied", "", "",
        .unprivileged = true),
    ROW("read-only, but not what is in it", NULL, "chmod 555 .", STARTS, "ready", ALL, "", .unprivileged = true),
    ROW("not to be entered", NULL, "chmod 0 .", REFUSES, "Permission denied", "", "", .unprivileged = true),
    ROW("used by another daemon", lock_by_another, "", REFUSES, "4711", "", ""),
    ROW("without its lock file", NULL, "rm LOCK", STARTS, "ready", ALL, "test -s LOCK"),
    ROW("with the lock file of a process that is gone", NULL, "echo 999999999 > LOCK", STARTS, "ready", ALL, ""),
    ROW("with a lock file that is none", NULL, "rm LOCK && mkdir LOCK", REFUSES, "LOCK", "", "test -d LOCK"),
    ROW("with things of others in it", NULL, "echo a > notes && mkdir more && echo b > more/x", STARTS, "ready", ALL,
        "test -s notes && test -s more/x"),

    /* The MANIFEST. */
    ROW("MANIFEST missing", NULL, "rm MANIFEST", REFUSES, "MANIFEST", "", "test ! -e MANIFEST"),
    ROW("MANIFEST and filters missing", NULL, "rm -r MANIFEST filters", REFUSES, "lost its MANIFEST", "", ""),
    ROW("MANIFEST empty", NULL, ": > MANIFEST", REFUSES, "MANIFEST", "", "test ! -s MANIFEST"),
    ROW("MANIFEST torn", NULL, "truncate -s -30 MANIFEST", REFUSES, "MANIFEST", "", ""),
    ROW("MANIFEST torn within a line", NULL, "truncate -s 100 MANIFEST", REFUSES, "MANIFEST", "", ""),
    ROW("MANIFEST with a changed bit", change_manifest, "", REFUSES, "MANIFEST", "", ""),
    ROW("MANIFEST with more behind it", NULL, "echo >> MANIFEST", REFUSES, "MANIFEST", "", ""),
    ROW("MANIFEST of a newer version", NULL, "sed -i '1s/[0-9]*$/99/' MANIFEST", REFUSES, "version", "", ""),
    ROW("MANIFEST of something else", NULL, "echo hello > MANIFEST", REFUSES, "MANIFEST", "", ""),
    ROW("MANIFEST a directory", NULL, "rm MANIFEST && mkdir MANIFEST", REFUSES, "MANIFEST", "", "test -d MANIFEST"),
    ROW("MANIFEST not to be read", NULL, "chmod 0 MANIFEST", REFUSES, "MANIFEST", "", "", .unprivileged = true),
    ROW("MANIFEST a pipe", NULL, "rm MANIFEST && mkfifo MANIFEST", REFUSES, "MANIFEST", "", "test -p MANIFEST"),
    ROW("MANIFEST.new of a save that did not end", NULL, "echo torn > MANIFEST.new", STARTS, "ready", ALL,
        "test ! -e MANIFEST.new"),
    ROW("the mark of the save missing", NULL, "rm filters/*.saved", STARTS, "ready", ALL, "ls filters/*.saved"),
    ROW("the mark of a later save", NULL, ": > filters/99.saved", REFUSES, "an older one has been put here", "", ""),
    ROW("the mark of an earlier save as well", NULL, ": > filters/1.saved", STARTS, "ready", ALL,
        "test ! -e filters/1.saved"),

    /* Files of filters. */
    ROW("Filter.db missing", NULL, "rm $one", STARTS, "-Filter.db: missing", "one=! two=30 three=3", ""),
    ROW("all filters missing", NULL, "rm -r filters", STARTS, "missing", "one=! two=! three=3", ""),
    ROW("Filter.db empty", NULL, ": > $one", STARTS, "empty file", "one=! two=30 three=3", ""),
    ROW("Filter.db shorter", NULL, "truncate -s -8 $one", STARTS, "-Filter.db", "one=! two=30 three=3", ""),
    ROW("Filter.db longer", NULL, "truncate -s +3 $one", STARTS, "3 bytes behind", "one=! two=30 three=3", ""),
    ROW("Filter.db with a changed bit", change_filter, "", STARTS, "checksum", "one=! two=30 three=3", ""),
    ROW("Filter.db with another hash count", change_filter_header, "", STARTS, "hash count", "one=! two=30 three=3",
        ""),
    ROW("a later layer with a changed bit", change_second_layer, "", STARTS, "-Filter.db", "one=5 two=! three=3", ""),
    ROW("Filter.db of another filter", NULL, "cp $two $one", STARTS, "MANIFEST", "one=! two=30 three=3", ""),
    ROW("Filter.db a directory", NULL, "rm $one && mkdir $one", STARTS, "-Filter.db", "one=! two=30 three=3",
        "test -d $one"),
    ROW("Filter.db a pipe", NULL, "rm $one && mkfifo $one", STARTS, "-Filter.db", "one=! two=30 three=3",
        "test -p $one"),
    ROW("Filter.db not to be read", NULL, "chmod 0 $one", STARTS, "Permission denied", "one=! two=30 three=3", "",
        .unprivileged = true),
    ROW("a filter in quarantine, answering maybe", change_filter, "", STARTS, "checksum", "one=! two=30 three=3", "",
        .setting = "--quarantined-filters", .value = "maybe"),
    ROW("files of a save that did not end", NULL, "cp $one filters/na-999-big-Filter.db; echo > filters/998.pack",
        STARTS, "ready", ALL, "test ! -e filters/na-999-big-Filter.db && test ! -e filters/998.pack"),
    ROW("a file that a save made superfluous", NULL, "cp $one filters/me-1-big-Filter.db", STARTS, "ready", ALL,
        "test ! -e filters/me-1-big-Filter.db"),
    ROW("foreign files among the filters", NULL,
        "echo a > filters/notes; echo b > filters/01.pack; mkdir 'filters/x y'; mkdir filters/na-77-big-Filter.db",
        STARTS, "notes", ALL,
        "test -s filters/notes && test -s filters/01.pack && test -d 'filters/x y' && "
        "test -d filters/na-77-big-Filter.db"),
    ROW("filters a file", NULL, "rm -r filters && echo > filters", REFUSES, "filters", "", "test -s filters"),

    /* Packs. */
    ROW("packed, as kill -9 has left it", NULL, "", STARTS, "ready", ALL, "ls $one", PACKED),
    ROW("pack missing", NULL, "rm $one", STARTS, ".pack: missing", NONE, "", PACKED),
    ROW("pack empty", NULL, ": > $one", STARTS, "ends before byte", NONE, "", PACKED),
    ROW("pack cut", NULL, "truncate -s 100 $one", STARTS, "ends before byte", NONE, "", PACKED),
    ROW("pack longer", NULL, "echo more >> $one", STARTS, "ready", ALL, "", PACKED),
    ROW("pack with a changed bit in a filter", change_packed, "", STARTS, "checksum", "one=! two=30 three=3", "",
        PACKED),
    ROW("pack with another hash count", change_packed_header, "", STARTS, "hash count", "one=! two=30 three=3", "",
        PACKED),
    ROW("pack with a changed name, which nobody looks at", change_record_header, "", STARTS, "ready", ALL, "", PACKED),
    ROW("a filter of a pack in quarantine, answering maybe", change_packed, "", STARTS, "checksum",
        "one=! two=30 three=3", "", PACKED, .setting = "--quarantined-filters", .value = "maybe"),
    ROW("pack a directory", NULL, "rm $one && mkdir $one", STARTS, "Is a directory", NONE, "test -d $one", PACKED),
    ROW("pack not to be read", NULL, "chmod 0 $one", STARTS, "Permission denied", NONE, "", PACKED,
        .unprivileged = true),
    ROW("all but the packs missing", NULL, "rm -r MANIFEST* log", REFUSES, "filters is not empty", "", "ls $one",
        PACKED),

    /* The log. */
    ROW("log missing", NULL, "rm -r log", REFUSES, "it is missing", "", "test ! -e log"),
    ROW("log missing, accepted", NULL, "rm -r log", STARTS, "the loss is accepted", AS_SAVED, "", ACCEPT),
    ROW("log empty", NULL, "rm log/*", REFUSES, "it is missing", "", ""),
    ROW("log a file", NULL, "rm -r log && echo > log", REFUSES, "log", "", "test -s log"),
    ROW("log not to be read", NULL, "chmod 0 log", REFUSES, "Permission denied", "", "", .unprivileged = true),
    ROW("a segment not to be read", NULL, "chmod 0 log/00000003.log", REFUSES, "Permission denied", "", "",
        .unprivileged = true),
    ROW("log read-only", NULL, "chmod 555 log", STARTS, "ready", ALL, "", .unprivileged = true),
    ROW("its first segment missing", NULL, "rm log/00000002.log", REFUSES, "it is missing", "", ""),
    ROW("a segment in the middle missing", NULL, "rm log/00000003.log", REFUSES,
        "00000003.log is damaged: it is missing: frames", "", "test ! -e log/00000003.log"),
    ROW("a segment in the middle missing, accepted", NULL, "rm log/00000003.log", STARTS, "the loss is accepted",
        "one=5 two=30 three=0", "", ACCEPT),
    ROW("a torn end", tear_log, "rm log/*.pending", STARTS, "is cut", "one=5 two=30 three=2", ""),
    ROW("a torn end in a copy whose pending records begin later", tear_log, "", STARTS, ".pending belongs to frame",
        "one=5 two=30 three=2", ""),
    ROW("records pending, zeros", NULL, "truncate -s 0 log/*.pending && truncate -s 1M log/00000004.pending", STARTS,
        "00000004.pending: it is incomplete or damaged, as after a power failure: ignored", ALL, ""),
    ROW("records pending, a directory", NULL, "rm log/*.pending && mkdir log/00000004.pending", REFUSES,
        "00000004.pending", "", ""),
    ROW("garbage behind its end", put_garbage_behind_log, "", STARTS, "is cut", ALL, ""),
    ROW("damage in the middle", change_log_in_the_middle, "", REFUSES, "00000003.log is damaged: frame", "", ""),
    ROW("damage in the middle, accepted", change_log_in_the_middle, "", STARTS, "the loss is accepted",
        "one=5 two=30 three=0", "", ACCEPT),
    ROW("a damaged header", change_log_header, "", REFUSES, "00000003.log is damaged", "", ""),
    ROW("a segment cut within its header", NULL, "truncate -s 100 log/00000003.log", REFUSES,
        "00000003.log is damaged: it is shorter than its header", "", ""),
    ROW("an empty segment in the middle", NULL, ": > log/00000003.log", REFUSES,
        "00000003.log is damaged: it is shorter than its header", "", ""),
    ROW("a segment cut behind its header", NULL, "truncate -s 4096 log/00000003.log", REFUSES,
        "00000003.log is damaged: it ends too early: frames", "", ""),
    ROW("a segment with another version and its old checksum", NULL,
        "printf c | dd of=log/00000004.log bs=1 seek=8 conv=notrunc status=none", REFUSES,
        "the checksum of its header is wrong", "", ""),
    ROW("an empty segment at the end", NULL, ": > log/00000005.log", REFUSES,
        "00000005.log is damaged: it is shorter than its header", "", ""),
    ROW("a segment of zeros at the end", NULL, "truncate -s 65536 log/00000005.log", REFUSES,
        "00000005.log is damaged: it is not a segment of the log", "", ""),
    ROW("a segment with a torn header at the end", NULL, "head -c 20 log/00000004.log > log/00000005.log", REFUSES,
        "00000005.log is damaged: it is shorter than its header", "", ""),
    ROW("a torn header at the end, accepted", NULL, "head -c 20 log/00000004.log > log/00000005.log", STARTS,
        "the loss is accepted", ALL, "", ACCEPT),
    ROW("a segment that was to be deleted", NULL, "cp log/00000002.log log/00000001.log", STARTS, "ready", ALL, ""),
    ROW("a copy of a segment at the end", NULL, "cp log/00000004.log log/00000005.log", REFUSES,
        "it was created as segment 4", "", ""),
    ROW("foreign files beside the log", NULL, "echo a > log/notes; cp log/00000003.log log/00000003.log.bak", STARTS,
        "ready", ALL, "test -s log/notes && test -s log/00000003.log.bak"),
};

/* Gives the directory to a user for whom the daemon obeys file modes. False: there is no such user, as in a
 * namespace that has root alone (scripts/aarch64). */
static bool give_away(void)
{
    if (getuid() != 0)
        return true;
    if (chown(daemon_under_test.data, 65534, 65534) != 0) {
        cr_assert_eq(errno, EINVAL, "%s", strerror(errno));
        return false;
    }
    shell("chown -R 65534:65534 .", false);
    return true;
}

/* ---- the test ---- */

/* The initial directory of the rows, beside the data directory. */
static void make_template(bool packed)
{
    const char *const always[] = {"--appendfsync",       "always", "--threads", "1", "--save-pack-limit",
                                  packed ? "16kb" : "0", NULL};

    redisContext *client = client_start(&daemon_under_test, always);
    expect(client, "+OK", "BF.RESERVE one 0.0000001 100");
    expect(client, "[:1,:1,:1,:1]", "BF.MADD one a b c d");
    expect(client, "+OK", "BF.RESERVE two 0.0000001 20");
    for (int i = 0; i < 30; i++)
        expect(client, ":1", "BF.ADD two %d", i);
    wait_for_reply(daemon_under_test.port, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD one e");
    for (int i = 0; i < 2; i++) {
        client = client_after_kill(client, &daemon_under_test, NULL);
        if (i == 0)
            expect(client, ":1", "BF.ADD three a");
        expect(client, ":1", i == 0 ? "BF.ADD three b" : "BF.ADD three c");
    }
    client_kill(client, &daemon_under_test);
    snprintf(variables[packed], sizeof(variables[packed]), "one=%s; two=%s; later=%s; ",
             daemon_layer(&daemon_under_test, "one", 0).file, daemon_layer(&daemon_under_test, "two", 0).file,
             daemon_layer(&daemon_under_test, "two", 1).file);
    shell(packed ? "chmod 755 .. && mv ../data ../packed" : "chmod 755 .. && cp -a . ../template", packed);
}

/* "one=5 two=30 three=2": the count of each filter, if its items are there. */
static void describe(char *text, size_t size)
{
    static const char *const items[][2] = {{"one", "a b c d e"}, {"two", "0 9 19 20 29"}, {"three", "a b c"}};
    redisContext *client = client_open(daemon_under_test.port);
    size_t len = 0;

    for (int i = 0; i < 3; i++) {
        char query[64];

        snprintf(query, sizeof(query), "BF.MEXISTS %s %s", items[i][0], items[i][1]);
        const char *reply = client_ask(client, query);
        int present = 0, wanted = i == 2 ? 3 : 5;
        bool error = reply[0] == '-';
        for (; *reply; reply++)
            present += *reply == '1';
        reply = client_ask(client, "BF.CARD %s", items[i][0]);
        len += (size_t)snprintf(text + len, size - len, "%s%s=", i ? " " : "", items[i][0]);
        if (error || reply[0] == '-') /* a filter in quarantine has no count */
            len += (size_t)snprintf(text + len, size - len, "!");
        else if (present < wanted && i == 1 && present > 0)
            len += (size_t)snprintf(text + len, size - len, "(%d of %d items)", present, wanted);
        else
            len += (size_t)snprintf(text + len, size - len, "%s", reply + 1);
    }
    redisFree(client);
}

static bool set_up(const struct row *row)
{
    char command[1024];

    snprintf(command, sizeof(command),
             "cd %.255s && chmod -R u+rwX data 2>/dev/null; rm -rf data elsewhere; cp -a %s data",
             daemon_under_test.dir, row->packed ? "packed" : "template");
    cr_assert_eq(system(command), 0);
    if (row->unprivileged && !give_away())
        return false;
    if (row->make)
        row->make();
    if (row->command[0])
        shell(row->command, row->packed);
    return true;
}

/* Names, sizes and checksums of all files except LOCK. */
static void fingerprint(char *text, size_t size)
{
    program_run(text, size,
                "cd %s && (find -H data ! -name LOCK -exec stat -c '%%n %%s %%f' {} + | sort; "
                "find -H data ! -name LOCK -type f -exec cksum {} + | sort) 2>/dev/null",
                daemon_under_test.dir);
}

static void play(const struct row *row)
{
    static char before[16384], after[16384];
    const char *args[8] = {"--appendfsync", "always", "--threads", "1", row->setting, row->value, NULL};
    char served[128] = "", command[1024];

    if (!set_up(row))
        return;
    fingerprint(before, sizeof(before));
    daemon_under_test.unprivileged = row->unprivileged;
    bool starts = daemon_try(&daemon_under_test, args);
    daemon_under_test.unprivileged = false;
    const char *output = daemon_output(&daemon_under_test);
    cr_expect(starts == (row->outcome == STARTS), "%s: it %s:\n%s", row->name, starts ? "starts" : "refuses", output);
    cr_expect(strstr(output, row->says) != NULL, "%s: it does not say '%s':\n%s", row->name, row->says, output);
    if (starts) {
        describe(served, sizeof(served));
        cr_expect_str_eq(served, row->serves, "%s: serves %s:\n%s", row->name, served, output);
        daemon_kill(&daemon_under_test);
    } else {
        fingerprint(after, sizeof(after));
        cr_expect_str_eq(after, before, "%s: it has changed\n%sto\n%s", row->name, before, after);
    }
    if (lock_fd >= 0)
        close(lock_fd);
    lock_fd = -1;
    snprintf(command, sizeof(command), "%.200scd %.255s/data && { %.500s; }", variables[row->packed],
             daemon_under_test.dir, row->left);
    cr_expect(row->left[0] == '\0' || system(command) == 0, "%s: afterwards not: %s", row->name, row->left);
}

Test(directory, every_state_it_can_be_found_in, .fini = discard, .timeout = 3000)
{
    make_template(true);
    make_template(false);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        play(&rows[i]);
}

/* An unwritable log: reads continue, writes are refused with the reason, and giving the permission back is enough to
 * repair it. */
Test(directory, a_log_that_becomes_read_only_refuses_writes_until_it_is_writable, .fini = discard, .timeout = 3000)
{
    const char *const args[] = {"--appendfsync", "always", NULL};

    make_template(false);
    if (!give_away())
        cr_skip_test("there is no user but root");
    shell("chmod 555 log", false);
    daemon_under_test.unprivileged = true;
    redisContext *client = client_start(&daemon_under_test, args);
    /* The start has something to write. An earlier write, before the daemon knows this, would be accepted, and wait. */
    wait_until(strstr(client_ask(client, "INFO persistence"), "aof_last_write_status:err"));
    const char *reply = client_ask(client, "BF.RESERVE new 0.01 10");
    cr_assert(strncmp(reply, "-MISCONF Errors writing to the AOF file: ", 41) == 0, "%s", reply);
    expect_has(client, "Permission denied", "BF.ADD one g");
    expect(client, "[:1,:1,:0]", "BF.MEXISTS one a e g");
    shell("chmod 755 log", false);
    wait_for_reply(daemon_under_test.port, "+OK", "BF.RESERVE new 0.01 10");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, "[:1,:1,:0]", "BF.MEXISTS one a e g");
    expect(client, ":5", "BF.CARD one");
    expect(client, ":1", "EXISTS new");
    client_stop(client, &daemon_under_test);
}
