#include "move.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "peer.h"

#define PAUSE_MS   15000
#define PAUSE_TEXT "15000"
#define RENEW_MS   3000
#define SETTING    "read-only"
#define NO_CLIENT  "9223372036854775807" /* an id that no client has */

struct pause {
    const struct move_options *options;
    struct peer peer;
    bool has_setting, closed;
    int64_t begun_ms;
    /* of the thread that renews it, from its start on */
    pthread_t thread;
    bool running;
    atomic_bool stop, lost;
    _Atomic int64_t until_ms; /* until then the source holds writers back for certain */
    struct peer renewing;
};

/* Asks the source. 0, or -errno with the reason; -EACCES for an error reply. */
static int ask(struct pause *pause, struct peer *peer, const struct slice *words, size_t n,
               struct resp_reply *reply_out, struct errbuf *err)
{
    int status = peer_is_open(peer) ? 0 : peer_log_in(peer, &pause->options->from->address, err);
    if (status == 0) {
        peer_put(peer, words, n);
        status = peer_reply(peer, reply_out, err);
    }
    if (status != 0) {
        peer_close(peer);
    } else if (reply_out->nodes[0].kind == RESP_REPLY_ERROR) {
        struct slice text = resp_reply_text(reply_out, 0);
        errbuf_set(err, "it refuses %.*s %.*s, which --pause needs: %.*s", (int)words[0].len, words[0].ptr,
                   (int)words[1].len, words[1].ptr, (int)(text.len < 300 ? text.len : 300), text.ptr);
        status = -EACCES;
    }
    if (status != 0)
        errbuf_prefix(err, "the source, %s", pause->options->from->shown);
    return status;
}

#define ASK(pause, reply, err, ...)                                   \
    ask((pause), &(pause)->peer, (const struct slice[]){__VA_ARGS__}, \
        sizeof((const struct slice[]){__VA_ARGS__}) / sizeof(struct slice), (reply), (err))

/* ---- the pause ---- */

/* Whether writers were held back without a gap up to the reply. */
static bool renew(struct pause *pause, struct peer *peer, struct errbuf *err)
{
    const struct slice words[] = {slice_of("CLIENT"), slice_of("PAUSE"), slice_of(PAUSE_TEXT), slice_of("WRITE")};
    struct resp_reply reply;
    int64_t sent_ms = clock_ms();
    if (ask(pause, peer, words, 4, &reply, err) != 0)
        return false;
    if (clock_ms() > atomic_load(&pause->until_ms))
        atomic_store(&pause->lost, true);
    atomic_store(&pause->until_ms, sent_ms + PAUSE_MS);
    return true;
}

static void *renew_main(void *arg)
{
    struct pause *pause = arg;
    struct errbuf err;
    while (!atomic_load(&pause->stop)) {
        int64_t next_ms = clock_ms() + (renew(pause, &pause->renewing, &err) ? RENEW_MS : RENEW_MS / 10);
        while (!atomic_load(&pause->stop) && clock_ms() < next_ms)
            usleep(20000);
    }
    return NULL;
}

static void stop_renewing(struct pause *pause)
{
    atomic_store(&pause->stop, true);
    if (pause->running)
        pthread_join(pause->thread, NULL);
    pause->running = false;
    peer_close(&pause->renewing);
}

/* The commands that pause_close_source() needs. */
static int check_rights(struct pause *pause, struct errbuf *err)
{
    struct resp_reply reply;
    TRY(ASK(pause, &reply, err, slice_of("CONFIG"), slice_of("GET"), slice_of(SETTING)));
    pause->has_setting = reply.count >= 3;
    if (!pause->has_setting)
        return 0;
    if (slice_is(resp_reply_text(&reply, 2), "yes"))
        return errbuf_fail(
            err, -EACCES,
            "the source, %s, is read-only already, perhaps by an earlier move with --pause: move without it",
            pause->options->from->shown);
    int status = ASK(pause, &reply, err, slice_of("CONFIG"), slice_of("SET"), slice_of(SETTING), slice_of("no"));
    return status ? status
                  : ASK(pause, &reply, err, slice_of("CLIENT"), slice_of("KILL"), slice_of("ID"), slice_of(NO_CLIENT));
}

struct pause *pause_begin(const struct move_options *options, struct errbuf *err)
{
    struct pause *pause = calloc(1, sizeof(*pause));
    if (!pause)
        return errbuf_fail(err, NULL, "out of memory");
    pause->options = options;
    peer_init(&pause->peer, options->timeout_ms, NULL);
    peer_init(&pause->renewing, RENEW_MS, &pause->stop);
    atomic_store(&pause->until_ms, INT64_MAX);
    pause->begun_ms = clock_ms();
    if (check_rights(pause, err) == 0 && renew(pause, &pause->peer, err)) {
        pause->running = pthread_create(&pause->thread, NULL, renew_main, pause) == 0;
        if (pause->running)
            return pause;
        errbuf_set(err, "cannot start a thread");
    }
    (void)pause_end(pause, true, err);
    return NULL;
}

/* ---- the end ---- */

int pause_close_source(struct pause *pause, struct errbuf *err)
{
    static const char *const types[] = {"normal", "pubsub"};
    struct resp_reply reply;
    stop_renewing(pause); /* its connection is one of those that end */
    if (atomic_load(&pause->lost) || clock_ms() + PAUSE_MS / 3 > atomic_load(&pause->until_ms))
        return errbuf_fail(err, -ECANCELED,
                           "the source, %s, was out of reach for too long and may have let writers go on",
                           pause->options->from->shown);
    if (!pause->has_setting)
        return 0;
    pause->closed = true; /* before it is set: the answer may be lost */
    int status = ASK(pause, &reply, err, slice_of("CONFIG"), slice_of("SET"), slice_of(SETTING), slice_of("yes"));
    for (size_t i = 0; i < 2 && status == 0; i++)
        status = ASK(pause, &reply, err, slice_of("CLIENT"), slice_of("KILL"), slice_of("TYPE"), slice_of(types[i]),
                     slice_of("SKIPME"), slice_of("yes"));
    return status ? status : 1;
}

double pause_end(struct pause *pause, bool undo, struct errbuf *err)
{
    struct errbuf why = {""};
    struct resp_reply reply;
    stop_renewing(pause);
    peer_close(&pause->peer); /* replies may still be due */
    if (undo && pause->closed &&
        ASK(pause, &reply, &why, slice_of("CONFIG"), slice_of("SET"), slice_of(SETTING), slice_of("no")) != 0) {
        size_t len = strlen(err->text);
        snprintf(err->text + len, sizeof(err->text) - len, "; its setting " SETTING " may still be yes: set it to no");
    }
    (void)ASK(pause, &reply, &why, slice_of("CLIENT"), slice_of("UNPAUSE")); /* otherwise it ends by itself */
    peer_close(&pause->peer);
    double seconds = (double)(clock_ms() - pause->begun_ms) / 1000;
    free(pause);
    return seconds;
}
