#include "crash_report.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "thread.h"

_Thread_local const char *crash_last_command;

static int log_fd;
static const char *program_name, *line_begin; /* the priority for the journal */
static const char *(*truncated_file)(void);
static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/* A fault within ends the process. At the return a fault happens again, with its default effect; a signal that was sent
 * is sent again. */
static void on_crash(int number, siginfo_t *info, void *context)
{
    static _Atomic bool begun;
    char cause[4200], line[4600], thread[16] = "?";
    void *frames[64];
    int saved = errno;
    (void)context;
    while (atomic_exchange(&begun, true))
        pause(); /* another thread reports, and ends the process */
    alarm(10);   /* what is stuck by then is ended */
    (void)prctl(PR_GET_NAME, thread);
    const char *file = number == SIGBUS ? truncated_file() : NULL;
    if (file)
        snprintf(cause, sizeof(cause), "another program has truncated %s, which is in use", file);
    else if (info->si_code > 0)
        snprintf(cause, sizeof(cause), "address %p", info->si_addr);
    else
        snprintf(cause, sizeof(cause), "sent by process %d", (int)info->si_pid);
    int len =
        snprintf(line, sizeof(line), "%scrashed by SIG%s, %s, thread %s, last command %s, %s\n", line_begin,
                 sigabbrev_np(number), cause, thread, crash_last_command ? crash_last_command : "none", program_name);
    (void)!write(log_fd, line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1);
    backtrace_symbols_fd(frames, backtrace(frames, 64), log_fd);
    signal(number, SIG_DFL);
    if (info->si_code <= 0)
        (void)raise(number); /* blocked until the return */
    errno = saved;
}

void crash_report_start(const struct log *log, const char *program, const char *(*truncated)(void))
{
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK}, before;
    void *frame;
    log_fd = log->fd;
    line_begin = log->journal ? "<2>" : "";
    program_name = program;
    truncated_file = truncated;
    (void)backtrace(&frame, 1); /* loads the unwinder, which the handler could not */
    thread_begin_signals();
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (sigaction(signals[i], NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) &&
            before.sa_handler == SIG_DFL) /* a sanitizer keeps its own */
            sigaction(signals[i], &action, NULL);
}
