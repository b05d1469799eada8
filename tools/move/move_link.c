/* Connections and their retries, error replies, BF.INFO and CF.INFO. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "move_internal.h"
#include "lock.h"

#define PAUSE_FIRST_MS 100
#define PAUSE_MAX_MS   5000

void move_link_init(struct move_link *link, struct move *move, bool needs_to)
{
    *link = (struct move_link){.move = move, .needs_to = needs_to};
    peer_init(&link->from, move->options->timeout_ms, &move->stop);
    peer_init(&link->to, move->options->timeout_ms, &move->stop);
}

void move_link_close(struct move_link *link)
{
    peer_close(&link->from);
    peer_close(&link->to);
}

void move_link_works(struct move_link *link)
{
    link->failing_since = 0;
    link->tries = 0;
}

static int open_peer(struct peer *peer, const struct server_url *url, const char *which, struct errbuf *err)
{
    if (peer_is_open(peer))
        return 0;
    int status = peer_log_in(peer, &url->address, err);
    if (status == 0)
        return 0;
    peer_close(peer);
    errbuf_prefix(err, "the %s, %s", which, url->shown);
    return status;
}

int move_link_try(struct move_link *link, struct errbuf *err)
{
    int status = open_peer(&link->from, link->move->options->from, "source", err);
    if (status == 0 && link->needs_to)
        status = open_peer(&link->to, link->move->options->to, "target", err);
    return status;
}

static void pause_ms(struct move *move, int64_t ms)
{
    int64_t end = clock_ms() + ms;
    struct timespec slice = {.tv_nsec = 20 * 1000000};
    while (!move_stopped(move) && clock_ms() < end)
        nanosleep(&slice, NULL);
}

void move_link_lost(struct move_link *link)
{
    move_link_close(link);
    if (link->failing_since == 0)
        link->failing_since = clock_ms();
}

int move_link_open(struct move_link *link)
{
    struct move *move = link->move;
    for (;;) {
        unsigned doublings = link->tries < 7 ? link->tries : 7;
        int64_t pause = (int64_t)PAUSE_FIRST_MS << doublings >> 1;
        if (link->failing_since != 0)
            pause_ms(link->move, pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS);
        if (move_stopped(move))
            return -ECANCELED;
        int64_t since = link->failing_since;
        if (since != 0 && clock_ms() - since >= move->options->retry_ms)
            return move_fatal(move, -ETIMEDOUT, "%s; given up after %lld s", link->why.text,
                              (long long)(move->options->retry_ms / 1000));
        int status = move_link_try(link, &link->why);
        if (status == 0 || status == -ECANCELED)
            return status;
        if (status == -EACCES || status == -EPROTO)
            return move_fatal(move, status, "%s", link->why.text);
        link->tries++;
        move_link_lost(link);
    }
}

int move_fatal(struct move *move, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    lock_take(&move->lock);
    if (move->totals.fatal_status == 0) {
        move->totals.fatal_status = status;
        vsnprintf(move->totals.fatal, sizeof(move->totals.fatal), fmt, args);
    }
    lock_give(&move->lock);
    va_end(args);
    atomic_store(&move->stop, true);
    move_queue_end(move);
    return -ECANCELED;
}

static void prefix_server(struct move_link *link, const struct peer *peer)
{
    const struct move_options *options = link->move->options;
    if (peer == &link->from)
        errbuf_prefix(&link->why, "the source, %s", options->from->shown);
    else
        errbuf_prefix(&link->why, "the target, %s", options->to->shown);
}

int move_reply(struct move_link *link, struct peer *peer, struct resp_reply *reply_out)
{
    int status = peer_reply(peer, reply_out, &link->why);
    if (status == 0)
        return 0;
    prefix_server(link, peer);
    if (status == -EPROTO || status == -ENOMEM)
        return move_fatal(link->move, status, "%s", link->why.text);
    return status;
}

/* ---- error replies ---- */

bool move_text_has(struct slice text, const char *part)
{
    return memmem(text.ptr, text.len, part, strlen(part)) != NULL;
}

static bool begins(struct slice text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && memcmp(text.ptr, word, len) == 0;
}

