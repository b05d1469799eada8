/* `bloomery status`, the real program: a healthy server, each kind of trouble, and servers that do not answer. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "disk_control.h"
#include "program.h"
#include "wait.h"
#include "wire_tls.h"

DISK_SUITE(the_daemon, status);

static char output[16384];

#define STATUS(code, text, ...)                                                                          \
    program_expect(output, sizeof(output), code, text, "exec 2>&1; '%s' status redis://127.0.0.1:%d %s", \
                   BLOOMERY_TOOL_PATH, the_daemon.port, "" __VA_ARGS__)

Test(status, healthy_and_full)
{
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    client_add_items(client, "f", 0, 50);
    expect(client, "+OK", "BF.RESERVE full 0.01 1 NONSCALING");
    expect(client, ":1", "BF.ADD full x");
    STATUS(0, ": healthy\nbloomery ");
    program_said(output, "\n2 filters, 51 items, 1 of fixed size are full\n");
    program_said(output, "log of changes: on");
    STATUS(0, "\"healthy\":true,\"reasons\":[],", "--json");
    program_said(output, "\"filters\":2,\"items\":51,\"full_filters\":1,\"quarantined_filters\":0,");
    expect(client, "+OK", "CONFIG SET maxmemory 1");
    STATUS(1, "\n  memory: ");
    STATUS(1, "\"healthy\":false,\"reasons\":[\"memory: ", "--json");
    expect(client, "+OK", "CONFIG SET maxmemory 0");
    STATUS(0, ": healthy\n");
}

Test(status, quarantined_filters_are_named)
{
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    expect(client, "+OK", "BF.RESERVE good 0.01 100000"); /* large: its own file */
    expect(client, "+OK", "BF.RESERVE bad 0.01 200000");
    expect(client, "+OK", "SAVE");
    client_kill(client, &the_daemon);
    cr_assert_eq(unlink(daemon_layer(&the_daemon, "bad", 0).path), 0);
    daemon_restart(&the_daemon);
    STATUS(1, ": unhealthy\n  1 filter in quarantine; restore the files and restart the server, or DEL\n    bad: ");
    program_said(output, ": missing\n");
    cr_expect_null(strstr(output, "good"), "%s", output);
}

/* The names are determined without use of the other filters: evicted bits stay out. */
Test(status, naming_reads_no_bits_from_the_disk)
{
    redisContext *client =
        client_start(&the_daemon, (const char *const[]){"--threads", "1", "--lazy-load", "yes", NULL});
    for (int i = 0; i < 8; i++)
        expect(client, "+OK", "BF.RESERVE good%d 0.01 100000", i);
    expect(client, "+OK", "BF.RESERVE odd 0.01 200000");
    expect(client, "+OK", "SAVE");
    cr_assert_eq(unlink(daemon_layer(&the_daemon, "odd", 0).path), 0);
    client_kill(client, &the_daemon);
    client = client_restart(&the_daemon);
    expect_has(client, "quarantined: ", "BF.EXISTS odd x"); /* the first use notices its missing file */
    wait_until(client_info(client, "bf", "bf_away_filters") == 8);
    STATUS(1, ": unhealthy\n  1 filter in quarantine; restore the files and restart the server, or DEL\n    odd: ");
    cr_expect_eq(client_info(client, "bf", "bf_away_filters"), 8);
    cr_expect_eq(client_info(client, "bf", "bf_reloads"), 0);
    cr_expect_eq(client_info(client, "bf", "bf_query_misses"), 0);
    expect(client, ":1", "DEL odd");
    STATUS(0, ": healthy\n");
    program_said(output, "; the bits of 8 filters are on the disk only\n");
}

/* Five are named, in printable bytes, and the others counted; filters hidden from the user are counted, too. */
Test(status, many_quarantined_filters)
{
    daemon_prepare(&the_daemon);
    char sstables[sizeof(the_daemon.dir) + 16];
    snprintf(sstables, sizeof(sstables), "%s/sstables", the_daemon.dir);
    cr_assert_eq(mkdir(sstables, 0755), 0);
    redisContext *client =
        client_start(&the_daemon, (const char *const[]){"--threads", "1", "--sstable-dir", sstables, NULL});
    for (char i = '0'; i < '6'; i++)
        expect(client, "+OK", "BF.RESERVE %b 0.01 200000", (char[]){'b', '\n', '\33', i}, (size_t)4);
    expect(client, "+OK", "SAVE");
    wait_until(client_info(client, "bf", "sstable_scanning") == 0);
    STATUS(0, ": healthy\n");
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof(name), "b%%0A%%1B%d", i);
        cr_assert_eq(unlink(daemon_layer(&the_daemon, name, 0).path), 0);
    }
    client = client_after_kill(client, &the_daemon, NULL);
    wait_until(client_info(client, "bf", "sstable_scanning") == 0);
    STATUS(1, "\n  6 filters in quarantine; ");
    program_said(output, "\n    b%0A%1B");
    program_said(output, "\n    and 1 more, here or in other databases\nbloomery ");
    cr_expect(!strstr(output, "round") && !strchr(output, '\33'), "%s", output);
    expect(client, "+OK", "ACL SETUSER monitor on >secret +info");
    program_expect(output, sizeof(output), 1, "\n    the list is incomplete: CLIENT NO-TOUCH answers: NOPERM",
                   "'%s' status redis://monitor:secret@127.0.0.1:%d", BLOOMERY_TOOL_PATH, the_daemon.port);
    expect(client, "+OK", "ACL SETUSER monitor +client +scan");
    program_expect(output, sizeof(output), 1, "\n    the list is incomplete: BF.CARD answers: NOPERM",
                   "'%s' status redis://monitor:secret@127.0.0.1:%d", BLOOMERY_TOOL_PATH, the_daemon.port);
    expect(client, "+OK", "ACL SETUSER monitor +bf.card allkeys");
    program_expect(output, sizeof(output), 1, "\n    b%0A%1B", "'%s' status redis://monitor:secret@127.0.0.1:%d",
                   BLOOMERY_TOOL_PATH, the_daemon.port);
}

