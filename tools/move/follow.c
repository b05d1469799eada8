#include "follow.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "cutover.h"
#include "follow_watch.h"
#include "followed.h"
#include "log_text.h"
#include "move_internal.h"

#define REST_LEAST_MS 200 /* between two rounds ... */
#define REST_MOST_MS                                                                                \
    10000 /* ... as long as the last one took, so that half of the servers' time is left to clients \
           */

#define CLEAR_LINE "\r\033[K" /* the progress is one line */

#define SLOW_ROUNDS 5  /* after so many slow rounds a message reports them */
#define LAST_ROUNDS 10 /* of a cutover: one, and those of names that expire meanwhile */

struct follow {
    const struct follow_options *options;
    struct move_options round; /* of the round */
    struct followed *followed;
    struct follow_watch *watch;
    struct cutover *cutover;
    struct follow_summary *summary;
    sigset_t signals;
    uint64_t names;  /* of the last round */
    int64_t took_ms; /* the last round */
    bool was_a_scan; /* it was no round of marked names */
    bool caught_up;  /* it has been reported */
    unsigned slow;   /* rounds that took longer than that, so far */
};

/* ---- waiting ---- */

/* Whether a signal has come; waits for one this long. */
static bool is_stopped_within(struct follow *follow, int64_t ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (follow->summary->moved.signal)
        return true;
    int number = sigtimedwait(&follow->signals, NULL, &time);
    if (number > 0)
        follow->summary->moved.signal = number;
    return number > 0;
}

static bool is_stopped(void *follow)
{
    return is_stopped_within(follow, 0);
}

static int settle(struct follow *follow, struct errbuf *err)
{
    return follow_watch_settle(follow->watch, is_stopped, follow, err);
}

/* ---- rounds ---- */

static void tell_round(const struct follow *follow, const struct move_summary *done)
{
    if (!follow->options->move.progress)
        return;
    fprintf(stderr, CLEAR_LINE "round %" PRIu64 ": %s, %s, %.1f s", follow->summary->rounds,
            log_count(done->filters[MOVE_MOVED] + done->filters[MOVE_DELETED], "filter").text,
            log_bytes(done->bytes).text, (double)follow->took_ms / 1000);
}

/* A round. Fewer names need fewer connections. */
static int run_round(struct follow *follow, struct errbuf *err)
{
    struct move_summary done;
    int64_t begun = clock_ms();
    follow->was_a_scan = followed_must_scan(follow->followed);
    follow->round = follow->options->move;
    follow->round.followed = follow->followed;
    follow->round.marked_only = !follow->was_a_scan;
    follow->round.met = true;
    uint64_t names = follow->names = follow->was_a_scan ? UINT64_MAX : followed_begin_round(follow->followed);
    if (names < follow->round.jobs)
        follow->round.jobs = names > 0 ? (unsigned)names : 1;
    follow->took_ms = 0;
    if (names == 0)
        return 0;
    follow->summary->rounds++;
    int status = move_run(&follow->round, &done, err);
    move_summary_add(&follow->summary->moved, &done);
    follow->took_ms = clock_ms() - begun;
    if (status == 0)
        tell_round(follow, &done);
    return status;
}

static void tell_once(struct follow *follow)
{
    char ids[MOVE_KEYS_SIZE];
    struct errbuf err;
    if (follow->caught_up)
        return;
    fprintf(stderr, "%scaught up: the target is at most %.1f s behind\n",
            follow->options->move.progress ? CLEAR_LINE : "", (double)follow->options->behind_ms / 1000);
    if (!follow->options->cutover && move_missing_keys(&follow->options->move, ids, sizeof(ids), &err) > 0)
        fprintf(stderr, MOVE_KEYS_WARNING "\n", ids);
    follow->caught_up = true;
}

