/* A large filter: BF.SCANDUMP of the source, BF.LOADCHUNK in the target under a name that nobody else has, then a
 * rename. So the filter appears at one moment in servers that show half of a loaded filter, too (RedisBloom), and
 * replaces another at one moment. While the target takes a chunk the source prepares the next.
 *
 * What an interrupted run leaves: RedisBloom has a half filter under the temporary name, which expires after a day;
 * Bloomery forgets a load that does not go on after a minute. In Bloomery the temporary name exists from the last chunk
 * on only. So the last chunk, the time to live and the rename are sent together: they reach the server, and are run,
 * whatever becomes of this process. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "move_internal.h"

#define ATTEMPTS      3
#define TEMP_EXPIRES  "86400000" /* ms: longer than any filter takes */
#define TEMP_NAME_MAX 64

struct large {
    struct move_link *link;
    struct move_filter *filter;
    char temp_text[TEMP_NAME_MAX];
    struct slice temp;
    bool has_expiry; /* the temporary name exists from the first chunk on, and expires */
    struct buf held; /* the newest chunk, which may be the last one */
    int64_t held_iterator;
    unsigned chunks; /* that the target has taken */
};

/* What came of an attempt, beside errors. */
enum attempt {
    ATTEMPT_DONE,  /* the filter is finished or COPIED */
    ATTEMPT_AGAIN, /* it changed while it was read */
};

static void make_temp_name(struct large *large)
{
    uint64_t random[2] = {(uint64_t)tool_clock_ms(), (uint64_t)(uintptr_t)large};
    (void)!getrandom(random, sizeof(random), 0);
    snprintf(large->temp_text, sizeof(large->temp_text), MOVE_TEMP_PREFIX "%016" PRIx64 "%016" PRIx64, random[0],
             random[1]);
    large->temp = PEER_WORD(large->temp_text);
}

static void note_bytes(struct large *large, size_t bytes)
{
    large->filter->on_the_way += bytes;
    atomic_fetch_add(&large->link->move->bytes_on_the_way, bytes);
}

/* One request to a server that answers a number; an error reply is one, too. */
static int ask_number(struct move_link *link, struct peer *peer, const struct slice *words, size_t n,
                      int64_t *number_out)
{
    struct resp_reply reply;
    peer_put(peer, words, n);
    int status = move_reply(link, peer, &reply);
    if (status != 0)
        return status;
    if (move_is_error(&reply)) {
        char command[32];
        snprintf(command, sizeof(command), "%.*s", (int)words[0].len, words[0].ptr);
        status = move_refused(link, peer, command, resp_reply_text(&reply, 0));
        if (status == 0) {
            struct slice text = resp_reply_text(&reply, 0);
            return move_fatal(link->move, -EREMOTEIO, "%s: %.*s", command, (int)text.len, text.ptr);
        }
        return status;
    }
    *number_out = reply.nodes[0].number;
    return 0;
}

#define ASK_NUMBER(link, peer, number_out, ...)                     \
    ask_number((link), (peer), (const struct slice[]){__VA_ARGS__}, \
               sizeof((const struct slice[]){__VA_ARGS__}) / sizeof(struct slice), (number_out))

/* Drops what has come so far: a chunk that does not fit ends a load in Bloomery. */
static int give_up(struct large *large)
{
    struct move_link *link = large->link;
    struct resp_reply reply;
    PEER_PUT(&link->to, PEER_WORD("BF.LOADCHUNK"), large->temp, PEER_WORD("0"), PEER_WORD(""));
    PEER_PUT(&link->to, PEER_WORD("DEL"), large->temp);
    int status = move_reply(link, &link->to, &reply);
    return status == 0 ? move_reply(link, &link->to, &reply) : status;
}

/* What the source says of it now. 1, 0 when it is gone, or negative. */
static int ask_info(struct large *large, struct move_info *info_out)
{
    struct move_link *link = large->link;
    struct resp_reply reply;
    PEER_PUT(&link->from, PEER_WORD("BF.INFO"), move_name(large->filter));
    int status = move_reply(link, &link->from, &reply);
    if (status != 0)
        return status;
    int found = move_read_info(&reply, info_out);
    if (found >= 0)
        return found;
    struct slice text = move_is_error(&reply) ? resp_reply_text(&reply, 0) : (struct slice){"", 0};
    status = move_refused(link, &link->from, "BF.INFO", text);
    return status;
}

/* The source or the target refuses a chunk. A filter of RedisBloom that has grown meanwhile has other chunks than its
 * header says: it is read again. */
