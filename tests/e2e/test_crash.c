/* The end of the daemon by a signal that means a defect: its log has a line and a stack, the signal its default effect,
 * and the next start all acknowledged changes. Where a sanitizer handles the signal, the report is the sanitizer's. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"

DAEMON_SUITE(the_daemon, crash, "--appendfsync", "always");

static void expect_in_log(const char *text)
{
    const char *log = daemon_output(&the_daemon);
    cr_assert_not_null(strstr(log, text), "'%s' is not in:\n%s", text, log);
}

static void crash_by(int number, const char *name)
{
    char text[80];
    int status;
    redisContext *client = client_open(the_daemon.port);
    expect(client, ":1", "BF.ADD crashing %s", name);
    redisFree(client);
    cr_assert_eq(kill(the_daemon.pid, number), 0);
    wait_until(waitpid(the_daemon.pid, &status, WNOHANG) == the_daemon.pid);
    the_daemon.pid = 0;
    if (!strstr(daemon_output(&the_daemon), "Sanitizer")) {
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == number, "status 0x%x", status);
        snprintf(text, sizeof(text), "\ncrashed by %s, sent by process %ld, thread ", name, (long)getpid());
        expect_in_log(text);
        expect_in_log(", bloomeryd " BLOOMERY_VERSION "\n");
        expect_in_log("/bloomeryd(");
    } else {
        cr_assert(DAEMON_SANITIZED);
    }
    client = client_restart(&the_daemon);
    expect(client, ":1", "BF.EXISTS crashing %s", name);
    redisFree(client);
}

Test(crash, each_signal_is_reported_and_keeps_its_effect)
{
    static const struct {
        int number;
        const char *name;
    } signals[] = {
        {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"},
    };
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        crash_by(signals[i].number, signals[i].name);
    daemon_kill(&the_daemon); /* its output has the requested reports of the sanitizer */
}
