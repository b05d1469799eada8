/* Large filters: BF.SCANDUMP of the source, BF.LOADCHUNK in the target under a unique temporary name, then a rename (of
 * cuckoo filters CF.SCANDUMP and CF.LOADCHUNK). So the filter appears atomically even in servers that show partly
 * loaded filters (RedisBloom), and replaces another one atomically. While the target takes a chunk, the source prepares
 * the next.
 *
 * After an interrupted run, RedisBloom and Bloomery's module keep a partial filter under the temporary name. It expires
 * after a day: its time to live is sent together with the first chunk. Bloomery's daemon drops an idle load after a
 * minute; there the temporary name exists only after the last chunk. So the last chunk, the time to live and the rename
 * are sent together, and run even if this process dies. The next attempt deletes the remains of a lost connection. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "cuckoo_dump.h"
#include "move_internal.h"
#include "lock.h"

#define ATTEMPTS     3
#define TEMP_EXPIRES "86400000" /* ms: longer than any filter takes */

struct large {
    struct move_link *link;
    struct move_filter *filter;
    char temp_text[MOVE_TEMP_SIZE];
    struct slice temp;
    bool has_expiry; /* the temporary name exists from the first chunk on, and expires */
    struct buf held; /* the newest chunk, which may be the last one */
    int64_t held_iterator;
    unsigned chunks;        /* that the target has taken */
    struct move_info begun; /* of a cuckoo filter: as it was when its first chunk was read */
};

/* The result of an attempt, apart from errors. */
enum attempt {
    ATTEMPT_DONE,  /* the filter is finished or COPIED */
    ATTEMPT_AGAIN, /* it changed while it was read */
};

bool move_is_temporary(struct slice name)
{
    size_t len = strlen(MOVE_TEMP_PREFIX), digits = 0;
    if (name.len != len + MOVE_TEMP_DIGITS || memcmp(name.ptr, MOVE_TEMP_PREFIX, len) != 0)
        return false;
    while (digits < MOVE_TEMP_DIGITS && memchr("0123456789abcdef", name.ptr[len + digits], 16))
        digits++;
    return digits == MOVE_TEMP_DIGITS;
}

static struct slice temporary(const struct move_filter *filter, char text[MOVE_TEMP_SIZE])
{
    snprintf(text, MOVE_TEMP_SIZE, MOVE_TEMP_PREFIX "%016" PRIx64 "%016" PRIx64, filter->temporary[0],
             filter->temporary[1]);
    return slice_of(text);
}

/* The reply to a request that a server answers with a number; an error reply ends the run. */
static int take_number(struct move_link *link, struct peer *peer, const char *command, int64_t *number_out)
{
    struct resp_reply reply;
    TRY(move_reply(link, peer, &reply));
    if (!move_is_error(&reply)) {
        *number_out = reply.nodes[0].number;
        return 0;
    }
    struct slice text = resp_reply_text(&reply, 0);
    int status = move_refused(link, peer, command, text);
    return status ? status : move_fatal(link->move, -EREMOTEIO, "%s: %.*s", command, (int)text.len, text.ptr);
}

/* Drops the partial filter: a chunk that does not fit ends a load in Bloomery. */
static int give_up(struct large *large)
{
    struct move_link *link = large->link;
    struct resp_reply reply;
    PEER_PUT(&link->to, slice_of(MOVE_COMMAND(large->filter, "LOADCHUNK")), large->temp, slice_of("0"), slice_of(""));
    PEER_PUT(&link->to, slice_of("DEL"), large->temp);
    int status = move_reply(link, &link->to, &reply);
    return status == 0 ? move_reply(link, &link->to, &reply) : status;
}

/* Chooses a unique name, a new one for each attempt: chunks of an old connection may still arrive. */
static int make_temp(struct large *large)
{
    struct move_filter *filter = large->filter;
    int status = 0;
    if (filter->temporary[0] || filter->temporary[1]) {
        large->temp = temporary(filter, large->temp_text);
        status = give_up(large);
    }
    filter->temporary[0] = (uint64_t)clock_ms();
    filter->temporary[1] = (uint64_t)(uintptr_t)filter;
    (void)!getrandom(filter->temporary, sizeof(filter->temporary), 0);
    large->temp = temporary(filter, large->temp_text);
    return status;
}

