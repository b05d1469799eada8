/* The engine runs one command at a time. So the module computes a batch first, then replies with its number of answers,
 * and replicates the added items. */
#include "adds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bf_out.h"
#include "bloom_window.h"
#include "effects.h"
#include "memory.h"

_Static_assert(BLOOM_BATCH == 32, "a batch is a word of answers");

#define STACK_WORDS 16 /* answers that need no memory of their own */

/* A layer that was created, or taken by a part of a window, while a batch was added. */
struct growth {
    size_t before; /* number of the command's items added before it */
    unsigned layer;
    struct bloom_shape shape;
    struct bloom_turn turn; /* number 0: not of a window */
};

struct adds {
    struct call *call;
    size_t first, n;      /* the items are the words from `first` on */
    uint32_t *answers;    /* bit i: item i has been added */
    uint32_t *replicated; /* bit i: item i must be replicated; in a window these are all items that have been placed */
    uint64_t added, ordinal;
    struct growth *growths;
    size_t ngrowths, room;
    bool obeys;      /* of a window: the items come from a primary, a migration or a log */
    size_t answered; /* items that have an answer; below n one was refused */
    enum bloom_add refused;
    struct errbuf err;
};

static void note_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    struct adds *adds = ctx;
    (void)id, (void)hash, (void)layer;
    adds->added++;
    adds->ordinal = ordinal;
}

/* Room for the notes of this many layers. */
static bool reserve_growths(struct adds *adds, size_t n, struct errbuf *err)
{
    if (adds->room - adds->ngrowths >= n)
        return true;
    size_t room = adds->room * 2 + 4;
    struct growth *larger = realloc(adds->growths, room * sizeof(*larger));
    if (!larger)
        return errbuf_fail(err, false, "out of memory");
    adds->growths = larger;
    adds->room = room;
    return true;
}

/* Limits do not apply to commands of a primary or a log. */
static int note_layer(struct adds *adds, const struct growth *growth, struct errbuf *err)
{
    uint64_t bytes = growth->shape.nwords * 8, before = bloom_filter_charged(value_filter(adds->call->value));
    bool fits = call_must_obey(adds->call) || memory_allowed(before + bytes, bytes, err);
    if (!fits || !reserve_growths(adds, 1, err))
        return -ENOMEM;
    adds->growths[adds->ngrowths++] = *growth;
    return 0;
}

static int note_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    struct adds *adds = ctx;
    (void)id;
    return note_layer(adds, &(struct growth){.before = adds->added, .layer = layer, .shape = *shape}, err);
}

/* An existing layer has been emptied for the part, so it is late to refuse that. add_to_window() has made room for a
 * turn and a layer of the new part; more than one turn occurs if the add takes longer than a part. */
static int note_turn(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape,
                     const struct bloom_turn *turn, struct errbuf *err)
{
    struct adds *adds = ctx;
    const struct growth growth = {adds->added, layer, *shape, *turn};
    (void)id;
    if (layer >= bloom_filter_nlayers(value_filter(adds->call->value)))
        return note_layer(adds, &growth, err);
    if (!reserve_growths(adds, 1, err))
        return -ENOMEM;
    adds->growths[adds->ngrowths++] = growth;
    return 0;
}

static const struct bloom_journal_ops journal_ops = {note_add, note_grow, note_turn};

void start_batch(struct bloom_batch *batch, const struct call *call, size_t first, size_t n)
{
    struct bloom_item items[BLOOM_BATCH];
    for (size_t i = 0; i < n; i++) {
        struct slice item = call_arg(call, first + i);
        items[i] = (struct bloom_item){item.ptr, item.len};
    }
    const struct bloom_filter *filter = value_filter(call->value);
    bloom_batch_start(batch, filter, items, n);
    bloom_batch_fetch(batch, filter); /* since the last command the engine has used the second-level cache alone */
}

/* Adds an item to a window. An add makes at most one turn and one layer of the new part. Replicated adds go into the
 * newest part without a test. False when the item was refused. */
static bool add_to_window(struct adds *adds, struct bloom_hash hash)
{
    struct bloom_filter *filter = value_filter(adds->call->value);
    struct bloom_journal journal = {&journal_ops, adds, adds->call->value->id};
    size_t i = adds->answered;
    uint64_t before = adds->added;
    if (adds->obeys && bloom_window_place(filter, hash)) {
        adds->refused = BLOOM_ADDED;
        adds->added++;
    } else {
        adds->refused = reserve_growths(adds, 2, &adds->err)
                            ? bloom_filter_add_journaled(filter, hash, &journal, &adds->err)
                            : BLOOM_NO_ROOM;
    }
    if (adds->refused > BLOOM_ADDED)
        return false;
    adds->answers[i / 32] |= (uint32_t)(adds->refused == BLOOM_ADDED) << i % 32;
    adds->replicated[i / 32] |= (uint32_t)(adds->added != before) << i % 32;
    adds->answered++;
    return true;
}