static int refused(struct large *large, bool by_source, struct slice text, enum attempt *attempt_out)
{
    struct move_link *link = large->link;
    struct move_filter *filter = large->filter;
    struct move_info now;
    char why[256];
    snprintf(why, sizeof(why), "%.*s", (int)text.len, text.ptr);
    bool full = move_refusal_of(text) == REFUSAL_FULL; /* for this one; smaller ones may still fit */
    int status = full ? 0
                      : move_refused(link, by_source ? &link->from : &link->to,
                                     by_source ? "BF.SCANDUMP" : "BF.LOADCHUNK", text);
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
    PEER_PUT(&large->link->from, PEER_WORD("BF.SCANDUMP"), move_name(large->filter), peer_number(iterator, number));
}

/* Lets the temporary name expire, where it exists already. */
static int set_expiry(struct large *large)
{
    int64_t found;
    int status =
        ASK_NUMBER(large->link, &large->link->to, &found, PEER_WORD("PEXPIRE"), large->temp, PEER_WORD(TEMP_EXPIRES));
    large->has_expiry = status == 0 && found == 1;
    return status;
}

static void put_held(struct large *large)
{
    char number[PEER_NUMBER_SIZE];
    struct slice data = {buf_head(&large->held), buf_len(&large->held)};
    PEER_PUT(&large->link->to, PEER_WORD("BF.LOADCHUNK"), large->temp, peer_number(large->held_iterator, number), data);
    note_bytes(large, data.len);
    buf_truncate(&large->held, 0);
}

/* The target's answer to a chunk. *stopped: it has refused, and what follows from that is done, after the replies that
 * are still due from the source and the target. */
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
        return large->chunks++ == 0 ? set_expiry(large) : 0;
    *stopped = true;
    struct slice text = resp_reply_text(&reply, 0);
    errbuf_set(&why, "%.*s", (int)(text.len < sizeof(why.text) ? text.len : sizeof(why.text)), text.ptr);
    for (; due_from > 0 && status == 0; due_from--)
        status = move_reply(link, &link->from, &reply);
    for (; due_to > 0 && status == 0; due_to--)
        status = move_reply(link, &link->to, &reply);
    return status == 0 ? refused(large, false, PEER_WORD(why.text), attempt_out) : status;
}

/* Holds a chunk of the source back and asks for the next one; the target gets the chunk before. */
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
        if (chunk.count != 3 || chunk.nodes[1].kind != RESP_REPLY_INTEGER || chunk.nodes[2].kind != RESP_REPLY_TEXT)
            return move_fatal(link->move, -EPROTO, "the source's reply to BF.SCANDUMP is not understood");
        if (chunk.nodes[1].number == 0)
            return 0;
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
    if (!move_is_error(reply)) { /* taken meanwhile, perhaps by the last words of a run before this one */
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
        PEER_PUT(&link->to, PEER_WORD("PEXPIRE"), large->temp, peer_number(ttl > 0 ? ttl : 1, number));
    else
        PEER_PUT(&link->to, PEER_WORD("PERSIST"), large->temp);
    PEER_PUT(&link->to, link->move->options->replace ? PEER_WORD("RENAME") : PEER_WORD("RENAMENX"), large->temp,
             move_name(large->filter));
}

/* The last chunk, the time to live and the name: in one piece where the temporary name does not exist before the last
 * chunk is loaded, so that a rename of half a filter is impossible. */
static int publish(struct large *large, bool *stopped, enum attempt *attempt_out)
{
    struct move_link *link = large->link;
    struct move_filter *filter = large->filter;
    bool together = large->chunks > 0 && !large->has_expiry;
    struct resp_reply reply;
    int64_t ttl;
    int status = ASK_NUMBER(link, &link->from, &ttl, PEER_WORD("PTTL"), move_name(filter));
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
    if (status == 0)
        status = move_reply(link, &link->to, &reply);
    return status == 0 ? take_renamed(large, &reply, stopped) : status;
}

static int attempt(struct large *large, enum attempt *attempt_out)
{
    struct move_filter *filter = large->filter;
    struct move_info now;
    bool stopped = false;
    *attempt_out = ATTEMPT_DONE;
    make_temp_name(large);
    large->chunks = 0;
    buf_truncate(&large->held, 0);
    move_forget_bytes(large->link->move, filter); /* of an attempt before */
    int status = copy_chunks(large, &stopped, attempt_out);
    if (status == 0 && !stopped)
        status = publish(large, &stopped, attempt_out);
    if (status != 0 || stopped)
        return status;
    int found = ask_info(large, &now);
    if (found < 0)
        return found;
    if (found > 0 && now.items != filter->info.items) {
        struct move_totals *totals = &large->link->move->totals;
        pthread_mutex_lock(&totals->lock);
        totals->summary.changed++;
        pthread_mutex_unlock(&totals->lock);
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
        move_finish(link->move, filter, MOVE_CHANGING, "it grew each of the %d times that it was read", ATTEMPTS);
    buf_deinit(&large.held);
    return status;
}
