/* sstable-dir: the daemon's answers before its first check of all directories has ended. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "disk_control.h"
#include "http.h"
#include "sstables_rig.h"
#include "wait.h"

static void end(void)
{
    disk_detach();
    discard();
}

TestSuite(sstable_scan, .fini = end, .timeout = 3000);

#define SCANNING "still scanning sstable-dir"

static void expect_readiness(int status, const char *body)
{
    struct http_reply reply;
    http_get(the_daemon.web_port, "/readyz", "", &reply);
    cr_expect_eq(reply.status, status);
    cr_expect(strncmp(reply.body, body, strlen(body)) == 0, "%s", reply.body);
    http_free(&reply);
}

/* The first directory has been scanned, and the daemon waits for the disk in the second one. */
static void start_and_hold(void)
{
    char dirs[800];
    disk_attach();
    atomic_store(&disk->hold_opens, 1);
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("held/ks/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    snprintf(dirs, sizeof(dirs), "%s/data:%s/held", root, root);
    const char *const args[] = {"--sstable-dir", dirs, NULL};
    the_daemon.with_web = true;
    client = client_start(&the_daemon, args);
    wait_for("[\"ks.t/1\"]", "KEYS *");
}

/* No client gets "certainly not" about files that have not been found yet. */
DAEMON_TEST(the_daemon, sstable_scan, the_port_answers_meanwhile)
{
    start_and_hold();
    expect_find("[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[\"ks.t/*\",\"" SCANNING "\"]]",
                "BF.FIND ks.t/* ITEMS k");
    expect_find("[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[\"ks.t/2\",\"" SCANNING "\"]]",
                "BF.FIND ks.t/1 ks.t/2 KEY text:k");
    expect(client, ":1", "BF.EXISTS ks.t/1 k");
    expect(client, "-TRYAGAIN " SCANNING, "BF.EXISTS ks.t/2 k");
    expect(client, "-TRYAGAIN " SCANNING, "BF.MEXISTS ks.t/2 k kk");
    expect(client, ":1", "BF.ADD own x");
    expect(client, ":1", "BF.EXISTS own x");
    cr_expect_eq(client_info(client, "bf", "sstable_scanning"), 1);
    cr_expect_eq(client_info(client, "bf", "sstable_filters"), 1);
    expect_readiness(503, SCANNING);
    atomic_store(&disk->hold_opens, 0);
    wait_scanned();
    expect_find("[\"asked\",:2,\"found\",[[\"ks.t/1\",\"ks.t/2\"]],\"unknown\",[]]", "BF.FIND ks.t/* ITEMS k");
    expect_find("[\"asked\",:0,\"found\",[[]],\"unknown\",[\"ks.t/3\",\"not found\"]]", "BF.FIND ks.t/3 ITEMS k");
    expect(client, ":0", "BF.EXISTS ks.t/3 k");
    expect_readiness(200, "ready");
}

/* The disk recovers after the daemon has got the signal to end. */
Test(sstable_scan, ends_with_the_daemon)
{
    start_and_hold();
    cr_assert_eq(kill(the_daemon.pid, SIGTERM), 0);
    atomic_store(&disk->hold_opens, 0);
    daemon_wait(&the_daemon);
}
