/* A worker: takes filters from the queue and moves them, across lost connections. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "move_internal.h"

#define LIMIT_NAME "bf.bloom-memory-usage-limit"

/* ---- the state of the target ---- */

static void finish_taken(struct move *move, struct move_filter *filter, const struct move_info *there)
{
    const struct move_info *here = &filter->info;
    move_finish(
        move, filter, MOVE_TAKEN,
        "the target has another filter of this name (%s %lld, %lld items, %lld layers; in the source %lld, %lld, "
        "%lld); move it into another database of the target, or --replace it",
        filter->cuckoo ? "buckets" : "capacity", (long long)there->capacity, (long long)there->items,
        (long long)there->layers, (long long)here->capacity, (long long)here->items, (long long)here->layers);
}

static int take_look(struct move_link *link, const struct resp_reply *reply, struct move_filter *filter)
{
    struct move *move = link->move;
    struct move_info there;
    int status, found = move_read_info(reply, filter->cuckoo, &there);
    struct slice text = move_is_error(reply) ? resp_reply_text(reply, 0) : (struct slice){"", 0};
    if (found > 0 && !filter->differs && move_info_agrees(&there, &filter->info)) {
        move_copied(move, filter, filter->sent_before ? MOVE_MOVED : MOVE_THERE);
        return 0;
    }
    if (found == 0 || (found > 0 && move->options->replace)) {
        filter->state = FILTER_WANTED;
        return 0;
    }
    if (found > 0) {
        finish_taken(move, filter, &there);
        return 0;
    }
    if (filter->cuckoo && move_text_has(text, "unknown command")) { /* which concerns no Bloom filter */
        move_finish(move, filter, MOVE_REFUSED, "the target does not support cuckoo filters: %.*s", (int)text.len,
                    text.ptr);
        return 0;
    }
    status = move_refused(link, &link->to, MOVE_COMMAND(filter, "INFO"), text);
    if (status != 0)
        return status;
    if (move_text_has(text, "WRONGTYPE") && !move->options->replace)
        move_finish(move, filter, MOVE_TAKEN, "the target has a value of another type under this name");
    else if (move_text_has(text, "WRONGTYPE"))
        filter->state = FILTER_WANTED;
    else
        move_finish(move, filter, MOVE_REFUSED, "%.*s", (int)text.len, text.ptr);
    return 0;
}

/* The reply to the question for valkey-bloom's limit; other servers, and those that refuse CONFIG, have none. */
static int take_limit(struct move_link *link)
{
    struct resp_reply reply;
    int status = move_reply(link, &link->to, &reply);
    link->limit = 0;
    if (status == 0 && reply.count == 3)
        (void)slice_to_int64(resp_reply_text(&reply, 2), &link->limit);
    return status;
}

static void refuse_too_large(struct move_link *link, struct move_filter *filter)
{
    if (filter->state == FILTER_WANTED && filter->whole && link->limit > 0 && filter->info.size > link->limit)
        move_finish(link->move, filter, MOVE_REFUSED,
                    "it has %lld bytes, and the target's limit of a filter is %lld (" LIMIT_NAME ")",
                    (long long)filter->info.size, (long long)link->limit);
}

int move_look(struct move_link *link, struct move_filter **filters, size_t n)
{
    struct resp_reply reply;
    bool whole = false;
    int status = 0;
    for (size_t i = 0; i < n; i++)
        whole |= filters[i]->state == FILTER_NEW && filters[i]->whole;
    if (whole)
        PEER_PUT(&link->to, slice_of("CONFIG"), slice_of("GET"), slice_of(LIMIT_NAME));
    for (size_t i = 0; i < n; i++)
        if (filters[i]->state == FILTER_NEW)
            PEER_PUT(&link->to, slice_of(MOVE_COMMAND(filters[i], "INFO")), move_name(filters[i]));
    if (whole)
        status = take_limit(link);
    for (size_t i = 0; i < n && status == 0; i++) {
        if (filters[i]->state != FILTER_NEW)
            continue;
        status = move_reply(link, &link->to, &reply);
        STEP(status, take_look(link, &reply, filters[i]));
        if (status == 0)
            refuse_too_large(link, filters[i]);
    }
    return status;
}