/* Asks the source for BF.INFO. 1; 0 when the filter is gone; or negative. */
static int ask_info(struct large *large, struct move_info *info_out)
{
    struct move_link *link = large->link;
    struct resp_reply reply;
    PEER_PUT(&link->from, slice_of(MOVE_COMMAND(large->filter, "INFO")), move_name(large->filter));
    TRY(move_reply(link, &link->from, &reply));
    int found = move_read_info(&reply, large->filter->cuckoo, info_out);
    if (found >= 0)
        return found;
    struct slice text = move_is_error(&reply) ? resp_reply_text(&reply, 0) : (struct slice){"", 0};
    int status = move_refused(link, &link->from, MOVE_COMMAND(large->filter, "INFO"), text);
    return status;
}

/* Handles a refused chunk. If RedisBloom's filter has grown meanwhile, its chunks do not fit: it is read again. */
static int refused(struct large *large, bool by_source, struct slice text, enum attempt *attempt_out)
{
    struct move_link *link = large->link;
    struct move_filter *filter = large->filter;
    struct move_info now;
    char why[256];
    snprintf(why, sizeof(why), "%.*s", (int)text.len, text.ptr);
    bool full = move_refusal_of(text) == REFUSAL_FULL; /* for this one; smaller ones may still fit */
    bool no_chunks = !by_source && !filter->cuckoo && move_text_has(text, "unknown command");
    int status =
        full || no_chunks
            ? 0
            : move_refused(link, by_source ? &link->from : &link->to,
                           by_source ? MOVE_COMMAND(filter, "SCANDUMP") : MOVE_COMMAND(filter, "LOADCHUNK"), text);
    if (status == 0 && !by_source)
        status = give_up(large);
    if (status != 0)
        return status;
    int found = ask_info(large, &now);
    if (found < 0)
        return found;
    if (found == 0)
        move_finish(link->move, filter, MOVE_GONE, NULL);
    else if (!full && (now.layers != filter->info.layers || now.capacity != filter->info.capacity))
        *attempt_out = ATTEMPT_AGAIN;
    else if (no_chunks)
        move_finish(link->move, filter, MOVE_REFUSED, "the target takes filters of LAYOUT valkey only: %s", why);
    else
        move_finish(link->move, filter, by_source ? MOVE_UNREAD : MOVE_REFUSED, "%s", why);
    if (found > 0)
        filter->info = now;
    return 0;
}

/* ---- chunks ---- */

static void put_scandump(struct large *large, int64_t iterator)
{
    char number[PEER_NUMBER_SIZE];
    PEER_PUT(&large->link->from, slice_of(MOVE_COMMAND(large->filter, "SCANDUMP")), move_name(large->filter),
             peer_number(iterator, number));
}

/* The first one with the time to live of the name. */
static void put_held(struct large *large)
{
    char number[PEER_NUMBER_SIZE];
    struct slice data = {buf_head(&large->held), buf_len(&large->held)};
    PEER_PUT(&large->link->to, slice_of(MOVE_COMMAND(large->filter, "LOADCHUNK")), large->temp,
             peer_number(large->held_iterator, number), data);
    if (large->chunks == 0)
        PEER_PUT(&large->link->to, slice_of("PEXPIRE"), large->temp, slice_of(TEMP_EXPIRES));
    large->filter->on_the_way += data.len;
    atomic_fetch_add(&large->link->move->bytes_on_the_way, data.len);
    buf_truncate(&large->held, 0);
}

/* Reads the reply to PEXPIRE after the first chunk: whether the temporary name exists already. */
static int take_expiry(struct large *large)
{
    int64_t found = 0;
    int status = take_number(large->link, &large->link->to, "PEXPIRE", &found);
    large->has_expiry = status == 0 && found == 1;
    return status;
}

/* The target's reply to a chunk. *stopped: it has refused, and the refusal has been handled, after the replies that are
 * still due from the source and the target. */
static int take_loaded(struct large *large, unsigned due_from, unsigned due_to, bool *stopped,
                       enum attempt *attempt_out)
{
    struct move_link *link = large->link;
    struct errbuf why = {""};
    struct resp_reply reply;
    int status = move_reply(link, &link->to, &reply);
    if (status != 0)
        return status;
    if (!move_is_error(&reply))
        return large->chunks++ == 0 ? take_expiry(large) : 0;
    *stopped = true;
    due_to += large->chunks == 0;
    struct slice text = resp_reply_text(&reply, 0);
    errbuf_set(&why, "%.*s", (int)(text.len < sizeof(why.text) ? text.len : sizeof(why.text)), text.ptr);
    for (; due_from > 0 && status == 0; due_from--)
        status = move_reply(link, &link->from, &reply);
    for (; due_to > 0 && status == 0; due_to--)
        status = move_reply(link, &link->to, &reply);
    return status == 0 ? refused(large, false, slice_of(why.text), attempt_out) : status;
}

