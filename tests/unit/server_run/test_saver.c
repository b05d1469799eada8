/* Saves of a server that has clients: the promise to each caller, at any moment of its request, and the data on the
 * disk then. The next begin checks it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "persistence.h"
#include "rig.h"
#include "saver.h"
#include "tmpdir.h"

TMPDIR_SUITE(dir, saver);
static struct server *server;
static struct saver *saver;

/* Without a log: only saved data is loaded again. */
static int begin(const char *rate_limit)
{
    server = rig_begin(2, dir, (const char *const[]){"appendonly", "no", "save-rate-limit", rate_limit, NULL});
    saver = server->persistence->saver;
    return rig_connect(0);
}

static struct saver_info info(void)
{
    struct saver_info now;
    rcu_reader_begin();
    saver_info(saver, &now);
    rcu_reader_end();
    return now;
}

/* A filter whose save takes seconds at 64 kB a second, and many minutes at 1 kB. */
static void reserve_large(int fd)
{
    rig_call(fd, "BF.RESERVE large 0.001 2000000", "+OK\r\n");
    rig_call(fd, "BF.ADD large a", ":1\r\n");
}

/* ---- requests ---- */

RIG_TEST(saver, a_save_has_what_came_before_it_and_the_next_begin_finds_it)
{
    struct errbuf err = {""};
    int fd = begin("0");
    rig_call(fd, "BF.ADD f a", ":1\r\n");
    rig_call(fd, "BF.ADD g b", ":1\r\n");
    cr_assert_eq(info().changes, 4, "%llu", (unsigned long long)info().changes);
    cr_assert_eq(saver_run(saver, &err), 0, "%s", err.text);
    cr_assert_eq(info().changes, 0);
    cr_assert_eq(info().saves, 1);
    rig_call(fd, "BF.ADD f c", ":1\r\n");
    rig_call(fd, "DEL g", ":1\r\n");
    cr_assert_eq(saver_run(saver, &err), 0, "%s", err.text);
    rig_call(fd, "BF.ADD f unsaved", ":1\r\n");
    rig_end();
    fd = begin("0");
    rig_call(fd, "BF.MEXISTS f a c unsaved", "*3\r\n:1\r\n:1\r\n:0\r\n");
    rig_call(fd, "EXISTS g", ":0\r\n");
}

RIG_TEST(saver, a_second_request_is_refused_or_scheduled_and_one_save_serves_all_who_scheduled)
{
    struct errbuf err = {""};
    int fd = begin("64kb");
    reserve_large(fd);
    cr_assert_eq(saver_start(saver, false), SAVER_STARTED);
    cr_assert_eq(saver_start(saver, false), SAVER_BUSY);
    cr_assert_eq(saver_run(saver, &err), SAVER_BUSY);
    cr_assert(info().running && !info().scheduled);
    wait_until(info().running_ms >= 0); /* the save has begun */
    rig_call(fd, "BF.ADD f later", ":1\r\n");
    for (int i = 0; i < 3; i++)
        cr_assert_eq(saver_start(saver, true), SAVER_SCHEDULED);
    cr_assert(info().scheduled);
    rig_call(fd, "CONFIG SET save-rate-limit 0", "+OK\r\n");
    wait_until(!info().running);
    cr_assert_eq(info().saves, 2);
    cr_assert_not(info().scheduled);
    cr_assert_eq(info().changes, 0);
    rig_end();
    fd = begin("0");
    rig_call(fd, "BF.EXISTS f later", ":1\r\n");
}

/* ---- callers that wait for their own save ---- */

struct waiter {
    pthread_t thread;
    int fd, number, status;
    _Atomic int id; /* the kernel's id; 0: not started */
};

static void *add_and_save(void *arg)
{
    struct waiter *waiter = arg;
    struct errbuf err = {""};
    for (int i = 0; i < 10 && waiter->status == 0; i++) {
        char line[64];
        snprintf(line, sizeof(line), "BF.ADD f%d %d-%d", waiter->number % 2, waiter->number, i);
        rig_call(waiter->fd, line, ":1\r\n");
        waiter->status = saver_run_next(saver, &err);
    }
    return NULL;
}

/* Each call returns when a save that began after it has ended: so everything is saved when all have returned. */
RIG_TEST(saver, whoever_waits_for_the_next_save_finds_his_changes_in_it)
{
    struct waiter waiters[4];
    begin("0");
    for (int i = 0; i < 4; i++)
        waiters[i] = (struct waiter){.fd = rig_connect((unsigned)i % 2), .number = i};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&waiters[i].thread, NULL, add_and_save, &waiters[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(waiters[i].thread, NULL);
        cr_assert_eq(waiters[i].status, 0);
    }
    rig_end();
    int fd = begin("0");
    for (int i = 0; i < 40; i++) {
        char line[64];
        snprintf(line, sizeof(line), "BF.EXISTS f%d %d-%d", i % 2, i % 4, i / 4);
        rig_call(fd, line, ":1\r\n");
    }
}

/* Whether the thread sleeps: it does not between its start and the wait for the saver. */
static bool sleeps(const struct waiter *waiter)
{
    char path[64], state = 0;
    int id = atomic_load(&waiter->id);
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
    FILE *file = id ? fopen(path, "r") : NULL;
    bool known = file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    if (file)
        fclose(file);
    return known && state == 'S';
}