/* The clients' memory does not count against maxmemory; with evictions maxmemory is meant to be full. */
Test(status, memory_as_maxmemory_counts_it)
{
    static char large[4 << 20];
    daemon_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    for (int i = 0; i < 500; i++) /* 2 MB, all too small to be evicted */
        expect(client, "+OK", "BF.RESERVE f%d 0.01 3000", i);
    expect(other, "+OK", "MULTI");
    expect(other, "+QUEUED", "BF.ADD f0 %b", large, sizeof(large));
    expect(client, "+OK", "CONFIG SET maxmemory 4mb");
    cr_assert_gt(client_info(client, "memory", "used_memory"), 4 << 20);
    STATUS(0, ": healthy\n");
    program_said(output, " count against maxmemory 4.2 MB\n");
    expect(other, "+OK", "DISCARD");
    long long limited =
        client_info(client, "memory", "used_memory") - client_info(client, "memory", "mem_not_counted_for_evict");
    expect(client, "+OK", "CONFIG SET maxmemory %lld", limited * 103 / 100);
    STATUS(1, "; adds that need more are refused; ");
    expect(client, "+OK", "CONFIG SET maxmemory-policy reload");
    STATUS(0, ": healthy\n");
    expect(client, "+OK", "CONFIG SET maxmemory 1");
    STATUS(1, "; evictions are too slow or impossible, ");
}

Test(status, clients_that_are_too_many)
{
    daemon_start(&the_daemon, (const char *const[]){"--threads", "1", "--maxclients", "3", NULL});
    redisContext *clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = client_open(the_daemon.port);
        expect(clients[i], "+PONG", "PING");
    }
    STATUS(2, "max number of clients reached");
    redisFree(clients[2]);
    wait_until(client_info(clients[0], "clients", "connected_clients") == 2);
    STATUS(1, ": unhealthy\n  clients: 3 of maxclients 3; CLIENT LIST shows them\n");
    program_said(output, ", 1 connection rejected so far\n");
    redisFree(clients[0]);
    redisFree(clients[1]);
}

/* The reason, the time of the last good save, and the warning that without a log writes may end. */
Test(status, saves_that_fail)
{
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    client_add_items(client, "f", 0, 50);
    daemon_block_saves(&the_daemon);
    cr_assert_eq(client_ask(client, "SAVE")[0], '-');
    STATUS(1, ": unhealthy\n  the last save has failed: ");
    cr_expect(strstr(output, "MANIFEST") && strstr(output, "; BGSAVE tries again\n"), "%s", output);
    program_said(output, "\n    no save has succeeded since the start, ");
    cr_expect(!strstr(output, "there is no log"), "%s", output);
    daemon_unblock_saves(&the_daemon);
    expect(client, "+OK", "SAVE");
    STATUS(0, ": healthy\n");
    client =
        client_after_stop(client, &the_daemon, (const char *const[]){"--threads", "1", "--appendonly", "no", NULL});
    client_add_items(client, "f", 50, 60);
    expect(client, "+OK", "SAVE");
    daemon_block_saves(&the_daemon);
    cr_assert_eq(client_ask(client, "SAVE")[0], '-');
    STATUS(1, "\n    the last good save was ");
    program_said(output, "\n    there is no log of changes: ");
    daemon_unblock_saves(&the_daemon);
    expect(client, "+OK", "SAVE");
    STATUS(0, ": healthy\n");
}

Test(status, a_certificate_that_has_expired)
{
    daemon_prepare(&the_daemon);
    tls_make_files(the_daemon.dir);
    the_daemon.with_tls = true;
    char cert[sizeof(the_daemon.dir) + 16], key[sizeof(cert)];
    snprintf(cert, sizeof(cert), "%s/expired.crt", the_daemon.dir);
    snprintf(key, sizeof(key), "%s/expired.key", the_daemon.dir);
    daemon_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    STATUS(0, ": healthy\n"); /* for thirty days */
    daemon_stop(&the_daemon);
    daemon_start(&the_daemon,
                 (const char *const[]){"--threads", "1", "--tls-cert-file", cert, "--tls-key-file", key, NULL});
    STATUS(1, ": unhealthy\n  the certificate has expired; replace its files and send SIGHUP\n");
}

