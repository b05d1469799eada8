/* The order of locks: the permitted orders, and the end of a process that breaks it. */
#include "lock.h"
#include "wait.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct lock outer = LOCK_INITIALIZER(RANK_REGISTRY), inner = LOCK_INITIALIZER(RANK_PENDING);
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

Test(lock, ranks_rise)
{
    struct lock_rw between;
    lock_rw_init(&between, RANK_JOURNAL);
    lock_take(&outer);
    lock_rw_read(&between);
    lock_take(&inner);
    lock_give(&outer); /* the order of releases is free */
    lock_give(&inner);
    lock_rw_give(&between);
    lock_take(&inner);
    lock_give(&inner);
    lock_take(&outer);
    lock_give(&outer);
    lock_rw_deinit(&between);
}

Test(lock, waits_end_in_time_and_by_an_event)
{
    struct timespec now;
    sem_t event;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lock_take(&outer);
    lock_take(&inner);
    cr_assert_not(lock_wait_until(&never, &inner, CLOCK_MONOTONIC, &now));
    lock_give(&inner);
    lock_give(&outer);
    sem_init(&event, 0, 0);
    sem_post(&event);
    lock_wait_for(&event);
    sem_destroy(&event);
}

#ifdef BLOOMERY_VERIFY
static void take_outer_under_inner(void)
{
    lock_take(&inner);
    lock_take(&outer);
}

static void take_one_of_the_same_rank(void)
{
    struct lock other = LOCK_INITIALIZER(RANK_PENDING);
    lock_take(&inner);
    lock_take(&other);
}

static void wait_with_the_outer_one(void)
{
    lock_take(&outer);
    lock_take(&inner);
    lock_wait(&never, &outer);
}

static void give_what_is_not_held(void)
{
    lock_give(&inner);
}

static void take_locks_of_adds_downwards(void)
{
    static char adds[2];
    lock_check_take(RANK_ADDS, &adds[0]);
    lock_check_take(RANK_ADDS, &adds[1]);
    lock_check_give(RANK_ADDS, &adds[0]);
    lock_check_take(RANK_ADDS, &adds[0]);
}

/* `fault`, in its own process, ends it by SIGABRT with a message that has `text`. */
static void expect_abort(void (*fault)(void), const char *text)
{
    char said[256] = "";
    int status, ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        fault();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n, len = 0; (n = read(ends[0], said + len, sizeof(said) - 1 - (size_t)len)) > 0;)
        len += n;
    close(ends[0]);
    wait_until(waitpid(child, &status, WNOHANG) == child);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "it has gone on: %d", status);
    cr_expect(strstr(said, text), "it says \"%s\", not \"%s\"", said, text);
}

Test(lock, the_wrong_order_ends_the_process_and_names_both_locks)
{
    expect_abort(take_outer_under_inner, "the lock REGISTRY is taken under the lock PENDING");
    expect_abort(take_one_of_the_same_rank, "the lock PENDING is taken under the lock PENDING");
    expect_abort(wait_with_the_outer_one, "the lock REGISTRY is waited with under the lock PENDING");
    expect_abort(give_what_is_not_held, "the lock PENDING is given and not held");
    expect_abort(take_locks_of_adds_downwards, "the lock ADDS is taken under the lock ADDS");
}
#endif
