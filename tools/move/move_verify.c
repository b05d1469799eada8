/* --verify: compares both servers' BF.INFO or CF.INFO, their answers to the same random items and, if both know it
 * (Bloomery does), the number of bits set. The random items were never added, so the positive answers are false
 * positives, which depend on nearly every bit of the filter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "move_internal.h"

#define PROBES     1000 /* a filter of rate 0.01 takes 10 of them for present */
#define PROBE_SIZE 16   /* bytes */

struct move_probes {
    char bytes[PROBES][PROBE_SIZE];
};

struct move_probes *move_probes_create(void)
{
    struct move_probes *probes = malloc(sizeof(*probes));
    uint64_t state = (uint64_t)clock_ms() | 1;
    if (!probes)
        return NULL;
    (void)!getrandom(&state, sizeof(state), 0);
    for (size_t i = 0; i < PROBES; i++) {
        for (size_t at = 0; at < PROBE_SIZE; at++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            probes->bytes[i][at] = (char)(state >> 56);
        }
    }
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
    int64_t bits_set; /* -1: the server does not know this field */
    bool probed;
    char why[160]; /* it cannot be queried */
    uint8_t present[PROBES];
};

static void put_questions(const struct move *move, struct peer *peer, const struct move_filter *filter)
{
    struct slice words[2 + PROBES] = {slice_of(MOVE_COMMAND(filter, "MEXISTS")), move_name(filter)};
    for (size_t i = 0; i < PROBES; i++)
        words[2 + i] = (struct slice){move->probes->bytes[i], PROBE_SIZE};
    PEER_PUT(peer, slice_of(MOVE_COMMAND(filter, "INFO")), move_name(filter));
    if (!filter->cuckoo)
        PEER_PUT(peer, slice_of("BF.INFO"), move_name(filter), slice_of("BITSSET"));
    peer_put(peer, words, 2 + PROBES);
}

static int read_bits_set(struct move_link *link, struct peer *peer, struct answers *answers)
{
    struct resp_reply reply;
    int status = move_reply(link, peer, &reply);
    if (status == 0 && reply.count == 2 && reply.nodes[1].kind == RESP_REPLY_INTEGER)
        answers->bits_set = reply.nodes[1].number;
    return status;
}

static int read_answers(struct move_link *link, struct peer *peer, const struct move_filter *filter,
                        struct answers *answers)
{
    struct resp_reply reply;
    *answers = (struct answers){.bits_set = -1};
    int status = move_reply(link, peer, &reply);
    if (status != 0)
        return status;
    answers->found = move_read_info(&reply, filter->cuckoo, &answers->info);
    if (answers->found < 0) {
        struct slice text = move_is_error(&reply) ? resp_reply_text(&reply, 0) : (struct slice){"", 0};
        status = move_refused(link, peer, MOVE_COMMAND(filter, "INFO"), text);
        if (status != 0)
            return status;
    }
    if (!filter->cuckoo)
        status = read_bits_set(link, peer, answers);
    if (status == 0)
        status = move_reply(link, peer, &reply);
    if (status != 0)
        return status;
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
    else if (differ > 0)
        move_finish(move, filter, MOVE_DIFFERS, "source and target answer differently to %u of %d items", differ,
                    PROBES);
    else if (from->bits_set >= 0 && to->bits_set >= 0 && from->bits_set != to->bits_set)
        move_finish(move, filter, MOVE_DIFFERS, "%lld bits are set in the source, %lld in the target",
                    (long long)from->bits_set, (long long)to->bits_set);
    else
        move_finish(move, filter, filter->outcome, NULL);
}

int move_verify(struct move_link *link, struct move_filter **filters, size_t n)
{
    struct answers from, to;
    int status = 0;
    for (size_t i = 0; i < n; i++) {
        if (filters[i]->state == FILTER_COPIED) {
            put_questions(link->move, &link->from, filters[i]);
            put_questions(link->move, &link->to, filters[i]);
        }
    }
    for (size_t i = 0; i < n && status == 0; i++) {
        if (filters[i]->state != FILTER_COPIED)
            continue;
        status = read_answers(link, &link->from, filters[i], &from);
        if (status == 0)
            status = read_answers(link, &link->to, filters[i], &to);
        if (status == 0)
            compare(link->move, filters[i], &from, &to);
    }
    return status;
}
