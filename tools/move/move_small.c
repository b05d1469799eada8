/* Small filters: PTTL and DUMP of the source, RESTORE in the target, for a batch at a time. A dump is taken at one
 * moment and appears at one moment. */
#include <string.h>

#include "move_internal.h"

static bool is_small(const struct move_filter *filter)
{
    int64_t most = filter->cuckoo ? MOVE_LARGE_CUCKOO : MOVE_LARGE_BYTES;
    return filter->state == FILTER_WANTED && !filter->chunks && filter->info.size <= most;
}

/* Chunks may work if DUMP or RESTORE are not allowed, or if the filter has become too large for one piece. They may
 * also work if the target does not support the form of the dump: the module without take-over, or an engine older than
 * the source. */
static bool may_go_in_chunks(struct slice text)
{
    return move_refusal_of(text) == REFUSAL_COMMAND || move_text_has(text, "F.SCANDUMP") ||
           move_text_has(text, "F.LOADCHUNK") || move_text_has(text, "Bad data format") ||
           move_text_has(text, "DUMP payload version");
}

/* The refusal of DUMP or RESTORE. */
static int refused(struct move_link *link, const struct peer *peer, struct move_filter *filter, struct slice text)
{
    bool is_from = peer == &link->from;
    if (may_go_in_chunks(text)) {
        filter->chunks = true;
        filter->state = FILTER_WANTED;
        return 0;
    }
    int status = move_refused(link, peer, is_from ? "DUMP" : "RESTORE", text);
    if (status != 0)
        return status;
    if (move_text_has(text, "BUSYKEY")) /* perhaps by late requests of an earlier run */
        filter->state = FILTER_NEW;
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

int move_small(struct move_link *link, struct move_filter **filters, size_t n)
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
    for (size_t i = 0; i < nasked && status == 0; i++) {
        if (requested[i]->state == FILTER_SENT)
            status = take_restored(link, requested[i]);
    }
    return status == 0 ? move_look(link, filters, n) : status; /* at filters whose names have been taken */
}
