/* Processors of threads: server-cpulist, bio-cpulist, bgsave-cpulist, by the kernel's account of threads. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE_IDLE(the_daemon, processors);

/* The first two processors that this process may use; there may be one only. */
static int processors_of_test(int cpus_out[2])
{
    cpu_set_t set;
    int n = 0;
    cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET((size_t)cpu, &set))
            cpus_out[n++] = cpu;
    return n;
}

/* A line of a thread's status, without the line's name and the blanks after it. */
static void read_status(const char *task, const char *field, char *value_out, size_t size)
{
    char path[300], line[512];
    snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)the_daemon.pid, task);
    FILE *file = fopen(path, "r");
    value_out[0] = '\0';
    while (file && fgets(line, sizeof(line), file)) {
        size_t len = strlen(field);
        if (strncmp(line, field, len) != 0 || line[len] != ':')
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(value_out, size, "%s", line + len + 1 + strspn(line + len + 1, " \t"));
    }
    if (file)
        fclose(file);
}

static const char *expected_of(const char *name, const char *server, const char *bio, const char *saver)
{
    if (strncmp(name, "worker ", 7) == 0 || strncmp(name, "bloomeryd", 9) == 0 || strcmp(name, "loader") == 0)
        return server;
    return strcmp(name, "saver") == 0 ? saver : bio;
}

/* Each thread with one of the daemon's names runs where it should; true if the threads named in `must` exist. A
 * sanitizer's own thread has the name of the process and is started before the settings are read. */
static bool all_threads_are_on(const char *server, const char *bio, const char *saver)
{
    static const char *const must[] = {"worker 0", "log", "saver", "reclaimer", "notifier", "expirer", "pool"};
    char path[64];
    unsigned found = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)the_daemon.pid);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char name[64], list[256];
        read_status(entry->d_name, "Name", name, sizeof(name));
        read_status(entry->d_name, "Cpus_allowed_list", list, sizeof(list));
        if (entry->d_name[0] == '.' || name[0] == '\0')
            continue; /* the thread has ended */
        if (strncmp(name, "bloomeryd", 9) == 0 && atoi(entry->d_name) != the_daemon.pid)
            continue;
        cr_assert_str_eq(list, expected_of(name, server, bio, saver), "thread %s runs on %s", name, list);
        for (unsigned i = 0; i < sizeof(must) / sizeof(must[0]); i++)
            found |= (unsigned)(strcmp(name, must[i]) == 0) << i;
    }
    closedir(dir);
    return found == (1u << sizeof(must) / sizeof(must[0])) - 1;
}

/* A thread that has just been started has no name yet. */
static void threads_are_on(const char *server, const char *bio, const char *saver)
{
    wait_until(all_threads_are_on(server, bio, saver));
}

/* With the log and a thread of the pool in use, too: each gives its reply. */
static void start_and_use(const char *const *args)
{
    redisContext *client = client_start(&the_daemon, args);
    client_ask(client, "BF.ADD f x"); /* 0 if the filter has it from an earlier start */
    expect(client, "+OK", "SAVE");
    redisFree(client);
}

/* Every thread runs where its list says; a thread does not inherit the processors of the thread that starts it. */
DAEMON_TEST(the_daemon, processors, threads_run_where_their_lists_say)
{
    int cpus[2];
    char first[16], second[16];
    if (processors_of_test(cpus) < 2)
        cr_skip_test("there is one processor only");
    snprintf(first, sizeof(first), "%d", cpus[0]);
    snprintf(second, sizeof(second), "%d", cpus[1]);
    start_and_use((const char *const[]){"--threads", "2", "--appendfsync", "always", "--server-cpulist", first,
                                        "--bio_cpulist", second, NULL});
    threads_are_on(first, second, second);
    daemon_stop(&the_daemon);
    start_and_use((const char *const[]){"--threads", "1", "--appendfsync", "always", "--bgsave-cpulist", first,
                                        "--server_cpulist", second, "--bio-cpulist", second, NULL});
    threads_are_on(second, second, first);
}

/* A list for the server alone leaves the other threads on the processors of the process. */
DAEMON_TEST(the_daemon, processors, threads_without_a_list_are_free)
{
    char all[256], first[16];
    int cpus[2];
    processors_of_test(cpus);
    snprintf(first, sizeof(first), "%d", cpus[0]);
    start_and_use((const char *const[]){"--threads", "1", NULL});
    char main_thread[16];
    snprintf(main_thread, sizeof(main_thread), "%d", (int)the_daemon.pid);
    read_status(main_thread, "Cpus_allowed_list", all, sizeof(all));
    threads_are_on(all, all, all);
    daemon_stop(&the_daemon);
    start_and_use((const char *const[]){"--threads", "1", "--server-cpulist", first, NULL});
    threads_are_on(first, all, all);
}

/* Without a number of threads, one is started for each processor of the list. */
DAEMON_TEST(the_daemon, processors, there_are_as_many_threads_as_processors_in_the_list)
{
    int cpus[2];
    char first[16];
    processors_of_test(cpus);
    snprintf(first, sizeof(first), "%d", cpus[0]);
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--server-cpulist", first, NULL});
    redisReply *reply = redisCommand(client, "INFO server");
    cr_assert(reply && reply->str && strstr(reply->str, "worker_threads:1\r\n"));
    freeReplyObject(reply);
}

/* A list without an existing processor ends the start; if some are missing the daemon names them, and continues. */
DAEMON_TEST(the_daemon, processors, processors_that_are_not_there)
{
    int cpus[2];
    char list[32], expected[200];
    processors_of_test(cpus);
    cr_assert_not(daemon_try(&the_daemon, (const char *const[]){"--bio-cpulist", "1022-1023", NULL}));
    cr_assert_not_null(
        strstr(daemon_output(&the_daemon), "'bio-cpulist' 1022-1023: this process may use none of these processors"),
        "%s", daemon_output(&the_daemon));
    snprintf(list, sizeof(list), "%d,1021-1023", cpus[0]);
    snprintf(expected, sizeof(expected),
             "'server-cpulist' names processors that this process cannot have (1021-1023); it goes on with %d",
             cpus[0]);
    cr_assert(daemon_try(&the_daemon, (const char *const[]){"--server-cpulist", list, NULL}));
    cr_assert_not_null(strstr(daemon_output(&the_daemon), expected), "%s", daemon_output(&the_daemon));
}

/* As written, under both names; fixed once the daemon runs. */
DAEMON_TEST(the_daemon, processors, lists_are_shown_and_fixed)
{
    int cpus[2];
    char list[16], expected[200];
    processors_of_test(cpus);
    snprintf(list, sizeof(list), "%d-%d:1", cpus[0], cpus[0]);
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--server_cpulist", list, NULL});
    snprintf(expected, sizeof(expected), "[\"server-cpulist\",\"%s\"]", list);
    expect(client, expected, "CONFIG GET server-cpulist");
    snprintf(expected, sizeof(expected), "[\"server_cpulist\",\"%s\"]", list);
    expect(client, expected, "CONFIG GET server_cpulist");
    expect(client, "[\"bio-cpulist\",\"\",\"bio_cpulist\",\"\"]", "CONFIG GET bio?cpulist");
    expect(client,
           "-ERR CONFIG SET failed (possibly related to argument 'server-cpulist') - can't set immutable config",
           "CONFIG SET server_cpulist 0");
}