/* While one batch is added, the words of the next are on their way from memory. Ends with an item that is refused. */
static void add_all(struct adds *adds)
{
    struct bloom_filter *filter = value_filter(adds->call->value);
    struct bloom_journal journal = {&journal_ops, adds, adds->call->value->id};
    struct bloom_batch batches[2];
    start_batch(&batches[0], adds->call, adds->first, batch_at(0, adds->n));
    for (size_t done = 0, i = 0; adds->answered == done && done < adds->n; i++) {
        size_t n = batch_at(done, adds->n), next = done + n;
        if (next < adds->n)
            start_batch(&batches[(i + 1) % 2], adds->call, adds->first + next, batch_at(next, adds->n));
        adds->answered += bloom_batch_add_all(&batches[i % 2], 0, filter, &journal, &adds->err,
                                              &adds->answers[done / 32], &adds->refused);
        done = next;
    }
}

/* RedisBloom logs and replicates a batch unchanged, refused items included: they are no error here. */
static void reply_adds(struct adds *adds, bool array)
{
    bool refused = adds->answered < adds->n;
    bool obeyed = refused && adds->refused == BLOOM_FULL && call_must_obey(adds->call);
    size_t answers = obeyed ? adds->n : adds->answered;
    refused &= !obeyed;
    if (array)
        engine.ReplyWithArray(adds->call->ctx, (long)(answers + refused));
    for (size_t i = 0; i < answers; i++)
        call_bool(adds->call, i < adds->answered && adds->answers[i / 32] >> (i % 32) & 1);
    if (refused && adds->refused == BLOOM_FULL)
        engine.ReplyWithError(adds->call->ctx, BF_FULL);
    else if (refused)
        call_error(adds->call, BF_NO_ROOM, adds->err.text);
}

/* The position after the first `count` items that were added. */
static size_t behind(const struct adds *adds, size_t count)
{
    size_t i = 0;
    for (; count > 0; i++)
        count -= adds->replicated[i / 32] >> (i % 32) & 1;
    return i;
}

/* In the order in which it took place: the items before a layer, the layer, the items after it. */
static void replicate_adds(struct adds *adds, bool as_it_came)
{
    size_t from = 0;
    as_it_came &= !bloom_filter_params(value_filter(adds->call->value))->key; /* hashes instead of items */
    if (as_it_came && adds->ngrowths == 0 && adds->added == adds->n) {
        engine.ReplicateVerbatim(adds->call->ctx);
        return;
    }
    for (size_t i = 0; i < adds->ngrowths; i++) {
        const struct growth *growth = &adds->growths[i];
        size_t to = behind(adds, growth->before);
        effect_added(adds->call, adds->first, adds->replicated, from, to - from);
        if (growth->turn.number)
            effect_turn(adds->call, growth->layer, &growth->shape, &growth->turn);
        else
            effect_growth(adds->call, growth->layer, &growth->shape);
        from = to;
    }
    effect_added(adds->call, adds->first, adds->replicated, from, adds->answered - from);
}

static void tell(struct adds *adds, bool as_it_came)
{
    struct bloom_filter *filter = value_filter(adds->call->value);
    if (adds->added == 0 && adds->ngrowths == 0)
        return;
    uint64_t below = bloom_filter_forgets(filter) && !adds->obeys ? bloom_window_droppable(filter) : 0;
    replicate_adds(adds, as_it_came && below == 0);
    if (below > 0)
        effect_dropped(adds->call, below);
    effect_changed(adds->call, NULL);
    for (size_t i = 0; i < adds->ngrowths; i++)
        if (adds->growths[i].turn.number == 0)
            effect_event(adds->call, "bloom.grow");
    if (bloom_filter_params(filter)->expansion == 0 && adds->added > 0 &&
        adds->ordinal == bloom_filter_capacity(filter))
        effect_event(adds->call, "bloom.full");
}

/* Not all of it is zeroed: the text of an error is longer than all other fields. */
static void start_adds(struct adds *adds, struct call *call, size_t first, uint32_t *answers)
{
    adds->call = call;
    adds->first = first;
    adds->n = (size_t)call->argc - first;
    adds->answers = adds->replicated = answers;
    adds->added = adds->ordinal = 0;
    adds->growths = NULL;
    adds->ngrowths = adds->room = 0;
    adds->obeys = false;
    adds->answered = 0;
    adds->err.text[0] = '\0';
}

/* For a window, with memory for the notes to replicas. */
static void start_window_adds(struct adds *adds, uint32_t *replicated)
{
    size_t words = (adds->n + 31) / 32;
    adds->replicated = replicated;
    memset(adds->answers, 0, words * sizeof(*adds->answers));
    memset(adds->replicated, 0, words * sizeof(*adds->replicated));
    adds->obeys = call_must_obey(adds->call);
}

