/* Each file operation of the daemon fails once: in a scenario with all its uses of files, and in its start. Clients
 * get the expected reply or an error with the reason, reads continue, and refused commands have no effect. The
 * service recovers with the disk. After a power failure all acknowledged changes are there.
 *
 * A run of all tests has time for some operations only, different ones each time, under sanitizers for a fifth of
 * those: BLOOMERY_FAULT_STRIDE=1 tries them all, BLOOMERY_FAULT_FIRST=<n> begins with the n-th. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "environment.h"
#include "log_clients.h"
#include "power.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

#define PATIENCE_S  300
#define HURRY_MS    20    /* then a mended disk is checked at once, not after its second */
#define GENERATION  8     /* scenarios between power failures */
#define CHAIN_ITEMS 40000 /* forty layers: too many to be synced one by one, and too much for a record of the log */

static struct daemon daemon_under_test;
static struct power power;
static redisContext *client, *other;
static char what[200]; /* for messages */

static void discard(void)
{
    daemon_discard(&daemon_under_test);
    power_detach(&power);
}

TestSuite(disk_faults, .fini = discard, .timeout = 3000);

static long stride_of(long ci_stride)
{
    return (long)environment_number("BLOOMERY_FAULT_STRIDE", (uint64_t)(DAEMON_SANITIZED ? 5 * ci_stride : ci_stride));
}

static long first_below(long end)
{
    return (long)environment_number("BLOOMERY_FAULT_FIRST", (uint64_t)(getpid() % end));
}

static void connect_both(void)
{
    client = client_open(daemon_under_test.port);
    other = client_open(daemon_under_test.port);
}

static void disconnect_both(void)
{
    redisFree(client);
    redisFree(other);
}

/* ---- one step ---- */

/* Reads are served in every state of the disk. */
static void expect_reads(void)
{
    cr_assert_str_eq(client_ask(other, "BF.EXISTS base x"), ":1", "%s", what);
    cr_assert_str_eq(client_ask(other, "BF.EXISTS base y"), ":0", "%s", what);
}

/* The disk is well from now on, and checked soon. */
static void mend(void)
{
    disk_mend();
    const char *reply = client_ask(other, "BGREWRITEAOF");
    cr_assert(reply[0] == '+' || strncmp(reply, "-ERR", 4) == 0, "%s: %s", what, reply);
}

static bool has_reason(const char *error)
{
    return strstr(error, strerror(EIO)) || strstr(error, strerror(ENOSPC)) ||
           strncmp(error, "-MISCONF Errors writing to the AOF file: ", 41) == 0;
}

/* The command succeeds, possibly after errors that have a reason. A refused command that has nevertheless been done
 * shows in the next reply. */
static void step(const char *expected, const char *command)
{
    double until = wait_clock() + PATIENCE_S;

    for (;;) {
        struct pollfd readable = {.fd = client->fd, .events = POLLIN};
        int sent = 0;

        cr_assert_lt(wait_clock(), until, "%s: '%s' does not succeed", what, command);
        cr_assert_eq(redisAppendCommand(client, command), REDIS_OK);
        while (!sent)
            cr_assert_eq(redisBufferWrite(client, &sent), REDIS_OK, "%s: %s", what, command);
        while (poll(&readable, 1, HURRY_MS) == 0) { /* it waits for a disk that fails */
            cr_assert_lt(wait_clock(), until, "%s: '%s' is not answered", what, command);
            expect_reads();
            if (atomic_load(&disk->hits))
                mend();
        }
        const char *reply = client_reply(client);
        if (strcmp(reply, expected) == 0)
            return;
        if (strncmp(reply, "-ERR Background save already in progress", 12) == 0 && strstr(reply, "in progress")) {
            usleep(2000);
            continue;
        }
        cr_assert(reply[0] == '-' && has_reason(reply), "%s: '%s' was answered '%s'", what, command, reply);
        cr_assert(atomic_load(&disk->hits), "%s: '%s' was answered '%s' and nothing has failed", what, command, reply);
        expect_reads();
        mend();
    }
}

/* ---- the scenario ---- */

#define TEN(a, b) a "0" b a "1" b a "2" b a "3" b a "4" b a "5" b a "6" b a "7" b a "8" b a "9" b
#define ONES      "[:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1,:1]"