/* Reports that a cutover is being awaited and does not come. */
static void tell_slow(struct follow *follow)
{
    if (++follow->slow == SLOW_ROUNDS)
        fprintf(
            stderr,
            "%snot caught up: a round takes %.1f s, and --behind is %.1f s; with a larger value writers wait longer\n",
            follow->options->move.progress ? CLEAR_LINE : "", (double)follow->took_ms / 1000,
            (double)follow->options->behind_ms / 1000);
}

/* Runs rounds until the target has caught up; without a cutover until a signal. */
static int follow_changes(struct follow *follow, struct errbuf *err)
{
    for (;;) {
        int status = run_round(follow, err);
        if (status == 0)
            status = follow_watch_status(follow->watch, err);
        if (status != 0)
            return status;
        if (follow->was_a_scan)
            continue; /* the names that it knew have yet to be read */
        if (follow->took_ms <= follow->options->behind_ms) {
            tell_once(follow);
            if (follow->options->cutover)
                return 0;
        } else {
            tell_slow(follow);
        }
        int64_t rest = follow->took_ms > REST_LEAST_MS ? follow->took_ms : REST_LEAST_MS;
        if (is_stopped_within(follow, rest < REST_MOST_MS ? rest : REST_MOST_MS))
            return -EINTR;
    }
}

/* ---- the cutover ---- */

/* Names that are not in the target as they are in the source. */
static uint64_t missing(const struct follow *follow)
{
    static const enum move_outcome bad[] = {MOVE_TAKEN, MOVE_UNREAD, MOVE_REFUSED, MOVE_CHANGING, MOVE_DIFFERS};
    uint64_t filters[MOVE_OUTCOMES] = {0}, n = 0;
    followed_count(follow->followed, filters);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        n += filters[bad[i]];
    return n;
}

/* Carries the rest while writers wait. */
static int carry_the_rest(struct follow *follow, struct errbuf *err)
{
    int status = settle(follow, err);
    followed_retry(follow->followed);
    follow->names = 1;
    for (int i = 0; i < LAST_ROUNDS && status == 0 && follow->names > 0; i++)
        status = run_round(follow, err);
    return status == 0 ? follow_watch_status(follow->watch, err) : status;
}

/* The pause must have held until now. Later it is not needed: the refusals are in force before it ends. */
static int check_pause(int64_t paused_until, struct errbuf *err)
{
    if (clock_ms() < paused_until)
        return 0;
    errbuf_set(err, "the pause of the source's writers ended too early");
    return -ETIMEDOUT;
}

/* Checks for filters that the target could not answer for. It runs before the pause, so that no writer waits in vain,
 * and during it, because a filter under another key may have come since. */
static int check_keys(const struct follow *follow, struct errbuf *err)
{
    char ids[MOVE_KEYS_SIZE];
    int status = move_needed_keys(&follow->options->move, ids, sizeof(ids), err);
    if (status <= 0)
        return status;
    errbuf_set(err, "no cutover: the target lacks keys of KEYED filters: %s; copy their lines of the key file first",
               ids);
    return -EACCES;
}

/* Carries the rest and checks that the target has all of it. `lacking`: the number of names that it lacks. */
static int carry_all(struct follow *follow, uint64_t *lacking, struct errbuf *err)
{
    int status = carry_the_rest(follow, err);
    *lacking = status == 0 ? missing(follow) : 0;
    return status == 0 && *lacking == 0 ? check_keys(follow, err) : status;
}

static int close_clients(struct follow *follow, int64_t paused_until, struct errbuf *err)
{
    int status = check_pause(paused_until, err);
    if (status == 0) { /* its connection would be closed, too */
        follow_watch_stop(follow->watch);
        follow->watch = NULL;
        status = cutover_close_clients(follow->cutover, err);
    }
    return status == 0 ? check_pause(paused_until, err) : status;
}

/* The source refuses writes from here on. Changes since the last round of the pause came through because another client
 * ended it. They are carried, but the cutover has failed: a refused writer may have written to the target meanwhile,
 * into a filter that is replaced now. */
