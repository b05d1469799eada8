/* Bits that are not in memory: waits for them, pins, filters that may not be evicted, and damaged files. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_resident.h"
#include "entry.h"
#include "residency.h"
#include "rig.h"
#include "rng.h"
#include "saver.h"
#include "tmpdir.h"

static char dir[TMPDIR_SIZE];
static struct server *server;
static sem_t ended; /* posted by each wait that ends */
static _Atomic int ends;

static void make_dir(void)
{
    tmpdir_create(dir);
    rcu_reader_begin();
    rcu_reader_offline();
}

static void remove_dir(void)
{
    rcu_reader_end();
    tmpdir_remove(dir);
}

TestSuite(residency, .init = make_dir, .fini = remove_dir, .timeout = 3000);

#define FILTERS 12

static int begin(const char *const *settings)
{
    server = rig_begin(2, dir, settings);
    return rig_connect(0);
}

/* FILTERS filters of some 240 kB in their own files, saved, with an item "own<i>" each; all are evicted afterwards. */
static int begin_with_all_away(void)
{
    static const char *const lazy[] = {"lazy-load", "yes", "save-pack-limit", "0", NULL};
    struct errbuf err = {""};
    sem_init(&ended, 0, 0);
    int fd = begin(lazy);
    for (int i = 0; i < FILTERS; i++) {
        char line[64];
        snprintf(line, sizeof(line), "BF.RESERVE f%d 0.0001 100000", i);
        rig_call(fd, line, "+OK\r\n");
        snprintf(line, sizeof(line), "BF.ADD f%d own%d", i, i);
        rig_call(fd, line, ":1\r\n");
    }
    cr_assert_eq(saver_run_next(server->persistence->saver, &err), 0, "%s", err.text);
    rig_end();
    return begin(lazy);
}

static struct residency_info info(void)
{
    struct residency_info now;
    residency_info(server, &now);
    return now;
}

/* ---- waits ---- */

static void on_end(void *ctx)
{
    cr_assert_eq(ctx, &ended);
    atomic_fetch_add(&ends, 1);
    sem_post(&ended);
}

static struct residency_wait *wait_for(size_t most, const char *const *names)
{
    struct residency_wait *wait = residency_wait_create(server, most, on_end, &ended);
    cr_assert_not_null(wait);
    rcu_reader_online();
    for (; *names; names++)
        residency_wait_add(wait, slice_of(*names));
    rcu_reader_offline();
    return wait;
}

/* Waits for its end, if it has one: its filters are read from residency_wait_add() on, and may be present already. */
static int wait_out(struct residency_wait *wait)
{
    if (!residency_wait_begin(wait))
        return 0;
    sem_wait(&ended);
    return 1;
}

static bool is_evicted(const char *name)
{
    rcu_reader_online();
    struct entry *entry = registry_lookup(server->registry, slice_of(name));
    bool away = entry && entry_is_evicted(entry);
    rcu_reader_offline();
    return away;
}

RIG_TEST(residency, a_wait_ends_once_when_all_its_filters_are_there)
{
    const char *why;
    begin_with_all_away();
    cr_assert_eq(info().evicted, FILTERS);
    rcu_reader_online();
    cr_assert(residency_some_evicted(server));
    rcu_reader_offline();
    struct residency_wait *wait = wait_for(4, (const char *const[]){"f0", "nosuch", "f1", "f0", NULL});
    struct residency_wait *same = wait_for(2, (const char *const[]){"f1", "f2", NULL});
    int begun = residency_wait_begin(wait);
    begun += residency_wait_begin(same);
    for (int i = 0; i < begun; i++)
        sem_wait(&ended);
    cr_assert(residency_wait_succeeded(wait, &why) && residency_wait_succeeded(same, &why));
    cr_assert(!is_evicted("f0") && !is_evicted("f1") && !is_evicted("f2") && is_evicted("f3"));
    cr_assert_eq(info().reloads, 3, "one filter was read twice");
    cr_assert_eq(info().evicted, FILTERS - 3);
    cr_assert_eq(atomic_load(&ends), begun);
    struct residency_wait *there = wait_for(2, (const char *const[]){"f0", "nosuch", NULL});
    cr_assert_not(residency_wait_begin(there), "all of it is in memory");
    residency_wait_free(there);
    residency_wait_free(wait);
    residency_wait_free(same);
    residency_wait_free(NULL);
    cr_assert_eq(atomic_load(&ends), begun);
}

/* With more names than it has room for, a wait includes the first ones. */
RIG_TEST(residency, a_wait_takes_no_more_names_than_it_has_room_for)
{
    begin_with_all_away();
    struct residency_wait *wait = wait_for(2, (const char *const[]){"f0", "f1", "f2", "f3", NULL});
    wait_out(wait);
    cr_assert(!is_evicted("f0") && !is_evicted("f1") && is_evicted("f2") && is_evicted("f3"));
    residency_wait_free(wait);
}

