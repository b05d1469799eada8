/* The memory of filters counts against maxmemory, and filters above it can still be read and deleted. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"
#include "wire.h"

#define CAPACITY 10000 /* of a layer; the next layer takes half a gigabyte */
#define MB       1000000LL
#define NAME     60000

DAEMON_SUITE(the_daemon, memory, "--threads", "2", "--appendonly", "no");

static long long resident(void)
{
    char path[64];
    long long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", the_daemon.pid);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%*s %lld", &pages), 1);
    fclose(file);
    return pages * 4096;
}

static const char *name_of(int i)
{
    static char name[NAME + 1];
    snprintf(name, sizeof(name), "%06d", i);
    memset(name + 6, 'n', NAME - 6);
    name[NAME] = '\0';
    return name;
}

/* Memory is freed, and the limit checked, a moment later. */
static void ask_until(redisContext *client, const char *expected, const char *command)
{
    wait_until(strcmp(client_ask(client, command), expected) == 0);
}

/* 8,000 filters of 250 bytes with names of 60 kB took 463 MB under a limit of 50 MB when only bits were counted. */
CLIENT_TEST(the_daemon, memory, long_names_count_against_maxmemory)
{
    const char *const oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    int made = 0;
    expect(client, "+OK", "CONFIG SET maxmemory %lld", 50 * MB);
    for (int i = 0; i < 8000; i++)
        made += strcmp(client_ask(client, "BF.RESERVE %s 0.01 100", name_of(i)), "+OK") == 0;
    cr_expect(made > 700 && made < 850, "%d", made);
    cr_expect_leq(client_info(client, "memory", "used_memory"), 50 * MB + 2 * NAME);
    if (!DAEMON_SANITIZED)
        cr_expect_lt(resident(), 100 * MB, "%lld bytes are resident", resident());

    expect(client, "+OK", "CONFIG SET maxmemory %lld", 48 * MB);
    expect(client, oom, "BF.ADD %s x", name_of(0));
    expect(client, oom, "EXPIRE %s 100", name_of(0));
    expect(client, oom, "RENAME %s %s+", name_of(0), name_of(0));
    expect(client, ":0", "BF.EXISTS %s x", name_of(0));
    expect(client, "+OK", "RENAME %s short", name_of(0));
    for (int i = 1; i < 100; i++)
        expect(client, ":1", "DEL %s", name_of(i));
    wait_until(client_info(client, "memory", "used_memory") <= 46 * MB); /* it is given back a moment later */
    expect(client, ":1", "BF.ADD short x");
    expect(client, ":1", "EXPIRE %s 100", name_of(200));
    expect(client, "+OK", "RENAME %s %s+", name_of(201), name_of(201));
}

/* Filters of 1 MB share mappings. The heap kept their memory, and an empty filter in it took a whole megabyte. */
CLIENT_TEST(the_daemon, memory, filters_of_medium_size_give_their_memory_back)
{
    enum { N = 60, ITEMS = 2000 };
    expect(client, "+OK", "BF.RESERVE f 0.01 838000 NONSCALING");
    for (int i = 0; i < ITEMS; i++)
        expect(client, ":1", "BF.ADD f %d", i);
    long long before = resident(), used = client_info(client, "memory", "used_memory");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++)
            expect(client, ":1", "COPY f f%d", i);
        for (int i = 0; i < N; i++)
            expect(client, ":1", "BF.EXISTS f%d %d", i, ITEMS - 1);
        cr_expect_geq(client_info(client, "memory", "used_memory"), used + N * MB);
        if (!DAEMON_SANITIZED)
            cr_expect_geq(resident(), before + N * MB * 9 / 10);
        for (int i = 0; i < N; i++)
            expect(client, ":1", "DEL f%d", i);
        wait_until(client_info(client, "memory", "used_memory") <= used + MB / 2);
        for (int i = 0; i < N; i++) {
            expect(client, "+OK", "BF.RESERVE sparse%d:%d 0.01 838000", round, i);
            expect(client, ":1", "BF.ADD sparse%d:%d x", round, i);
        }
        used = client_info(client, "memory", "used_memory");
        if (!DAEMON_SANITIZED)
            cr_expect_lt(resident(), before + 20 * MB, "%lld bytes are resident, %lld before", resident(), before);
    }
}