/* Holds a chunk back and asks for the next one; the target gets the previous chunk. */
static int pass_chunk(struct large *large, const struct resp_reply *chunk, bool *stopped, enum attempt *attempt_out)
{
    struct move_link *link = large->link;
    bool sends = buf_len(&large->held) > 0;
    struct slice data = resp_reply_text(chunk, 2);
    if (sends)
        put_held(large);
    buf_append(&large->held, data.ptr, data.len);
    large->held_iterator = chunk->nodes[1].number;
    if (buf_failed(&large->held))
        return move_fatal(link->move, -ENOMEM, "out of memory");
    put_scandump(large, large->held_iterator);
    int status = peer_flush(&link->from, &link->why); /* `chunk` is not valid any more */
    return status == 0 && sends ? take_loaded(large, 1, 0, stopped, attempt_out) : status;
}

/* The first chunk of a cuckoo filter has its numbers. False: it has not. */
static bool note_header(struct large *large, struct slice data)
{
    struct cuckoo_head head;
    if (!large->filter->cuckoo || large->begun.layers)
        return true;
    if (!cuckoo_head_get((const unsigned char *)data.ptr, data.len, &head))
        return false;
    large->begun = (struct move_info){
        .capacity = (int64_t)head.buckets,
        .layers = (int64_t)head.nlayers,
        .items = (int64_t)head.items,
        .expansion = (int64_t)head.expansion,
        .bucket_size = (int64_t)head.bucket_size,
        .iterations = (int64_t)head.iterations,
        .deletes = (int64_t)head.deletes,
    };
    return large->begun.layers != 0;
}

/* RedisBloom gives no chunks of an empty cuckoo filter, which is nothing but its header. */
static void hold_header(struct large *large, const struct move_info *info)
{
    const struct cuckoo_head head = {
        .items = 0,
        .buckets = (uint64_t)info->capacity,
        .deletes = (uint64_t)info->deletes,
        .nlayers = (uint64_t)info->layers,
        .bucket_size = (uint64_t)info->bucket_size,
        .iterations = (uint64_t)info->iterations,
        .expansion = (uint64_t)info->expansion,
    };
    unsigned char bytes[CUCKOO_HEADER_MAX];
    buf_append(&large->held, bytes, cuckoo_head_put(&head, bytes));
    large->held_iterator = 1;
}

/* A cuckoo filter has no further chunk. If the filter has changed meanwhile, a fingerprint may have moved from an
 * unread part to a part already read. Then the chunks are not a valid filter, and are read again. */
static int end_cuckoo(struct large *large, bool *stopped, enum attempt *attempt_out)
{
    struct move_filter *filter = large->filter;
    struct move_info now;
    int found = ask_info(large, &now);
    if (found < 0)
        return found;
    if (found > 0 && !large->begun.layers && now.items == 0) {
        hold_header(large, &now);
        filter->info = now;
        return 0;
    }
    if (found > 0 && move_info_agrees(&now, &large->begun)) {
        filter->info = now;
        return 0;
    }
    *stopped = true;
    if (found > 0) {
        filter->info = now;
        *attempt_out = ATTEMPT_AGAIN;
    } else {
        move_finish(large->link->move, filter, MOVE_GONE, NULL);
    }
    return large->chunks > 0 ? give_up(large) : 0;
}

/* All chunks but the last one, which is held then. */
static int copy_chunks(struct large *large, bool *stopped, enum attempt *attempt_out)
{
    struct move_link *link = large->link;
    put_scandump(large, 0);
    for (;;) {
        struct resp_reply chunk;
        int status = move_reply(link, &link->from, &chunk);
        if (status != 0)
            return status;
        if (move_is_error(&chunk)) {
            *stopped = true;
            status = refused(large, true, resp_reply_text(&chunk, 0), attempt_out);
            return status == 0 && large->chunks > 0 ? give_up(large) : status;
        }
        bool ends = chunk.count == 3 && chunk.nodes[1].kind == RESP_REPLY_INTEGER && chunk.nodes[1].number == 0;
        if (ends)
            return large->filter->cuckoo ? end_cuckoo(large, stopped, attempt_out) : 0;
        if (chunk.count != 3 || chunk.nodes[1].kind != RESP_REPLY_INTEGER || chunk.nodes[2].kind != RESP_REPLY_TEXT ||
            !note_header(large, resp_reply_text(&chunk, 2)))
            return move_fatal(link->move, -EPROTO, "unexpected reply of the source to %s",
                              MOVE_COMMAND(large->filter, "SCANDUMP"));
        status = pass_chunk(large, &chunk, stopped, attempt_out);
        if (status != 0 || *stopped)
            return status;
    }
}