/* Commands of many connections for the filters at once: each has its answer, and each filter is read once. */
RIG_TEST(residency, connections_wait_and_the_loops_go_on)
{
    enum { CONNECTIONS = 24 };
    int fds[CONNECTIONS];
    char line[64];
    begin_with_all_away();
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = rig_connect((unsigned)i % 2);
    rig_hold();
    for (int i = 0; i < CONNECTIONS; i++) {
        snprintf(line, sizeof(line), "BF.EXISTS f%d own%d", i % FILTERS, i % FILTERS);
        rig_send(fds[i], line);
        snprintf(line, sizeof(line), "BF.ADD f%d new%d", i % FILTERS, i);
        rig_send(fds[i], line);
        snprintf(line, sizeof(line), "BF.MEXISTS f%d own%d new%d nosuch", i % FILTERS, i % FILTERS, i);
        rig_send(fds[i], line);
        rig_send(fds[i], "PING");
    }
    rig_let_go();
    for (int i = 0; i < CONNECTIONS; i++)
        rig_expect(fds[i], ":1\r\n:1\r\n*3\r\n:1\r\n:1\r\n:0\r\n+PONG\r\n");
    cr_assert_eq(info().reloads, FILTERS);
}

/* ---- changes during waits ---- */

RIG_TEST(residency, a_filter_that_is_deleted_or_renamed_while_it_is_awaited)
{
    const char *why;
    int fd = begin_with_all_away();
    for (int i = 0; i < 4; i++) {
        char name[16], line[64];
        snprintf(name, sizeof(name), "f%d", i);
        struct residency_wait *wait = wait_for(1, (const char *const[]){name, NULL});
        snprintf(line, sizeof(line), i % 2 ? "DEL f%d" : "RENAME f%d moved%d", i, i);
        rig_call(fd, line, i % 2 ? ":1\r\n" : "+OK\r\n");
        wait_out(wait);
        cr_assert(residency_wait_succeeded(wait, &why), "%s", why);
        residency_wait_free(wait);
        snprintf(line, sizeof(line), "BF.EXISTS %s%d own%d", i % 2 ? "f" : "moved", i, i);
        rig_call(fd, line, i % 2 ? ":0\r\n" : ":1\r\n");
    }
}

RIG_TEST(residency, when_it_stops_waits_end_with_a_reason)
{
    const char *why = "";
    begin_with_all_away();
    residency_stop(server->persistence->residency);
    struct residency_wait *wait = wait_for(1, (const char *const[]){"f0", NULL});
    wait_out(wait);
    cr_assert_not(residency_wait_succeeded(wait, &why));
    cr_assert(why[0] != '\0');
    residency_wait_free(wait);
    cr_assert(is_evicted("f0"));
    residency_stop(server->persistence->residency);
}

/* ---- memory ---- */

/* Pinned filters stay, filters changed since the last save stay or are saved first; all others may be evicted. Answers
 * are right at any moment. */
RIG_TEST(residency, under_pressure_answers_stay_right_and_pins_hold)
{
    enum { ITEMS = 40 };
    static bool added[FILTERS][ITEMS];
    struct rng rng;
    char line[64];
    const char *why;
    int fd = begin_with_all_away();
    rng_init(&rng, 7);
    struct residency_wait *pinned = wait_for(1, (const char *const[]){"f0", NULL});
    if (residency_wait_begin(pinned))
        sem_wait(&ended);
    cr_assert(residency_wait_succeeded(pinned, &why));
    uint64_t all = info().evicted_bytes;
    snprintf(line, sizeof(line), "CONFIG SET maxmemory %llu maxmemory-policy maybe",
             (unsigned long long)(memory_limited(server) + all / 3));
    rig_call(fd, line, "+OK\r\n");
    rig_call(fd, "CONFIG SET maxmemory-policy reload", "+OK\r\n");
    for (int i = 0; i < 400; i++) {
        int filter = (int)(rng_next(&rng) % FILTERS), item = (int)(rng_next(&rng) % ITEMS);
        bool adds = rng_next(&rng) % 4 == 0;
        snprintf(line, sizeof(line), "%s f%d item%d", adds ? "BF.ADD" : "BF.EXISTS", filter, item);
        rig_call(fd, line, added[filter][item] != adds ? ":1\r\n" : ":0\r\n");
        added[filter][item] |= adds;
        snprintf(line, sizeof(line), "BF.EXISTS f%d own%d", filter, filter);
        if (i % 3 == 0)
            rig_call(fd, line, ":1\r\n");
        cr_assert_not(is_evicted("f0"), "a pinned filter has left");
    }
    cr_assert_gt(info().evictions, 0);
    residency_wait_free(pinned);
    rig_end();
    fd = begin((const char *const[]){NULL});
    for (int filter = 0; filter < FILTERS; filter++) {
        for (int item = 0; item < ITEMS; item++) {
            snprintf(line, sizeof(line), "BF.EXISTS f%d item%d", filter, item);
            rig_call(fd, line, added[filter][item] ? ":1\r\n" : ":0\r\n");
        }
    }
}