/* ---- small filters: PTTL and DUMP of the source, RESTORE in the target, for a batch at a time ----
 *
 * A dump is taken at one moment and appears at one moment. */

static bool is_small(const struct move_filter *filter)
{
    int64_t most = filter->cuckoo ? MOVE_LARGE_CUCKOO : MOVE_LARGE_BYTES;
    return filter->state == FILTER_WANTED && !filter->chunks && (filter->whole || filter->info.size <= most);
}

/* Chunks may work if DUMP or RESTORE are not allowed, or if the filter has become too large for one piece. They may
 * also work if the target does not support the form of the dump: a module without take-over, or an older engine. */
static bool may_go_in_chunks(const struct move_filter *filter, struct slice text)
{
    if (filter->whole)
        return move_text_has(text, "use BF.SCANDUMP"); /* a Bloomery's, above its proto-max-bulk-len */
    return move_refusal_of(text) == REFUSAL_COMMAND || move_text_has(text, "F.SCANDUMP") ||
           move_text_has(text, "F.LOADCHUNK") || move_text_has(text, "Bad data format") ||
           move_text_has(text, "DUMP payload version");
}

/* The refusal of DUMP or RESTORE. */
static int refused(struct move_link *link, const struct peer *peer, struct move_filter *filter, struct slice text)
{
    bool is_from = peer == &link->from;
    if (may_go_in_chunks(filter, text)) {
        filter->chunks = true;
        filter->state = FILTER_WANTED;
        return 0;
    }
    TRY(move_refused(link, peer, is_from ? "DUMP" : "RESTORE", text));
    if (move_text_has(text, "BUSYKEY")) /* perhaps by late requests of an earlier run */
        filter->state = FILTER_NEW;
    else if (!is_from && filter->whole && link->limit > 0) /* it names no reason */
        move_finish(link->move, filter, MOVE_REFUSED, "%.*s (it has %lld bytes; " LIMIT_NAME " of the target is %lld)",
                    (int)text.len, text.ptr, (long long)filter->info.size, (long long)link->limit);
    else
        move_finish(link->move, filter, is_from ? MOVE_UNREAD : MOVE_REFUSED, "%.*s", (int)text.len, text.ptr);
    return 0;
}

static int take_restored(struct move_link *link, struct move_filter *filter)
{
    struct resp_reply reply;
    int status = move_reply(link, &link->to, &reply);
    if (status == 0 && move_is_error(&reply))
        return refused(link, &link->to, filter, resp_reply_text(&reply, 0));
    if (status == 0)
        move_copied(link->move, filter, MOVE_MOVED);
    return status;
}

/* Reads PTTL and DUMP; puts RESTORE. */
static int take_dump(struct move_link *link, struct move_filter *filter)
{
    struct resp_reply reply;
    char number[PEER_NUMBER_SIZE];
    int status = move_reply(link, &link->from, &reply);
    if (status != 0)
        return status;
    int64_t ttl = reply.nodes[0].kind == RESP_REPLY_INTEGER ? reply.nodes[0].number : -1;
    struct slice ttl_error = move_is_error(&reply) ? resp_reply_text(&reply, 0) : (struct slice){"", 0};
    if (ttl_error.len > 0) {
        status = move_refused(link, &link->from, "PTTL", ttl_error);
        if (status == 0)
            move_finish(link->move, filter, MOVE_UNREAD, "%.*s", (int)ttl_error.len, ttl_error.ptr);
        if (status != 0)
            return status;
    }
    status = move_reply(link, &link->from, &reply);
    if (status != 0 || filter->state == FILTER_FINISHED)
        return status;
    if (move_is_error(&reply))
        return refused(link, &link->from, filter, resp_reply_text(&reply, 0));
    if (reply.nodes[0].kind != RESP_REPLY_TEXT || ttl == -2) {
        move_finish(link->move, filter, MOVE_GONE, NULL);
        return 0;
    }
    struct slice words[] = {slice_of("RESTORE"), move_name(filter),
                            peer_number(ttl < 0   ? 0
                                        : ttl > 0 ? ttl
                                                  : 1,
                                        number),
                            resp_reply_text(&reply, 0), slice_of("REPLACE")};
    peer_put(&link->to, words, link->move->options->replace ? 5 : 4);
    filter->state = FILTER_SENT;
    return 0;
}