static int check_changes(struct follow *follow, struct errbuf *err)
{
    const uint64_t *moved = &follow->summary->moved.filters[MOVE_MOVED], before = *moved;
    int status = carry_the_rest(follow, err);
    if (status != 0 || (*moved == before && missing(follow) == 0))
        return status;
    errbuf_set(err,
               "filters of the source have changed during the pause of its writers: does another client send CLIENT "
               "UNPAUSE?");
    return -EBUSY;
}

static int refuse_and_close(struct follow *follow, struct errbuf *err)
{
    int status = cutover_refuse_writes(follow->cutover, &follow->summary->answer, err);
    if (status == 0)
        status = check_changes(follow, err);
    return status == 0 ? close_clients(follow, follow_watch_paused_until(follow->watch), err) : status;
}

static int cut_over(struct follow *follow, struct errbuf *err)
{
    int64_t begun = clock_ms();
    uint64_t lacking;
    follow_watch_pause(follow->watch);
    int status = carry_all(follow, &lacking, err);
    if (status == 0 && lacking == 0)
        status = refuse_and_close(follow, err);
    if (status != 0 || lacking > 0) {
        follow_watch_stop(follow->watch); /* which would pause again */
        follow->watch = NULL;
        cutover_undo(follow->cutover, err);
        return status;
    }
    follow->summary->cut = true;
    struct errbuf why;
    (void)cutover_unpause(follow->cutover, &why); /* it also ends by itself */
    follow->summary->pause = (double)(clock_ms() - begun) / 1000;
    return 0;
}

/* Reports obstacles to the cutover before anything is sent. */
static int prepare_cutover(struct follow *follow, struct errbuf *err)
{
    const struct move_options *move = &follow->options->move;
    int64_t other;
    int found = move_other_database(move, &other, err);
    if (found > 0)
        errbuf_set(err,
                   "--cutover makes the whole source read-only, but it has keys in database %" PRId64
                   ", which this run does not move",
                   other);
    if (found != 0)
        return -EACCES;
    follow->cutover = cutover_begin(move, err);
    return follow->cutover ? 0 : -EACCES;
}

/* ---- the whole ---- */

static int run(struct follow *follow, struct errbuf *err)
{
    const struct move_options *move = &follow->options->move;
    int status = move_meet(move, err);
    if (status != 0)
        return status;
    follow->followed = followed_create(move->match);
    if (!follow->followed) {
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    follow->watch = follow_watch_start(move, follow->followed, err);
    if (!follow->watch)
        return -EAGAIN;
    if (follow->options->cutover && prepare_cutover(follow, err) != 0)
        return -EACCES;
    status = settle(follow, err); /* from here on changes are reported */
    if (status == 0)
        status = follow_changes(follow, err);
    if (status == 0 && follow->options->cutover)
        status = check_keys(follow, err);
    if (status == 0 && follow->options->cutover)
        status = cut_over(follow, err);
    return status;
}

int follow_run(const struct follow_options *options, struct follow_summary *summary_out, struct errbuf *err)
{
    struct follow follow = {.options = options, .summary = summary_out};
    sigset_t before;
    int64_t begun = clock_ms();
    *summary_out = (struct follow_summary){.rounds = 0};
    sigemptyset(&follow.signals);
    sigaddset(&follow.signals, SIGINT);
    sigaddset(&follow.signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &follow.signals, &before);
    int status = run(&follow, err);
    follow_watch_stop(follow.watch);
    cutover_end(follow.cutover);
    if (options->move.progress)
        fputs(CLEAR_LINE, stderr);
    struct move_summary *moved = &summary_out->moved;
    uint64_t deleted = moved->filters[MOVE_DELETED];
    memset(moved->filters, 0, sizeof(moved->filters));
    if (follow.followed)
        followed_count(follow.followed, moved->filters);
    moved->filters[MOVE_DELETED] = deleted;
    moved->changed = 0; /* their messages have marked them */
    moved->seconds = (double)(clock_ms() - begun) / 1000;
    followed_destroy(follow.followed);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
