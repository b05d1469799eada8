/* move_runs: `bloomery move` between the two daemons of daemon_pair.h, to its end or beside the test. Include it in one
 * file of a program. */
#pragma once

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon_pair.h"
#include "program.h"
#include "wait.h"

static char output[16384];                      /* of the last run of move() */
static const char *beside_output = "/dev/null"; /* file for the output of runs beside the test */

static inline int move(const char *options)
{
    return program_run(output, sizeof(output), "'%s' move --from redis://127.0.0.1:%d --to redis://127.0.0.1:%d %s",
                       BLOOMERY_TOOL_PATH, source.port, target.port, options);
}

static inline void expect_move(int status, const char *text, const char *options)
{
    int got = move(options);
    cr_assert_eq(got, status, "exit %d of 'move %s': %s", got, options, output);
    program_said(output, text);
}

/* Starts a run beside the test. The options after the first NULL do not count. */
static inline pid_t move_beside_urls(const char *from_url, const char *to_url, const char *option, const char *more)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)!freopen(beside_output, "a", stdout);
        (void)!freopen(beside_output, "a", stderr);
        execl(BLOOMERY_TOOL_PATH, "bloomery", "move", "--from", from_url, "--to", to_url, option, more, (char *)NULL);
        _exit(99);
    }
    cr_assert_gt(pid, 0);
    return pid;
}

static inline pid_t move_beside(int from_port, int to_port, const char *option, const char *more)
{
    char from_url[64], to_url[64];
    snprintf(from_url, sizeof(from_url), "redis://127.0.0.1:%d", from_port);
    snprintf(to_url, sizeof(to_url), "redis://127.0.0.1:%d", to_port);
    return move_beside_urls(from_url, to_url, option, more);
}

/* The exit status of a process, or 1000 + the signal that ended it. */
static inline int wait_for(pid_t pid)
{
    int status;
    wait_until(waitpid(pid, &status, WNOHANG) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