/* ---- the end ---- */

/* The name is given, or not. */
static int take_renamed(struct large *large, const struct resp_reply *reply, bool *stopped)
{
    struct move_link *link = large->link;
    struct move_filter *filter = large->filter;
    if (!move_is_error(reply) && (reply->nodes[0].kind == RESP_REPLY_STATUS || reply->nodes[0].number != 0))
        return 0;
    *stopped = true;
    if (!move_is_error(reply)) { /* taken, perhaps by late requests of an earlier run */
        int status = give_up(large);
        filter->state = FILTER_NEW;
        return status == 0 ? move_look(link, &filter, 1) : status;
    }
    struct slice text = resp_reply_text(reply, 0);
    int status = move_refused(link, &link->to, "RENAME", text);
    if (status == 0)
        move_finish(link->move, filter, MOVE_REFUSED, "%.*s", (int)text.len, text.ptr);
    return status == 0 ? give_up(large) : status;
}

static void put_name(struct large *large, int64_t ttl)
{
    struct move_link *link = large->link;
    char number[PEER_NUMBER_SIZE];
    if (ttl >= 0)
        PEER_PUT(&link->to, slice_of("PEXPIRE"), large->temp, peer_number(ttl > 0 ? ttl : 1, number));
    else
        PEER_PUT(&link->to, slice_of("PERSIST"), large->temp);
    PEER_PUT(&link->to, link->move->options->replace ? slice_of("RENAME") : slice_of("RENAMENX"), large->temp,
             move_name(large->filter));
}

/* The last chunk, the time to live and the name. They go together where the temporary name does not exist before the
 * last chunk is loaded, so half a filter cannot be renamed. */
static int publish(struct large *large, bool *stopped, enum attempt *attempt_out)
{
    struct move_link *link = large->link;
    struct move_filter *filter = large->filter;
    bool together = large->chunks > 0 && !large->has_expiry;
    struct resp_reply reply;
    int64_t ttl = 0;
    PEER_PUT(&link->from, slice_of("PTTL"), move_name(filter));
    int status = take_number(link, &link->from, "PTTL", &ttl);
    if (status == 0 && ttl == -2) {
        *stopped = true;
        move_finish(link->move, filter, MOVE_GONE, NULL);
        return give_up(large);
    }
    if (status != 0)
        return status;
    put_held(large);
    filter->state = FILTER_SENT;
    if (together)
        put_name(large, ttl);
    status = take_loaded(large, 0, together ? 2 : 0, stopped, attempt_out);
    if (status != 0 || *stopped)
        return status;
    if (!together)
        put_name(large, ttl);
    status = move_reply(link, &link->to, &reply); /* of the time to live */
    STEP(status, move_reply(link, &link->to, &reply));
    return status == 0 ? take_renamed(large, &reply, stopped) : status;
}

static int attempt(struct large *large, enum attempt *attempt_out)
{
    struct move_filter *filter = large->filter;
    struct move_info now;
    bool stopped = false;
    *attempt_out = ATTEMPT_DONE;
    large->chunks = 0;
    large->begun = (struct move_info){.layers = 0};
    buf_truncate(&large->held, 0);
    move_forget_bytes(large->link->move, filter); /* of an attempt before */
    int status = make_temp(large);
    STEP(status, copy_chunks(large, &stopped, attempt_out));
    if (status == 0 && !stopped)
        status = publish(large, &stopped, attempt_out);
    if (status != 0 || stopped)
        return status;
    int found = ask_info(large, &now);
    if (found < 0)
        return found;
    if (found > 0 && (now.items != filter->info.items || now.deletes != filter->info.deletes)) {
        lock_take(&large->link->move->lock);
        large->link->move->totals.summary.changed++;
        lock_give(&large->link->move->lock);
    }
    move_copied(large->link->move, filter, MOVE_MOVED);
    return 0;
}

int move_large(struct move_link *link, struct move_filter *filter)
{
    struct large large = {.link = link, .filter = filter};
    buf_init(&large.held, (size_t)RESP_REPLY_MAX_TEXT);
    enum attempt outcome = ATTEMPT_AGAIN;
    int status = 0;
    for (int i = 0; i < ATTEMPTS && status == 0 && outcome == ATTEMPT_AGAIN; i++)
        status = attempt(&large, &outcome);
    if (status == 0 && outcome == ATTEMPT_AGAIN)
        move_finish(link->move, filter, MOVE_CHANGING, "it %s each of the %d times that it was read",
                    filter->cuckoo ? "changed" : "grew", ATTEMPTS);
    buf_deinit(&large.held);
    return status;
}