void add_words(struct call *call, size_t first, bool as_it_came)
{
    uint32_t few[2 * STACK_WORDS];
    struct adds adds;
    start_adds(&adds, call, first, few);
    size_t words = (adds.n + 31) / 32;
    if (words > STACK_WORDS) {
        adds.answers = adds.replicated = malloc(2 * words * sizeof(*adds.answers));
        if (!adds.answers) {
            engine.ReplyWithError(call->ctx, "ERR out of memory");
            return;
        }
    }
    if (bloom_filter_forgets(value_filter(call->value))) {
        start_window_adds(&adds, adds.answers + words);
        const struct bloom_filter *filter = value_filter(adds.call->value);
        bool going = true;
        for (size_t i = 0; going && i < adds.n; i++) {
            struct slice item = call_arg(adds.call, adds.first + i);
            going = add_to_window(&adds, bloom_filter_hash(filter, item.ptr, item.len));
        }
    } else {
        add_all(&adds);
    }
    tell(&adds, as_it_came);
    reply_adds(&adds, true);
    free(adds.growths);
    if (adds.answers != few)
        free(adds.answers);
}

/* Claims the next item, and makes its mark a word of the call: the words that were added are replicated as BF.MADD adds
 * them, each mark before its item. False when the item was refused. */
static bool claim_item(struct adds *adds, struct slice owner)
{
    struct bloom_filter *filter = value_filter(adds->call->value);
    struct bloom_journal journal = {&journal_ops, adds, adds->call->value->id};
    size_t at = adds->answered, i = at / 2;
    struct bloom_hash hash[2];
    struct slice mark;
    uint64_t before = adds->added;
    bool possible = bf_claim_hashes(filter, owner, call_arg(adds->call, adds->first + at + 1), hash, &mark) &&
                    reserve_growths(adds, 2, &adds->err);
    adds->refused = possible ? bloom_filter_claim(filter, hash, &journal, &adds->err) : BLOOM_NO_ROOM;
    if (adds->added - before == 2)
        adds->call->argv[adds->first + at] = engine.CreateString(NULL, mark.ptr, mark.len);
    free((char *)mark.ptr);
    if (adds->refused > BLOOM_ADDED)
        return false;
    adds->answers[i / 32] |= (uint32_t)(adds->refused != BLOOM_PRESENT) << i % 32;
    adds->replicated[at / 32] |= (adds->added - before == 2 ? 3u : adds->added != before ? 2u : 0) << at % 32;
    adds->answered += 2;
    return true;
}

void claim_words(struct call *call, size_t first, struct slice owner)
{
    size_t n = (size_t)call->argc - first, words = (n + 31) / 32;
    struct engine_string **argv = calloc(2 + 2 * n, sizeof(*argv));
    uint32_t *answers = calloc(3 * words, sizeof(*answers));
    struct call pairs = *call; /* with a mark before each item */
    struct adds adds;
    pairs.argv = argv;
    pairs.argc = (int)(2 + 2 * n);
    start_adds(&adds, &pairs, 2, answers);
    adds.replicated = answers + words;
    errbuf_set(&adds.err, "out of memory");
    if (!argv || !answers) {
        engine.ReplyWithError(call->ctx, "ERR out of memory");
        goto out;
    }
    memcpy(argv, call->argv, 2 * sizeof(*argv));
    for (size_t i = 0; i < n; i++)
        argv[3 + 2 * i] = call->argv[first + i];
    while (adds.answered < adds.n && claim_item(&adds, owner))
        ;
    tell(&adds, false);
    adds.n = n;
    adds.answered /= 2;
    reply_adds(&adds, true);
    for (size_t i = 0; i < n; i++)
        if (argv[2 + 2 * i])
            engine.FreeString(NULL, argv[2 + 2 * i]);
    free(adds.growths);
out:
    free(argv);
    free(answers);
}

static void finish_word(struct adds *adds, bool as_it_came)
{
    tell(adds, as_it_came);
    reply_adds(adds, false);
    free(adds->growths);
}

/* BF.ADD, without the stages of a batch, which cost as much as the add. */
void add_word(struct call *call, const struct bloom_aim *aim, bool as_it_came)
{
    struct bloom_filter *filter = value_filter(call->value);
    uint32_t answer, replicated;
    struct adds adds;
    start_adds(&adds, call, 2, &answer);
    if (bloom_filter_forgets(filter)) {
        start_window_adds(&adds, &replicated);
        add_to_window(&adds, aim->hash);
        finish_word(&adds, as_it_came);
        return;
    }
    struct bloom_journal journal = {&journal_ops, &adds, call->value->id};
    adds.refused = bloom_ahead_add(filter, aim, &journal, &adds.err);
    if (adds.refused == BLOOM_PRESENT) {
        call_bool(call, false);
        return;
    }
    answer = adds.refused == BLOOM_ADDED;
    adds.answered = adds.refused == BLOOM_ADDED || adds.refused == BLOOM_PRESENT;
    finish_word(&adds, as_it_came);
}