/* All uses of files by the daemon. */
static const struct {
    const char *expected, *command; /* %d: the scenario's number */
} scenario[] = {
    {"+OK", "BF.RESERVE f%d 0.0000001 15"},
    {":1", "BF.ADD f%d a"},
    {ONES, "BF.MADD f%d" TEN(" b", "") TEN(" c", "")}, /* it grows */
    {"+OK", "SAVE"},
    {"+OK", "RENAME f%d g%d"},
    {":1", "BF.ADD g%d d"},
    {"+OK", "BF.RESERVE h%d 0.0000001 15"},
    {":1", "BF.ADD h%d e"},
    {"+OK", "BF.MERGE h%d g%d"},
    {":1", "COPY g%d i%d"},
    {"+OK", "BF.RESERVE j%d 0.0000001 20000"}, /* too large to be in the log */
    {":1", "BF.ADD j%d a"},
    {":1", "COPY j%d k%d"},
    {"+OK", "BF.MERGE j%d k%d"},
    {"+OK", "BF.CLEAR g%d"},
    {":1", "PEXPIREAT i%d 95617584000000"},
    {":1", "BF.ADD g%d a"},
    {"+OK", "CONFIG SET appendonly no"},
    {"+OK", "CONFIG SET appendonly yes"},
    {"+OK", "SAVE"}, /* saves the changes that were in no log */
    {":2", "DEL i%d j%d"},
    {":1", "BF.ADD h%d f"},
    {":1", "BF.ADD g%d b"},
};
#define STEPS (sizeof(scenario) / sizeof(*scenario))

static void fill_in(char *command, size_t size, const char *format, int n)
{
    size_t len = 0;

    for (; *format && len + 16 < size; format++) {
        if (strncmp(format, "%d", 2) == 0) {
            len += (size_t)snprintf(command + len, size - len, "%d", n);
            format++;
        } else {
            command[len++] = *format;
        }
    }
    command[len] = '\0';
}

/* All steps, or up to the step in which an operation failed. */
static void run_scenario(int n, bool until_hit)
{
    char command[256];

    for (size_t i = 0; i < STEPS && !(until_hit && atomic_load(&disk->hits)); i++) {
        fill_in(command, sizeof(command), scenario[i].command, n);
        step(scenario[i].expected, command);
    }
}

/* All visible properties of the filters of a scenario, without their names. */
#define DESCRIPTION 4096

static void describe(int n, char text[DESCRIPTION])
{
    size_t len = 0;

    for (const char *name = "fghijk"; *name; name++) {
        char filter[16];

        snprintf(filter, sizeof(filter), "%c%d", *name, n);
        len +=
            (size_t)snprintf(text + len, DESCRIPTION - len, "%c: %s", *name, client_ask(client, "BF.CARD %s", filter));
        len +=
            (size_t)snprintf(text + len, DESCRIPTION - len, " until %s", client_ask(client, "PEXPIRETIME %s", filter));
        len += (size_t)snprintf(text + len, DESCRIPTION - len, " has %s\n",
                                client_ask(client, "BF.MEXISTS %s a b c d e f g" TEN(" b", "") TEN(" c", ""), filter));
    }
}

static void check_files(void)
{
    const char *output;

    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s: %s", what, output);
}

/* All results of scenarios `from` to `to` - 1 are there after a power failure. Then they are deleted. */
static void lose_power(int from, int to)
{
    static char before[GENERATION][DESCRIPTION], after[DESCRIPTION];

    for (int n = from; n < to; n++)
        describe(n, before[n - from]);
    disconnect_both();
    daemon_kill(&daemon_under_test);
    power_fail(&power, &daemon_under_test, (uint64_t)to);
    snprintf(what + strlen(what), sizeof(what) - strlen(what), ", then a %s", power.what);
    check_files();
    daemon_restart(&daemon_under_test);
    connect_both();
    expect_reads();
    for (int n = from; n < to; n++) {
        describe(n, after);
        cr_assert_str_eq(after, before[n - from], "%s:\n%sinstead of\n%s", what, after, before[n - from]);
        client_ask(client, "DEL f%d g%d h%d i%d j%d k%d", n, n, n, n, n, n);
    }
    cr_assert_str_eq(client_ask(client, "KEYS *"), "[\"base\"]", "%s", what);
}

static void start(void)
{
    static const char *const args[] = {"--appendfsync", "always", "--threads", "2", NULL};

    power_attach(&power, &daemon_under_test);
    daemon_start(&daemon_under_test, args);
    connect_both();
    expect(client, ":1", "BF.ADD base x");
}

/* Of every two failing operations, a power failure follows the first one as soon as its command has been answered;
 * the rest of the scenario follows the other one. The order changes from run to run. */