/* Unread replies of 3 MB left their memory in gaps of the heap, more with each crowd: 1.2 GB after four crowds. */
CLIENT_TEST(the_daemon, memory, what_a_crowd_took_goes_back_to_the_system)
{
    enum { NAMES = 50, CLIENTS = 60, ROUNDS = 4 };
    struct wire crowd[CLIENTS];
    for (int i = 0; i < NAMES; i++)
        expect(client, "+OK", "BF.RESERVE %s 0.01 1", name_of(i));
    long long before = resident();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            wire_open(&crowd[i], the_daemon.port);
            for (int command = 0; command < 10; command++)
                cr_assert(wire_send_text(&crowd[i], "KEYS *\r\n"));
        }
        wait_until(client_info(client, "memory", "mem_clients_normal") > CLIENTS * MB);
        for (int i = 0; i < CLIENTS; i++)
            wire_close(&crowd[i]);
        wait_until(client_info(client, "clients", "connected_clients") == 1);
    }
    if (!DAEMON_SANITIZED)
        wait_until(resident() < before + 60 * MB);
}

/* The memory of a connection counts: a queue, watched names, half a command, channels. It has a limit of its own
 * (test_client_limit.c), and does not make the daemon refuse adds. */
DAEMON_TEST(the_daemon, memory, connections_count_but_not_against_maxmemory)
{
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    long long before = client_info(client, "memory", "used_memory");

    expect(other, "+OK", "MULTI");
    for (int i = 0; i < 100; i++)
        expect(other, "+QUEUED", "BF.EXISTS %s x", name_of(i));
    cr_expect_geq(client_info(client, "memory", "mem_clients_normal"), 100 * NAME);
    cr_expect_geq(client_info(client, "memory", "used_memory"), before + 100 * NAME);
    expect(client, "+OK", "CONFIG SET maxmemory %lld", before + 50 * NAME);
    for (int i = 0; i < 20; i++, usleep(10000)) /* a worker checks the sum in each iteration */
        expect(client, ":1", "BF.ADD f %d", i);
    cr_expect_geq(client_info(client, "memory", "mem_not_counted_for_evict"), 100 * NAME);
    expect(other, "+OK", "DISCARD");
    expect(client, "+OK", "CONFIG SET maxmemory 0");

    for (int i = 0; i < 50; i++)
        expect(other, "+OK", "WATCH %s", name_of(i));
    cr_expect_geq(client_info(client, "memory", "mem_clients_normal"), 50 * NAME);
    expect(other, "+OK", "UNWATCH");
    cr_expect_lt(client_info(client, "memory", "mem_clients_normal"), 10 * NAME);

    for (int i = 0; i < 50; i++)
        client_ask(other, "SUBSCRIBE %s", name_of(i));
    cr_expect_geq(client_info(client, "memory", "mem_overhead_pubsub"), 50 * NAME);
    redisFree(other);
    wait_until(client_info(client, "memory", "used_memory") <= before + 10 * NAME);
}

/* The header of a load is cheap to send: 64 headers took 64 times the filter's memory at once; giving it back took a
 * minute, and SIGTERM waited for that. */
CLIENT_TEST(the_daemon, memory, announced_loads_are_bounded_by_the_machine)
{
    long long machine = sysconf(_SC_PHYS_PAGES) * (long long)sysconf(_SC_PAGESIZE), announced = 0;
    expect(client, "+OK", "BF.RESERVE big 0.000001 4000000000 NONSCALING");
    long long one = client_number(client, "MEMORY USAGE big");
    redisReply *dump = redisCommand(client, "BF.SCANDUMP big 0");
    cr_assert(dump && dump->type == REDIS_REPLY_ARRAY && dump->elements == 2);
    for (int i = 0; i < 64; i++) {
        redisReply *reply = redisCommand(client, "BF.LOADCHUNK load%d %lld %b", i, dump->element[0]->integer,
                                         dump->element[1]->str, dump->element[1]->len);
        cr_assert_not_null(reply);
        announced += reply->type == REDIS_REPLY_STATUS ? one : 0;
        if (reply->type == REDIS_REPLY_ERROR)
            cr_expect_eq(strncmp(reply->str, "OOM ", 4), 0, "%s", reply->str);
        freeReplyObject(reply);
    }
    freeReplyObject(dump);
    cr_expect_leq(announced, machine + one / 100);
    expect(client, ":1", "DEL big");
    expect(client, ":1", "BF.ADD small x");
    redisFree(client);
    time_t start = time(NULL);
    daemon_stop(&the_daemon);
    printf("the end took %lld s\n", (long long)(time(NULL) - start));
    cr_expect_leq(time(NULL) - start, 30);
}