static int move_small(struct move_link *link, struct move_filter **filters, size_t n)
{
    struct move_filter *requested[MOVE_BATCH];
    size_t nasked = 0;
    int status = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_small(filters[i]))
            continue;
        PEER_PUT(&link->from, slice_of("PTTL"), move_name(filters[i]));
        PEER_PUT(&link->from, slice_of("DUMP"), move_name(filters[i]));
        requested[nasked++] = filters[i];
    }
    for (size_t i = 0; i < nasked && status == 0; i++)
        status = take_dump(link, requested[i]);
    for (size_t i = 0; i < nasked && status == 0; i++)
        if (requested[i]->state == FILTER_SENT)
            status = take_restored(link, requested[i]);
    return status == 0 ? move_look(link, filters, n) : status; /* at filters whose names have been taken */
}

/* ---- a batch ---- */

/* Frees finished filters; the others start again. */
static size_t drop_finished(struct move_filter **filters, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (filters[i]->state == FILTER_FINISHED) {
            free(filters[i]);
            continue;
        }
        if (filters[i]->state == FILTER_SENT)
            filters[i]->sent_before = true;
        if (filters[i]->state != FILTER_COPIED) /* which remain to be verified */
            filters[i]->state = FILTER_NEW;
        filters[left++] = filters[i];
    }
    return left;
}

static void tell_plan(struct move *move, struct move_filter **filters, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (filters[i]->state == FILTER_WANTED)
            move_finish(move, filters[i], MOVE_MOVED, NULL);
}

static int move_batch(struct move_link *link, struct move_filter **filters, size_t n)
{
    int status = move_look(link, filters, n);
    if (status == 0 && link->move->options->dry_run)
        tell_plan(link->move, filters, n);
    else if (status == 0)
        status = move_small(link, filters, n);
    for (size_t i = 0; i < n && status == 0; i++)
        if (filters[i]->state == FILTER_WANTED)
            status = move_large(link, filters[i]);
    STEP(status, move_verify(link, filters, n));
    return status;
}

/* Moves filters, a part of them at a time. A lost connection halves the part: short-lived ones make progress. */
static int move_all(struct move_link *link, struct move_filter **filters, size_t n)
{
    size_t part = n;
    int status = 0;
    while (n > 0 && status != -ECANCELED) {
        size_t before = n;
        part = part < n ? part : n;
        status = move_link_open(link);
        STEP(status, move_batch(link, filters, part));
        if (status != 0)
            move_link_lost(link);
        part = status == 0 ? part * 2 : part > 1 ? part / 2 : 1;
        n = drop_finished(filters, n);
        if (n < before)
            move_link_works(link);
    }
    for (size_t i = 0; i < n; i++)
        free(filters[i]);
    return status;
}

void *move_worker_thread(void *ctx)
{
    struct move *move = ctx;
    struct move_filter *filters[MOVE_BATCH];
    struct move_link link;
    size_t n;
    int status = 0;
    move_link_init(&link, move, true);
    while (status != -ECANCELED && (n = move_queue_take(move, filters)) > 0)
        status = move_all(&link, filters, n);
    move_link_close(&link);
    atomic_fetch_sub(&move->running, 1);
    return NULL;
}