static void sweep(const char *name, enum disk_fault fault, int error, long ci_stride)
{
    long stride = stride_of(ci_stride);
    long first = first_below(2 * stride);
    static char expected[DESCRIPTION], whole[DESCRIPTION];
    long hits = 0, tries = first / stride;
    int n = 0, from = 0;

    start();
    long calls = atomic_load(&disk->calls);
    snprintf(what, sizeof(what), "%s, no fault", name);
    run_scenario(n, false);
    describe(n++, expected);
    calls = atomic_load(&disk->calls) - calls;
    for (long at = first % stride; at <= calls; at += stride) {
        bool at_once = tries++ % 2 == 0;

        snprintf(what, sizeof(what), "%s, operation %ld of %ld", name, at + 1, calls);
        disk_fail(at + 1, fault, error);
        run_scenario(n, at_once);
        disk_mend();
        bool hit = atomic_load(&disk->hits) > 0;
        if (hit)
            snprintf(what, sizeof(what), "%s, operation %ld of %ld, %s", name, at + 1, calls, disk->hit);
        if (!hit || !at_once) {
            describe(n, whole);
            cr_assert_str_eq(whole, expected, "%s:\n%sinstead of\n%s", what, whole, expected);
        }
        hits += hit;
        n++;
        if (at_once || n - from == GENERATION || at + stride > calls) {
            lose_power(from, n);
            from = n;
        }
    }
    printf("%s: %ld of %ld operations have failed\n", name, hits, calls);
    cr_assert(hits > 0 || stride > 3, "nothing has failed"); /* a few steps may all miss the writes */
    disconnect_both();
    daemon_stop(&daemon_under_test);
    check_files();
}

Test(disk_faults, each_operation_fails_once_with_an_io_error)
{
    sweep("EIO", DISK_ERROR, EIO, 1);
}

Test(disk_faults, the_disk_is_full_from_each_operation_on)
{
    sweep("ENOSPC", DISK_FULL, ENOSPC, 2);
}

Test(disk_faults, each_write_is_short_once)
{
    sweep("short", DISK_SHORT, 0, 1);
}

Test(disk_faults, each_write_is_torn_once)
{
    sweep("torn", DISK_TORN, EIO, 3);
}

Test(disk_faults, each_operation_takes_place_and_reports_an_error_once)
{
    sweep("late", DISK_LATE, EIO, 2);
}

/* ---- the start ---- */