static int status_now(void)
{
    return program_run(output, sizeof(output), "exec 2>&1; '%s' status redis://127.0.0.1:%d", BLOOMERY_TOOL_PATH,
                       the_daemon.port);
}

Test(status, a_disk_that_is_full)
{
    daemon_prepare(&the_daemon);
    disk_attach();
    redisContext *client =
        client_start(&the_daemon, (const char *const[]){"--threads", "1", "--appendfsync", "always", NULL});
    expect(client, ":1", "BF.ADD f x");
    STATUS(0, ": healthy\n");
    atomic_store(&disk->write_error, ENOSPC);
    redisAppendCommand(client, "BF.ADD f y"); /* its reply waits for the disk */
    for (int done = 0; !done;)
        cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
    wait_until(status_now() == 1);
    program_said(output, "it cannot write its log of changes: ");
    disk_mend();
    wait_until(status_now() == 0);
    client_skip(client, 1);
}

Test(status, who_may_not_ask)
{
    daemon_start(&the_daemon, (const char *const[]){"--threads", "1", "--requirepass", "secret", NULL});
    STATUS(2, "NOAUTH");
    program_expect(output, sizeof(output), 2, "WRONGPASS", "exec 2>&1; '%s' status redis://:no@127.0.0.1:%d",
                   BLOOMERY_TOOL_PATH, the_daemon.port);
    program_expect(output, sizeof(output), 0, ": healthy", "REDISCLI_AUTH=secret '%s' status redis://127.0.0.1:%d",
                   BLOOMERY_TOOL_PATH, the_daemon.port);
    cr_expect_null(strstr(output, "secret"), "%s", output);
}

Test(status, while_it_loads)
{
    daemon_prepare(&the_daemon);
    disk_attach();
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    client_add_items(client, "f", 0, 50);
    client_kill(client, &the_daemon);
    atomic_store(&disk->hold_reads, 1); /* of the log */
    daemon_launch(&the_daemon);
    wait_until(status_now() == 1);
    program_said(output, ": unhealthy\n  it is loading its filters, ");
    program_said(output, " % so far, and serves them after the load\n");
    disk_mend();
    wait_until(status_now() == 0);
}

/* A server that answers INFO with this text; "": with nothing. Its port. */
static int stand_in(const char *info, pid_t *pid_out)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(listener, (struct sockaddr *)&address, len), 0);
    cr_assert_eq(listen(listener, 1), 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &len), 0);
    *pid_out = fork();
    cr_assert_geq(*pid_out, 0);
    if (*pid_out == 0) {
        char bytes[1000];
        alarm(60); /* it does not outlive a test that fails */
        int client = accept(listener, NULL, NULL);
        ssize_t n = read(client, bytes, sizeof(bytes));
        if (n > 0 && info[0])
            dprintf(client, "$%zu\r\n%s\r\n", strlen(info), info);
        pause();
        _exit(0);
    }
    close(listener);
    return ntohs(address.sin_port);
}

Test(status, servers_that_are_others)
{
    daemon_prepare(&the_daemon);
    pid_t pid;
    int port = stand_in("# Server\r\nredis_version:7.2.0\r\n", &pid);
    program_expect(output, sizeof(output), 2, "not a Bloomery server", "exec 2>&1; '%s' status redis://127.0.0.1:%d",
                   BLOOMERY_TOOL_PATH, port);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    program_expect(output, sizeof(output), 2, "Connection refused", "exec 2>&1; '%s' status redis://127.0.0.1:%d",
                   BLOOMERY_TOOL_PATH, port);
    port = stand_in("", &pid);
    program_expect(output, sizeof(output), 2, "the server does not answer",
                   "exec 2>&1; '%s' status redis://127.0.0.1:%d", BLOOMERY_TOOL_PATH, port);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    port = stand_in("bloomery_version:1\x1b[31m\r\n", &pid); /* which would colour the terminal */
    program_run(output, sizeof(output), "exec 2>&1; '%s' status redis://127.0.0.1:%d", BLOOMERY_TOOL_PATH, port);
    program_said(output, "bloomery 1\\x1b[31m, up for");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    program_expect(output, sizeof(output), 2, "unknown scheme", "exec 2>&1; '%s' status http://127.0.0.1",
                   BLOOMERY_TOOL_PATH);
}

Test(status, redis_is_another_server)
{
    if (DAEMON_SANITIZED)
        cr_skip_test("redis-server loads no module with a sanitizer");
    the_daemon.engine = true;
    daemon_start(&the_daemon, NULL);
    STATUS(2, "not a Bloomery server: its INFO has no bloomery_version\n");
}