static long long mapped_pages(void)
{
    char path[64];
    long long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", the_daemon.pid);
    FILE *file = fopen(path, "r");
    cr_assert(file && fscanf(file, "%lld", &pages) == 1);
    fclose(file);
    return pages;
}

/* The pages of address space once no thread maps more: a thread's first malloc() reserves 64 MB. */
static long long settled_pages(void)
{
    long long pages = mapped_pages();
    for (int quiet = 0; quiet < 20; quiet++) {
        usleep(20000);
        long long now = mapped_pages();
        if (now != pages)
            quiet = 0;
        pages = now;
    }
    return pages;
}

/* When the process gets no more memory, clients can still delete filters, and so free memory. */
DAEMON_TEST(the_daemon, memory, clients_delete_when_memory_is_exhausted)
{
    if (DAEMON_SANITIZED)
        return; /* their own mappings are terabytes */
    redisContext *client = client_open(the_daemon.port), *more[10];
    for (int i = 0; i < 10; i++) {
        more[i] = client_open(the_daemon.port);
        expect(more[i], "+PONG", "PING");
    }
    long long pages = settled_pages();
    rlim_t limit = (rlim_t)pages * 4096 + 64 * 1024 * 1024;
    cr_assert_eq(prlimit(the_daemon.pid, RLIMIT_AS, &(struct rlimit){limit, RLIM_INFINITY}, NULL), 0);
    int large = 0;
    while (client_ask(client, "BF.RESERVE %s 0.01 100000", name_of(large))[0] == '+')
        large++;
    cr_assert_geq(large, 50);
    for (int len = NAME - 20; len > 10; len /= 4) /* until not even small filters fit */
        for (int i = 0; client_ask(client, "BF.RESERVE small:%d:%s 0.01 10", i, name_of(0) + NAME - len)[0] == '+'; i++)
            cr_assert_lt(i, 1000000);
    for (int i = 0; i < large; i++)
        expect(more[i % 10], ":1", "DEL %s", name_of(i));
    static char again[NAME + 64];
    snprintf(again, sizeof(again), "BF.RESERVE %s 0.01 10", name_of(0));
    ask_until(more[0], "+OK", again);
    for (int i = 0; i < 10; i++)
        redisFree(more[i]);
}

/* Filters that BF.CLEAR replaces are freed a moment later. BF.CLEAR waits for that, so that they do not pile up and
 * the daemon does not refuse other commands meanwhile. */
DAEMON_TEST(the_daemon, memory, cleared_filters_do_not_pile_up)
{
    redisContext *c = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    const long long huge = 1LL << 30;
    expect(c, "+OK", "CONFIG SET maxmemory 1800mb");
    expect(c, "+OK", "BF.RESERVE huge 1e-7 250000000"); /* a little more than 1 GB of address space */
    expect(c, ":1", "BF.ADD other x");
    for (int limited = 1; limited >= 0; limited--) {
        if (!limited)
            expect(c, "+OK", "CONFIG SET maxmemory 0");
        long long most = 0;
        for (int i = 0; i < 1000; i++)
            redisAppendCommand(c, "BF.CLEAR huge");
        int done = 0;
        cr_assert_eq(redisBufferWrite(c, &done), REDIS_OK);
        for (int i = 0; i < 1000; i++) {
            cr_assert_str_eq(client_reply(c), "+OK");
            if (i % 20)
                continue;
            cr_assert_leq(client_number(other, "BF.ADD other y%d", i), 1);
            long long used = client_info(other, "memory", "used_memory");
            most = used > most ? used : most;
        }
        cr_expect_leq(most, 4 * huge, "%s limit: %lld bytes", limited ? "with a" : "without", most);
    }
}