static void *save_next(void *arg)
{
    struct waiter *waiter = arg;
    struct errbuf err = {""};
    atomic_store(&waiter->id, gettid());
    waiter->status = saver_run_next(saver, &err);
    return NULL;
}

/* The running save may lack the newest adds. */
RIG_TEST(saver, the_next_save_is_not_the_one_that_runs)
{
    struct waiter waiter = {.status = 0};
    int fd = begin("1kb");
    reserve_large(fd);
    cr_assert_eq(saver_start(saver, false), SAVER_STARTED);
    wait_until(info().running_ms >= 0);
    rig_call(fd, "BF.ADD f later", ":1\r\n");
    cr_assert_eq(pthread_create(&waiter.thread, NULL, save_next, &waiter), 0);
    wait_until(sleeps(&waiter));
    rig_call(fd, "CONFIG SET save-rate-limit 0", "+OK\r\n");
    pthread_join(waiter.thread, NULL);
    cr_assert_eq(waiter.status, 0);
    cr_assert_eq(info().saves, 2);
    cr_assert_eq(info().changes, 0);
}

/* The final save ignores the rate limit; with a time limit it leaves the save running. */
RIG_TEST(saver, the_final_save_ignores_the_rate_and_may_be_left_behind)
{
    struct errbuf err = {""};
    int fd = begin("1kb"); /* at this rate it would take an hour */
    reserve_large(fd);
    cr_assert_eq(saver_start(saver, false), SAVER_STARTED);
    wait_until(info().running_ms >= 0);
    rig_call(fd, "BF.ADD f last", ":1\r\n");
    int status = saver_run_final(saver, 1, &err);
    cr_assert(status == SAVER_BUSY || status == 0, "%d: %s", status, err.text);
    cr_assert_eq(saver_run_final(saver, 0, &err), 0, "%s", err.text);
    rig_end();
    fd = begin("0");
    rig_call(fd, "BF.EXISTS f last", ":1\r\n");
    rig_call(fd, "BF.EXISTS large a", ":1\r\n");
}

/* ---- adds during saves ---- */

static _Atomic bool stop;

static void *add_all_the_time(void *arg)
{
    struct waiter *waiter = arg;
    for (; !atomic_load(&stop); waiter->number++) {
        char line[64];
        snprintf(line, sizeof(line), "BF.ADD large x%d", waiter->number);
        rig_send(waiter->fd, line);
        free(rig_read(waiter->fd, 4));
    }
    return NULL;
}

/* A save copies words that adds change; it has every add acknowledged before it began, and its counts fit. */
RIG_TEST(saver, saves_under_adds_have_every_item_from_before)
{
    struct waiter adder = {.number = 0};
    struct errbuf err = {""};
    int fd = begin("0"), before[10];
    reserve_large(fd);
    adder.fd = rig_connect(1);
    cr_assert_eq(pthread_create(&adder.thread, NULL, add_all_the_time, &adder), 0);
    for (int i = 0; i < 10; i++) {
        char line[64];
        before[i] = i;
        snprintf(line, sizeof(line), "BF.ADD large mine%d", i);
        rig_call(fd, line, ":1\r\n");
        cr_assert_eq(saver_run_next(saver, &err), 0, "%s", err.text);
    }
    atomic_store(&stop, true);
    pthread_join(adder.thread, NULL);
    rig_end();
    fd = begin("0");
    for (int i = 0; i < 10; i++) {
        char line[64];
        snprintf(line, sizeof(line), "BF.EXISTS large mine%d", before[i]);
        rig_call(fd, line, ":1\r\n");
    }
}

/* ---- failures ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

RIG_TEST(saver, a_save_that_fails_says_why_and_changes_nothing_on_the_disk)
{
    struct errbuf err = {""};
    int fd = begin("0");
    rig_call(fd, "BF.ADD f a", ":1\r\n");
    cr_assert_eq(saver_run(saver, &err), 0, "%s", err.text);
    reserve_large(fd);
    limit_files(4096);
    for (unsigned i = 1; i <= 2; i++) {
        cr_assert_eq(saver_run(saver, &err), -EIO);
        cr_assert(err.text[0] != '\0');
        cr_assert(saver_has_failed(saver));
        cr_assert_eq(info().failures, i);
        cr_assert(!info().last_ok && strstr(err.text, info().last_error), "'%s' and '%s'", err.text, info().last_error);
    }
    rig_pass(0); /* a new iteration sees it */
    rig_send(fd, "BF.ADD f b");
    rig_expect(fd, "-MISCONF ");
    int other = rig_connect(1);
    rig_call(other, "BF.EXISTS f a", ":1\r\n");
    limit_files(RLIM_INFINITY);
    cr_assert_eq(saver_run(saver, &err), 0, "%s", err.text);
    cr_assert_not(saver_has_failed(saver));
    cr_assert(info().last_ok && info().failures == 0 && info().last_error[0] == '\0');
    rig_pass(1);
    rig_call(other, "BF.ADD f b", ":1\r\n");
    rig_end();
    fd = begin("0"); /* the last save counts */
    rig_call(fd, "BF.EXISTS f a", ":1\r\n");
    rig_call(fd, "BF.EXISTS large a", ":1\r\n");
    rig_call(fd, "BF.EXISTS f b", ":0\r\n");
}
