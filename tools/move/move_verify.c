/* Whether a filter that the target has under the name is the source's: equal numbers prove nothing, since another
 * database may have the name, too. So the first piece of bits of both is compared, by BF.SCANDUMP, which gives all
 * kinds of servers the same bits.
 *
 * --verify: compares both servers' BF.INFO or CF.INFO, their answers to the same random items and, if both know it
 * (Bloomery does), the number of bits set. The random items were never added, so the positive answers are false
 * positives, which depend on nearly every bit of the filter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "move_internal.h"

#define PROBES     1000 /* a filter of rate 0.01 takes 10 of them for present */
#define PROBE_SIZE 16   /* bytes */

/* around the bits of a piece of Bloomery's form: they differ from dump to dump (docs/DUMP.md) */
#define FRAME_HEAD 32
#define FRAME_END  16

struct move_probes {
    char bytes[PROBES][PROBE_SIZE];
};

struct move_probes *move_probes_create(void)
{
    struct move_probes *probes = calloc(1, sizeof(*probes));
    for (size_t i = 0; probes && i < PROBES; i++)
        (void)!getrandom(probes->bytes[i], PROBE_SIZE, 0); /* so few bytes come whole */
    return probes;
}

void move_probes_destroy(struct move_probes *probes)
{
    free(probes);
}

/* A server's answers about a filter. */
struct answers {
    int found; /* as move_read_info() */
    struct move_info info;
    int64_t bits_set;  /* -1: the server does not know this field */
    bool probed, away; /* its bits are away: under the policy `maybe` all answers are 1 */
    char why[160];     /* it cannot be queried */
    uint8_t present[PROBES];
};

static void put_questions(const struct move *move, struct peer *peer, const struct move_filter *filter, bool dump)
{
    struct slice words[2 + PROBES] = {slice_of(MOVE_COMMAND(filter, "MEXISTS")), move_name(filter)};
    for (size_t i = 0; i < PROBES; i++)
        words[2 + i] = (struct slice){move->probes->bytes[i], PROBE_SIZE};
    if (dump)
        PEER_PUT(peer, slice_of(MOVE_COMMAND(filter, "SCANDUMP")), move_name(filter), slice_of("0"));
    PEER_PUT(peer, slice_of(MOVE_COMMAND(filter, "INFO")), move_name(filter));
    if (!filter->cuckoo)
        PEER_PUT(peer, slice_of("BF.INFO"), move_name(filter), slice_of("BITSSET"));
    peer_put(peer, words, 2 + PROBES);
}

static int read_bits_set(struct move_link *link, struct peer *peer, struct answers *answers)
{
    struct resp_reply reply;
    TRY(move_reply(link, peer, &reply));
    if (reply.count == 2 && reply.nodes[1].kind == RESP_REPLY_INTEGER)
        answers->bits_set = reply.nodes[1].number;
    answers->away = reply.count == 2 && reply.nodes[1].kind == RESP_REPLY_NULL;
    return 0;
}

static int read_answers(struct move_link *link, struct peer *peer, const struct move_filter *filter, bool dump,
                        struct answers *answers)
{
    struct resp_reply reply;
    *answers = (struct answers){.bits_set = -1};
    if (dump)
        TRY(move_reply(link, peer, &reply));
    TRY(move_reply(link, peer, &reply));
    answers->found = move_read_info(&reply, filter->cuckoo, &answers->info);
    if (answers->found < 0) {
        struct slice text = move_is_error(&reply) ? resp_reply_text(&reply, 0) : (struct slice){"", 0};
        TRY(move_refused(link, peer, MOVE_COMMAND(filter, "INFO"), text));
    }
    if (!filter->cuckoo)
        TRY(read_bits_set(link, peer, answers));
    TRY(move_reply(link, peer, &reply));
    if (move_is_error(&reply)) {
        struct slice text = resp_reply_text(&reply, 0);
        snprintf(answers->why, sizeof(answers->why), ": %.*s", (int)(text.len < 150 ? text.len : 150), text.ptr);
        return answers->found > 0 ? move_refused(link, peer, MOVE_COMMAND(filter, "MEXISTS"), text) : 0;
    }
    answers->probed = reply.count == 1 + PROBES;
    for (size_t i = 0; i < PROBES && answers->probed; i++)
        answers->present[i] = reply.nodes[1 + i].number == 1;
    return 0;
}

static void finish_there(struct move *move, struct move_filter *filter, bool differs)
{
    const struct move_options *options = move->options;
    if (differs && options->replace && !options->dry_run) {
        filter->differs = true;
        filter->state = FILTER_NEW; /* it is moved as if the target had none */
    } else if (differs && options->replace) {
        move_finish(move, filter, MOVE_MOVED, NULL);
    } else if (differs) {
        move_finish(move, filter, MOVE_TAKEN,
                    "the target has another filter of this name, with as many items; move it into another database of "
                    "the target, or --replace it");
    } else if (!options->verify || options->dry_run) {
        move_finish(move, filter, MOVE_THERE, NULL);
    }
}