/* ---- a small dump that needs much memory ---- */

static void put_number(char *at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (char)(number >> 8 * i);
}

/* Loads RedisBloom's dump of a full filter whose next layer has 32768 times its capacity. */
static void load_full(redisContext *client, const char *name)
{
    char header[80], bits[16] = {0};
    expect(client, "+OK", "BF.RESERVE model 0.01 10 LAYOUT redisbloom EXPANSION 32768");
    redisReply *reply = redisCommand(client, "BF.SCANDUMP model 0");
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
    size_t len = reply->element[1]->len;
    cr_assert(len >= 72 && len <= sizeof(header));
    memcpy(header, reply->element[1]->str, len);
    freeReplyObject(reply);
    put_number(header, CAPACITY, 8);      /* items */
    put_number(header + 36, CAPACITY, 8); /* of the layer */
    put_number(header + 64, CAPACITY, 8); /* its capacity */
    reply = redisCommand(client, "BF.LOADCHUNK %s 1 %b", name, header, len);
    cr_assert(reply && reply->type == REDIS_REPLY_STATUS, "%s", reply ? reply->str : "");
    freeReplyObject(reply);
    reply = redisCommand(client, "BF.LOADCHUNK %s 17 %b", name, bits, sizeof(bits));
    cr_assert(reply && reply->type == REDIS_REPLY_STATUS, "%s", reply ? reply->str : "");
    freeReplyObject(reply);
    expect(client, ":1", "DEL model");
}

/* A removed filter counts until its memory is freed, some milliseconds later. */
DAEMON_TEST(the_daemon, memory, a_reserved_filter_waits_for_the_memory_of_a_deleted_one)
{
    static const char *const reserve[] = {"BF.RESERVE a 0.001 40000000", "CF.RESERVE a 50000000",
                                          "BF.INSERT a CAPACITY 40000000 ERROR 0.001 ITEMS x"};
    redisContext *client = client_open(the_daemon.port);
    expect(client, "+OK", "CONFIG SET maxmemory 100mb");
    for (int i = 0; i < 60; i++) {
        expect(client, i % 3 == 2 ? "[:1]" : "+OK", reserve[i % 3]);
        if (i % 4 < 2)
            expect(client, ":1", "DEL a");
        else
            expect(client, "+OK", i % 4 == 2 ? "FLUSHALL ASYNC" : "FLUSHALL");
    }
    expect(client, "+OK", reserve[0]);
    const char *reply = client_ask(client, "BF.RESERVE b 0.001 40000000");
    cr_expect(strstr(reply, "maxmemory") || strstr(reply, "the limit for all filters is"), "%s", reply);
    expect(client, "+OK", "CONFIG SET maxmemory 0");
    expect(client, ":1", "DEL a");
    redisFree(client);
}

/* The limits are checked before the layer is allocated, also where others may leave memory. */
DAEMON_TEST(the_daemon, memory, a_small_dump_cannot_make_a_filter_grow_beyond_the_limits)
{
    redisContext *client = client_open(the_daemon.port);
    load_full(client, "f");
    long long before = client_info(client, "memory", "used_memory");
    expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 100mb");
    const char *answer = client_ask(client, "BF.ADD f x");
    cr_assert(answer[0] == '-' && strstr(answer, "the limit for one filter is 104857600"), "%s", answer);
    expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 0");
    static const char *const policies[] = {"noeviction", "reload", "maybe"};
    for (int i = 0; i < 3; i++) {
        expect(client, "+OK", "CONFIG SET maxmemory-policy %s", policies[i]);
        expect(client, "+OK", "CONFIG SET maxmemory 100mb");
        answer = client_ask(client, "BF.ADD f x");
        cr_assert(answer[0] == '-' && strstr(answer, "the limit for all filters is 104857600"), "%s: %s", policies[i],
                  answer);
        expect(client, "+OK", "CONFIG SET maxmemory 0");
    }
    cr_expect_lt(client_info(client, "memory", "used_memory"), before + MB);
    expect(client, ":0", "BF.EXISTS f x");
    redisFree(client);
}
