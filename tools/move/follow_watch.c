#include "follow_watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "lock.h"
#include "move_internal.h"
#include "peer.h"

#define REST_MS      20    /* between two PINGs */
#define RETRY_MS     200   /* between two attempts to connect */
#define PAUSE_MS     15000 /* a pause lasts this long if this process dies ... */
#define PAUSE_ASK_MS 1000  /* ... and is renewed at this interval */

struct follow_watch {
    const struct move_options *options;
    struct followed *followed;
    struct peer peer;
    pthread_t thread;
    atomic_bool stop;
    atomic_uint pings; /* answered ones */
    atomic_bool pausing;
    _Atomic int64_t paused_until;
    int64_t requested_ms; /* for the pause */
    struct lock lock;     /* of the fields below */
    int status;
    struct errbuf why;
};

static void rest(const struct follow_watch *watch, int64_t ms)
{
    const struct timespec slice = {.tv_nsec = 10 * 1000000};
    for (int64_t end = clock_ms() + ms; !atomic_load(&watch->stop) && clock_ms() < end;)
        nanosleep(&slice, NULL);
}

/* ---- messages ---- */

/* invalidate and its names; null in their place: all */
static void take_push(struct follow_watch *watch, const struct resp_reply *push)
{
    if (push->count < 3 || !slice_is(resp_reply_text(push, 1), "invalidate"))
        return;
    if (push->nodes[2].kind != RESP_REPLY_ARRAY)
        followed_all_changed(watch->followed);
    for (size_t i = 3; i < push->count; i++)
        followed_changed(watch->followed, resp_reply_text(push, i));
}

/* The next reply; the messages before it are taken. */
static int take_reply(struct follow_watch *watch, struct resp_reply *reply, struct errbuf *err)
{
    for (;;) {
        int status = peer_message(&watch->peer, reply, err);
        if (status != 0 || reply->nodes[0].kind != RESP_REPLY_PUSH)
            return status;
        take_push(watch, reply);
    }
}

/* The same; an error reply is -EACCES, or -EAGAIN from a server that loads its filters. */
static int take_good_reply(struct follow_watch *watch, const char *command, struct errbuf *err)
{
    struct resp_reply reply;
    int status = take_reply(watch, &reply, err);
    if (status != 0 || reply.nodes[0].kind != RESP_REPLY_ERROR)
        return status;
    struct slice text = resp_reply_text(&reply, 0);
    errbuf_set(err, "it refuses %s: %.*s", command, (int)(text.len < 300 ? text.len : 300), text.ptr);
    return move_refusal_of(text) == REFUSAL_LATER ? -EAGAIN : -EACCES;
}

/* ---- the connection ---- */

static int open_connection(struct follow_watch *watch, struct errbuf *err)
{
    int status = peer_log_in(&watch->peer, &watch->options->from->address, err);
    if (status != 0)
        return status;
    PEER_PUT(&watch->peer, slice_of("HELLO"), slice_of("3"));
    PEER_PUT(&watch->peer, slice_of("CLIENT"), slice_of("TRACKING"), slice_of("ON"), slice_of("BCAST"));
    status = take_good_reply(watch, "HELLO 3, which --follow needs", err);
    if (status == 0)
        status = take_good_reply(watch, "CLIENT TRACKING, which --follow needs", err);
    if (status == 0)
        followed_all_changed(watch->followed);
    return status;
}

/* One PING, with CLIENT PAUSE before it now and then while the writers are held back. */
static int look(struct follow_watch *watch, struct errbuf *err)
{
    int64_t now = clock_ms();
    bool asks = atomic_load(&watch->pausing) && now - watch->requested_ms >= PAUSE_ASK_MS;
    char number[PEER_NUMBER_SIZE];
    if (asks)
        PEER_PUT(&watch->peer, slice_of("CLIENT"), slice_of("PAUSE"), peer_number(PAUSE_MS, number), slice_of("WRITE"));
    PEER_PUT(&watch->peer, slice_of("PING"));
    int status = asks ? take_good_reply(watch, "CLIENT PAUSE ... WRITE, which --cutover needs", err) : 0;
    if (status == 0 && asks) {
        watch->requested_ms = now;
        atomic_store(&watch->paused_until, now + PAUSE_MS);
    }
    if (status == 0)
        status = take_good_reply(watch, "PING", err);
    return status;
}

static void end_with(struct follow_watch *watch, int status, const struct errbuf *why)
{
    lock_take(&watch->lock);
    watch->status = status;
    watch->why = *why;
    errbuf_prefix(&watch->why, "the source, %s", watch->options->from->shown);
    lock_give(&watch->lock);
}

static void *run(void *ctx)
{
    struct follow_watch *watch = ctx;
    int64_t failing_since = 0;
    while (!atomic_load(&watch->stop)) {
        struct errbuf err = {""};
        int status = peer_is_open(&watch->peer) ? look(watch, &err) : open_connection(watch, &err);
        if (status == 0) {
            failing_since = 0;
            atomic_fetch_add(&watch->pings, 1);
            rest(watch, REST_MS);
            continue;
        }
        peer_close(&watch->peer);
        failing_since = failing_since ? failing_since : clock_ms();
        if (status == -EACCES || status == -ENOMEM || atomic_load(&watch->pausing) ||
            clock_ms() - failing_since >= watch->options->retry_ms) {
            end_with(watch, status, &err);
            return NULL;
        }
        rest(watch, RETRY_MS);
    }
    return NULL;
}

/* ---- for the thread that has started it ---- */

struct follow_watch *follow_watch_start(const struct move_options *options, struct followed *followed,
                                        struct errbuf *err)
{
    struct follow_watch *watch = calloc(1, sizeof(*watch));
    if (!watch) {
        errbuf_set(err, "out of memory");
        return NULL;
    }
    watch->options = options;
    watch->followed = followed;
    watch->requested_ms = INT64_MIN / 2;
    lock_init(&watch->lock, RANK_MOVE);
    peer_init(&watch->peer, options->timeout_ms, &watch->stop);
    int status = pthread_create(&watch->thread, NULL, run, watch);
    if (status == 0)
        return watch;
    errbuf_set(err, "cannot start a thread: %s", strerror(status));
    lock_deinit(&watch->lock);
    free(watch);
    return NULL;
}

void follow_watch_stop(struct follow_watch *watch)
{
    if (!watch)
        return;
    atomic_store(&watch->stop, true);
    pthread_join(watch->thread, NULL);
    peer_close(&watch->peer);
    lock_deinit(&watch->lock);
    free(watch);
}

int follow_watch_status(struct follow_watch *watch, struct errbuf *err)
{
    lock_take(&watch->lock);
    int status = watch->status;
    if (status != 0)
        *err = watch->why;
    lock_give(&watch->lock);
    return status;
}

int follow_watch_settle(struct follow_watch *watch, bool (*stops)(void *ctx), void *ctx, struct errbuf *err)
{
    const struct timespec slice = {.tv_nsec = 5 * 1000000};
    unsigned begun = atomic_load(&watch->pings);
    /* The first may have been under way, the second is one PING, the third the next one. */
    while (atomic_load(&watch->pings) - begun < 3) {
        int status = follow_watch_status(watch, err);
        if (status != 0)
            return status;
        if (stops(ctx))
            return -EINTR;
        nanosleep(&slice, NULL);
    }
    return follow_watch_status(watch, err);
}

void follow_watch_pause(struct follow_watch *watch)
{
    atomic_store(&watch->pausing, true);
}

int64_t follow_watch_paused_until(const struct follow_watch *watch)
{
    return atomic_load(&watch->paused_until);
}