enum move_refusal move_refusal_of(struct slice text)
{
    static const char *const later[] = {"LOADING",    "TRYAGAIN",    "BUSY ",
                                        "MASTERDOWN", "CLUSTERDOWN", "ERR max number of clients"};
    static const char *const all[] = {"NOAUTH", "WRONGPASS", "READONLY", "MISCONF", "MOVED", "ASK ", "NOREPLICAS"};
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
        if (begins(text, later[i]))
            return REFUSAL_LATER;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (begins(text, all[i]))
            return REFUSAL_ALL;
    if (begins(text, "ERR unknown command") || (begins(text, "NOPERM") && move_text_has(text, "to run the")))
        return REFUSAL_COMMAND;
    if (move_text_has(text, "are being loaded already")) /* by others; they end, or give up */
        return REFUSAL_LATER;
    return begins(text, "OOM") ? REFUSAL_FULL : REFUSAL_FILTER;
}

int move_refused(struct move_link *link, const struct peer *peer, const char *command, struct slice text)
{
    bool is_from = peer == &link->from;
    enum move_refusal refusal = move_refusal_of(text);
    const char *advice = refusal == REFUSAL_FULL       ? "; raise its maxmemory and run the same command again"
                         : begins(text, "ERR unknown") ? " (does the server support Bloom filters?)"
                         : begins(text, "MOVED")       ? " (move each node of a cluster separately, to a single server)"
                                                       : "";
    if (refusal == REFUSAL_FILTER)
        return 0;
    if (refusal == REFUSAL_LATER) {
        errbuf_set(&link->why, "%.*s", (int)(text.len < 300 ? text.len : 300), text.ptr);
        prefix_server(link, peer);
        return -EAGAIN;
    }
    return move_fatal(link->move, -EREMOTEIO, "the %s refuses %s: %.*s%s", is_from ? "source" : "target", command,
                      (int)(text.len < 300 ? text.len : 300), text.ptr, advice);
}

/* ---- BF.INFO, CF.INFO ---- */

struct info_field {
    const char *name;
    size_t offset; /* in struct move_info */
};

/* Those of BF.INFO, then those of CF.INFO alone. */
static const struct info_field fields[] = {
    {"Capacity", offsetof(struct move_info, capacity)},
    {"Size", offsetof(struct move_info, size)},
    {"Number of filters", offsetof(struct move_info, layers)},
    {"Number of items inserted", offsetof(struct move_info, items)},
    {"Expansion rate", offsetof(struct move_info, expansion)},
    {"Bucket size", offsetof(struct move_info, bucket_size)},
    {"Max iterations", offsetof(struct move_info, iterations)},
    {"Number of items deleted", offsetof(struct move_info, deletes)},
    {"Number of buckets", offsetof(struct move_info, capacity)},
};
#define FIELDS       (sizeof(fields) / sizeof(fields[0]))
#define BLOOM_FIELDS 5

int move_read_info(const struct resp_reply *reply, bool cuckoo, struct move_info *info_out)
{
    size_t first = cuckoo ? 1 : 0, nfields = cuckoo ? FIELDS - 1 : BLOOM_FIELDS; /* a cuckoo filter has no "Capacity" */
    struct move_info info = {.expansion = -1};
    unsigned found = 0;
    if (move_is_error(reply))
        return move_text_has(resp_reply_text(reply, 0), "not found") ? 0 : -1;
    for (size_t i = 1; i + 1 < reply->count; i += 2) {
        struct slice name = resp_reply_text(reply, i);
        for (size_t field = 0; field < nfields; field++) {
            if (!slice_is(name, fields[first + field].name))
                continue;
            found |= 1u << field;
            if (reply->nodes[i + 1].kind == RESP_REPLY_INTEGER)
                *(int64_t *)(void *)((char *)&info + fields[first + field].offset) = reply->nodes[i + 1].number;
        }
    }
    if (found != (1u << nfields) - 1)
        return -1;
    *info_out = info;
    return 1;
}

/* Sizes are not compared: servers of different kinds count differently. */
bool move_info_agrees(const struct move_info *a, const struct move_info *b)
{
    return a->capacity == b->capacity && a->layers == b->layers && a->items == b->items &&
           a->expansion == b->expansion && a->bucket_size == b->bucket_size && a->iterations == b->iterations &&
           a->deletes == b->deletes;
}