static void compare(struct move *move, struct move_filter *filter, const struct answers *from, const struct answers *to)
{
    unsigned differ = 0;
    for (size_t i = 0; i < PROBES; i++)
        differ += from->present[i] != to->present[i];
    if (from->found == 0)
        move_finish(move, filter, MOVE_GONE, NULL);
    else if (from->found < 0 || to->found <= 0 || !from->probed || !to->probed)
        move_finish(move, filter, MOVE_DIFFERS, "it cannot be queried in the %s%s",
                    from->found < 0 || !from->probed ? "source" : "target",
                    from->found < 0 || !from->probed ? from->why : to->why);
    else if (!move_info_agrees(&from->info, &to->info))
        move_finish(move, filter, MOVE_DIFFERS,
                    "source and target differ: %s %lld and %lld, %lld and %lld items, %lld and %lld layers",
                    filter->cuckoo ? "buckets" : "capacity", (long long)from->info.capacity,
                    (long long)to->info.capacity, (long long)from->info.items, (long long)to->info.items,
                    (long long)from->info.layers, (long long)to->info.layers);
    else if (differ > 0 && filter->whole && filter->outcome == MOVE_THERE)
        finish_there(move, filter, true);
    else if (differ > 0)
        move_finish(move, filter, MOVE_DIFFERS, "source and target answer differently to %u of %d items", differ,
                    PROBES);
    else if (from->bits_set >= 0 && to->bits_set >= 0 && from->bits_set != to->bits_set)
        move_finish(move, filter, MOVE_DIFFERS, "%lld bits are set in the source, %lld in the target",
                    (long long)from->bits_set, (long long)to->bits_set);
    else
        move_finish(move, filter, filter->outcome, NULL);
}

/* ---- filters that the target has ---- */

/* valkey-bloom has no pieces: the answers decide there. */
static bool has_pieces(const struct move_filter *filter)
{
    return filter->state == FILTER_COPIED && filter->outcome == MOVE_THERE && !filter->whole;
}

/* Asks both servers for the piece of each of these filters with the iterator. */
static void put_pieces(struct move_link *link, struct move_filter **filters, size_t n, int64_t (*iterators)[2])
{
    char number[PEER_NUMBER_SIZE];
    for (size_t i = 0; i < n; i++)
        for (int side = 0; side < 2 && has_pieces(filters[i]) && iterators[i][0] >= 0 && iterators[i][1] >= 0; side++)
            PEER_PUT(side == 0 ? &link->from : &link->to, slice_of(MOVE_COMMAND(filters[i], "SCANDUMP")),
                     move_name(filters[i]), peer_number(iterators[i][side], number));
}

/* The bits; false: there are none, or the server refuses. */
static bool piece_of(const struct resp_reply *reply, int64_t *next_out, struct slice *bits_out)
{
    bool is_piece =
        reply->count == 3 && reply->nodes[1].kind == RESP_REPLY_INTEGER && reply->nodes[2].kind == RESP_REPLY_TEXT;
    *next_out = is_piece && reply->nodes[1].number > 0 ? reply->nodes[1].number : -1;
    if (!is_piece)
        return false;
    struct slice bits = resp_reply_text(reply, 2);
    if (bits.len > FRAME_HEAD + FRAME_END && memcmp(bits.ptr, "BLMY", 4) == 0)
        bits = (struct slice){bits.ptr + FRAME_HEAD, bits.len - FRAME_HEAD - FRAME_END};
    *bits_out = bits;
    return *next_out > 0;
}

/* The first piece is the header, with a random number, and the second one has bits. Pieces of two kinds of servers
 * may differ in length. What cannot be compared counts as equal. */
static int compare_there(struct move_link *link, struct move_filter **filters, size_t n)
{
    int64_t iterators[MOVE_BATCH][2] = {{0}};
    struct resp_reply reply[2];
    struct slice bits[2];
    for (int round = 0; round < 2; round++) {
        put_pieces(link, filters, n, iterators);
        for (size_t i = 0; i < n; i++) {
            if (!has_pieces(filters[i]))
                continue;
            bool asked = iterators[i][0] >= 0 && iterators[i][1] >= 0, both = asked;
            for (int side = 0; side < 2 && asked; side++) {
                TRY(move_reply(link, side == 0 ? &link->from : &link->to, &reply[side]));
                both &= piece_of(&reply[side], &iterators[i][side], &bits[side]);
            }
            size_t common = !both ? 0 : bits[0].len < bits[1].len ? bits[0].len : bits[1].len;
            if (round == 1)
                finish_there(link->move, filters[i], common > 0 && memcmp(bits[0].ptr, bits[1].ptr, common) != 0);
        }
    }
    return 0;
}

/* A dump waits for bits that are away. Other links may evict them again before the questions come: then once more. */
static int verify(struct move_link *link, struct move_filter **filters, size_t n, unsigned dumps)
{
    struct answers from, to;
    struct move_filter *away[MOVE_BATCH];
    size_t n_away = 0;
    for (size_t i = 0; i < n; i++) {
        if (filters[i]->state == FILTER_COPIED) {
            put_questions(link->move, &link->from, filters[i], dumps > 0);
            put_questions(link->move, &link->to, filters[i], dumps > 0);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (filters[i]->state != FILTER_COPIED)
            continue;
        TRY(read_answers(link, &link->from, filters[i], dumps > 0, &from));
        TRY(read_answers(link, &link->to, filters[i], dumps > 0, &to));
        if (dumps < 10 && (from.away || to.away))
            away[n_away++] = filters[i];
        else
            compare(link->move, filters[i], &from, &to);
    }
    return n_away == 0 ? 0 : verify(link, away, n_away, dumps + 1);
}

int move_verify(struct move_link *link, struct move_filter **filters, size_t n)
{
    TRY(compare_there(link, filters, n));
    return verify(link, filters, n, 0);
}