/* Work for the next start: an unfinished save, a log after it, contents that are in no save. */
static void prepare_start(int n)
{
    expect(client, "+OK", "BF.RESERVE f%d 0.0000001 %s", n,
           n % 2 ? "20000" : "15"); /* the copy in a file, or in the log */
    expect(client, "[:1,:1,:1]", "BF.MADD f%d a b c", n);
    wait_for_reply(daemon_under_test.port, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD f%d d", n);
    expect(client, ":1", "COPY f%d g%d", n, n);
    if (n > 0)
        expect(client, "+OK", "RENAME g%d g%d", n - 1, n);
}

/* An unreadable filter reports an error; no filter has lost items. */
static void expect_whole_or_quarantined(int n, bool *quarantined)
{
    for (int i = 0; i <= n; i++) {
        const char *reply = client_ask(client, "BF.MEXISTS f%d a b c d e", i);
        bool error = reply[0] == '-';

        *quarantined = *quarantined || error;
        cr_assert(error ? strstr(reply, strerror(EIO)) != NULL : strcmp(reply, "[:1,:1,:1,:1,:0]") == 0, "%s: f%d: %s",
                  what, i, reply);
    }
}

static void sweep_starts(const char *name, enum disk_fault fault, int error, long ci_stride)
{
    long stride = stride_of(ci_stride), refused = 0, begun = 0, hits = 1;
    bool quarantined = false;
    int n = 0;

    start();
    for (long at = first_below(stride); hits > 0; at += stride, n++) {
        prepare_start(n % 10);
        disconnect_both();
        daemon_kill(&daemon_under_test);
        power_fail(&power, &daemon_under_test, (uint64_t)at);
        disk_fail(at + 1, fault, error);
        bool ready = daemon_try(&daemon_under_test, NULL);
        hits = atomic_load(&disk->hits);
        snprintf(what, sizeof(what), "%s, operation %ld of the start, %s", name, at + 1, hits ? disk->hit : "none");
        disk_mend();
        if (ready) {
            connect_both();
            expect_whole_or_quarantined(n % 10, &quarantined);
            disconnect_both();
            daemon_kill(&daemon_under_test);
        } else {
            cr_assert(hits && strstr(daemon_output(&daemon_under_test), strerror(error)), "%s: %s", what,
                      daemon_output(&daemon_under_test));
        }
        refused += !ready;
        begun++;
        power_fail(&power, &daemon_under_test, (uint64_t)at + 1);
        check_files();
        daemon_restart(&daemon_under_test);
        connect_both();
        expect_reads();
        bool none = false;
        expect_whole_or_quarantined(n % 10, &none);
        cr_assert(!none, "%s: a filter is in quarantine", what);
        if (n % 10 == 9)
            expect(client, ":11", "DEL f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 g9");
    }
    printf("%s: %ld starts, %ld of them refused\n", name, begun, refused);
    cr_assert(refused < begun && (refused > 0 || stride > 3)); /* a few steps may all miss what matters */
    disconnect_both();
    daemon_stop(&daemon_under_test);
}

Test(disk_faults, each_operation_of_a_start_fails_once_with_an_io_error)
{
    sweep_starts("EIO", DISK_ERROR, EIO, 1);
}

Test(disk_faults, the_disk_is_full_from_each_operation_of_a_start_on)
{
    sweep_starts("ENOSPC", DISK_FULL, ENOSPC, 1);
}

Test(disk_faults, each_operation_of_a_start_takes_place_and_reports_an_error_once)
{
    sweep_starts("late", DISK_LATE, EIO, 2);
}

/* ---- the start after a kill, with records that are in the file of pending records only ---- */

static void keep_data(const char *from, const char *to)
{
    char output[400];

    cr_assert_eq(program_run(output, sizeof(output), "cd %s && rm -rf %s && cp -a %s %s 2>&1", daemon_under_test.dir,
                             to, from, to),
                 0, "%s", output);
}

/* The log's thread is in a sync from before these adds to after the kill. */
static void kill_with_pending_records(void)
{
    static const char *const args[] = {"--appendfsync", "everysec", "--threads", "2", NULL};

    disk_attach();
    daemon_start(&daemon_under_test, args);
    connect_both();
    expect(client, "+OK", "BF.RESERVE f0 0.0000001 20000");
    expect(client, "+OK", "BF.RESERVE f1 0.0000001 15");
    expect(client, "[:1,:1]", "BF.MADD f0 a b");
    expect(client, "[:1,:1]", "BF.MADD f1 a b");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD f0 c");
    expect(client, ":1", "BF.ADD f1 c");
    atomic_store(&disk->hold_syncs, 1);
    cr_assert_eq(redisAppendCommand(other, "WAITAOF 1 0 0"), REDIS_OK);
    for (int sent = 0; !sent;)
        cr_assert_eq(redisBufferWrite(other, &sent), REDIS_OK);
    wait_until(atomic_load(&disk->syncs_held));
    expect(client, ":1", "BF.ADD f0 d");
    expect(client, ":1", "BF.ADD f1 d");
    expect(client, "+OK", "BF.RESERVE f2 0.0000001 15");
    expect(client, "[:1,:1,:1,:1]", "BF.MADD f2 a b c d");
    disconnect_both();
    daemon_kill(&daemon_under_test);
    disk_mend();
}

Test(disk_faults, each_operation_of_a_start_after_a_kill_fails_once_and_no_pending_record_is_lost)
{
    long stride = stride_of(1), refused = 0, begun = 0, hits = 1;
    bool quarantined = false;

    kill_with_pending_records();
    keep_data("data", "kept");
    for (long at = first_below(stride); hits > 0; at += stride, begun++) {
        keep_data("kept", "data");
        disk_fail(at + 1, DISK_ERROR, EIO);
        bool ready = daemon_try(&daemon_under_test, NULL);
        hits = atomic_load(&disk->hits);
        snprintf(what, sizeof(what), "operation %ld of the start, %s", at + 1, hits ? disk->hit : "none");
        disk_mend();
        if (!ready) {
            cr_assert(hits && strstr(daemon_output(&daemon_under_test), strerror(EIO)), "%s: %s", what,
                      daemon_output(&daemon_under_test));
            refused++;
            daemon_restart(&daemon_under_test);
        }
        connect_both();
        bool *found = ready ? &quarantined : &(bool){false};
        expect_whole_or_quarantined(2, found);
        cr_assert(ready || !*found, "%s: a filter is in quarantine", what);
        disconnect_both();
        daemon_kill(&daemon_under_test);
    }
    printf("%ld starts, %ld of them refused\n", begun, refused);
    cr_assert(refused > 0 && refused < begun);
    disk_detach();
}

/* ---- a chain of many layers ---- */

/* Its files are synced by one sync of the file system, and the record in the log waits for it. */
Test(disk_faults, a_copy_of_many_layers_is_refused_if_its_sync_fails_and_survives_a_power_failure_if_not)
{
    start();
    expect(client, "+OK", "BF.RESERVE chain 0.01 1000 EXPANSION 1");
    client_add_items(client, "chain", 0, CHAIN_ITEMS);
    disk_fail_only("syncfs data/filters", 1, DISK_ERROR, EIO);
    const char *reply = client_ask(client, "COPY chain copy");
    cr_assert(strstr(reply, strerror(EIO)), "%s", reply);
    cr_assert_eq(atomic_load(&disk->hits), 1);
    expect(client, ":0", "EXISTS copy");
    mend();
    expect(client, ":1", "COPY chain copy");
    disconnect_both();
    daemon_kill(&daemon_under_test);
    power_fail(&power, &daemon_under_test, 1);
    daemon_restart(&daemon_under_test);
    connect_both();
    client_expect_items(client, "copy", 0, CHAIN_ITEMS);
    disconnect_both();
    daemon_stop(&daemon_under_test);
}
