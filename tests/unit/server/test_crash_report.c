/* The report on a crashing process: real faults, in a child of the test. Where a sanitizer handles the signal, its
 * report. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "thread.h"
#include "wait.h"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED true
#else
#define SANITIZED false
#endif

static char said[16384];
static char *volatile nowhere = (char *)16;
static volatile int zero;

/* Runs the function in a child that reports; `said` gets the child's output. Returns the signal that ended it, or 0. */
static int crash(void (*function)(void))
{
    int ends[2], status;
    size_t used = 0;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        struct log log;
        struct errbuf err;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        if (log_init(&log, NULL, LOG_LEVEL_NOTICE, &err) != 0)
            _exit(99);
        crash_report_start(&log, "program 1.2");
        thread_begin("crashing");
        crash_note_command("bf.test");
        function();
        _exit(98);
    }
    close(ends[1]);
    for (ssize_t n; used < sizeof(said) - 1 && (n = read(ends[0], said + used, sizeof(said) - 1 - used)) > 0;)
        used += (size_t)n;
    said[used] = '\0';
    close(ends[0]);
    wait_until(waitpid(pid, &status, WNOHANG) == pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void expect_said(const char *text)
{
    cr_assert(strstr(said, text), "'%s' is not in: %s", text, said);
}

/* `sanitizer`: the text in a sanitizer's report instead. */
static void expect_report(void (*function)(void), int number, const char *first, const char *sanitizer)
{
    int got = crash(function);
    if (SANITIZED && sanitizer) {
        expect_said(sanitizer);
        cr_assert_null(strstr(said, "crashed by"), "the sanitizer's report has another one beside it: %s", said);
        return;
    }
    cr_assert_eq(got, number, "ended by %d: %s", got, said);
    expect_said(first);
    expect_said(", thread crashing, last command bf.test, program 1.2\n");
    expect_said("(+0x"); /* the place: the stack has the program's file */
}

static void write_nowhere(void)
{
    *nowhere = 1;
}

Test(crash_report, a_fault_is_reported_with_its_address)
{
    expect_report(write_nowhere, SIGSEGV, "crashed by SIGSEGV, address 0x10", "AddressSanitizer: SEGV");
}

Test(crash_report, a_broken_assertion_is_reported)
{
    expect_report(abort, SIGABRT, "crashed by SIGABRT, sent by process ", NULL);
}

static void overflow_the_stack(void)
{
    volatile char room[4096];
    room[0] = (char)zero;
    if (zero == 0)
        overflow_the_stack();
    room[1] = room[0];
}

static void *overflow_of_a_thread(void *arg)
{
    thread_begin("crashing");
    crash_note_command("bf.test");
    overflow_the_stack();
    return arg;
}

static void overflow_elsewhere(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, overflow_of_a_thread, NULL) == 0)
        pthread_join(thread, NULL);
}

Test(crash_report, an_overflow_of_the_stack_is_reported)
{
    expect_report(overflow_the_stack, SIGSEGV, "crashed by SIGSEGV, address 0x", "AddressSanitizer: stack-overflow");
    expect_report(overflow_elsewhere, SIGSEGV, "crashed by SIGSEGV, address 0x", "AddressSanitizer: stack-overflow");
}

static void *fault_of_a_thread(void *barrier)
{
    thread_begin("crashing");
    crash_note_command("bf.test");
    pthread_barrier_wait(barrier);
    write_nowhere();
    return NULL;
}

static void crash_at_once(void)
{
    pthread_t threads[8];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 8);
    for (int i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, fault_of_a_thread, &barrier) != 0)
            _exit(97);
    pthread_join(threads[0], NULL);
}

Test(crash_report, threads_that_crash_at_once_give_one_whole_report)
{
    for (int i = 0; i < 20; i++) {
        expect_report(crash_at_once, SIGSEGV, "crashed by SIGSEGV, address 0x10", "AddressSanitizer: SEGV");
        const char *first = strstr(said, "crashed by");
        cr_assert(SANITIZED || !strstr(first + 1, "crashed by"), "%s", said);
    }
}

static void ignore(int number)
{
    (void)number;
    dprintf(STDERR_FILENO, "handled by another\n");
    _exit(0);
}

static void handled_by_another(void)
{
    struct log log;
    struct errbuf err;
    signal(SIGFPE, ignore);
    if (log_init(&log, NULL, LOG_LEVEL_NOTICE, &err) != 0)
        _exit(99);
    crash_report_start(&log, "program 1.2");
    raise(SIGFPE);
}

Test(crash_report, who_handles_a_signal_keeps_it)
{
    cr_assert_eq(crash(handled_by_another), 0);
    expect_said("handled by another");
    cr_assert_null(strstr(said, "crashed by"));
}
