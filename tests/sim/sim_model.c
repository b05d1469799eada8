#include "sim_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"

#define SECONDS_NS UINT64_C(3000000000) /* what is older the log has under everysec */

struct model *model_create(void)
{
    struct model *model = arena_calloc(1, sizeof(*model));
    for (int i = 0; i < MODEL_CLIENTS; i++) {
        struct model_client *client = &model->clients[i];
        client->size = 64;
        client->steps = arena_calloc(client->size, sizeof(*client->steps));
        client->nsteps = 1;
    }
    return model;
}

void model_fail(struct model *model, const char *format, ...)
{
    va_list args;
    if (model->failure[0])
        return;
    va_start(args, format);
    vsnprintf(model->failure, sizeof(model->failure), format, args);
    va_end(args);
}

enum family model_family_of(enum family own, unsigned name)
{
    return name < MODEL_PLAIN ? FAMILY_PLAIN : own;
}

const char *model_word(enum op_kind kind)
{
    static const char *const words[OP_KINDS] = {
#define OP(id, word, chance) word,
#include "sim_ops.def"
#undef OP
    };
    return words[kind];
}

bool model_is_write(const struct op *op)
{
    return op->kind != OP_EXISTS && op->kind != OP_CARD && op->kind != OP_PTTL && op->kind != OP_DUMP &&
           op->kind != OP_COUNT && op->kind != OP_SCAN && op->kind < OP_FLUSHALL;
}

static uint64_t bit(unsigned item)
{
    return UINT64_C(1) << item;
}

static uint64_t bits_of(const struct op *op)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < op->n; i++)
        bits |= bit(op->items[i]);
    return bits;
}

static void send_shared(struct model_shared *shared, unsigned client, uint64_t items)
{
    shared->sent |= items;
    shared->ever |= items;
    shared->sent_by[client] |= items;
}

void model_sent(struct model *model, unsigned index, const struct op *op)
{
    struct model_client *client = &model->clients[index];
    struct op *sent = &client->pipe[client->npipe++];
    *sent = *op;
    model->commands++;
    if (op->shared && op->kind == OP_ADD)
        send_shared(&model->shared[op->name], index, bits_of(op));
    if (op->shared && op->kind == OP_EXISTS)
        sent->known = model->shared[op->name].acked;
    if (op->kind == OP_SAVE) {
        struct model_snapshot *snapshot = &sent->save;
        for (int i = 0; i < MODEL_CLIENTS; i++)
            snapshot->steps[i] = model->clients[i].nsteps - 1;
        for (int i = 0; i < MODEL_SHARED; i++)
            snapshot->shared[i] = model->shared[i].acked;
    }
}

/* ---- replies ---- */

static const char *text_of(const struct resp_reply *reply, char *text, size_t size)
{
    static const char *const kinds[] = {"status", "error", "integer", "text", "null", "array", "push"};
    const struct resp_reply_node *node = &reply->nodes[0];
    for (size_t i = 1; i < reply->count && node->kind == RESP_REPLY_ARRAY; i++) /* an error among the answers */
        if (reply->nodes[i].kind == RESP_REPLY_ERROR)
            node = &reply->nodes[i];
    if (node->kind == RESP_REPLY_INTEGER || node->kind == RESP_REPLY_ARRAY)
        snprintf(text, size, "%s %lld", kinds[node->kind], (long long)node->number);
    else
        snprintf(text, size, "%s %.*s", kinds[node->kind], (int)(node->len < 80 ? node->len : 80),
                 reply->base + node->off);
    return text;
}

static void contradict(struct model *model, unsigned client, const struct op *op, const struct resp_reply *reply)
{
    char text[120];
    model_fail(model, "client %u: %s of %s name %u to %u, items from %u: the reply is %s", client, model_word(op->kind),
               op->shared ? "shared" : "own", op->name, op->to, op->items[0], text_of(reply, text, sizeof(text)));
}

/* A claim's answer stays the same. */
static bool take_claim(struct model_shared *shared, unsigned client, unsigned item, enum answer answer)
{
    uint64_t others = 0;
    uint8_t *owner = &shared->owner[item];
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        others |= i != client ? shared->sent_by[i] : 0;
    if (answer == ANSWER_NO)
        return *owner ? *owner != client + 1 : (others & bit(item)) != 0;
    bool fits = *owner == 0 || *owner == client + 1;
    *owner = (uint8_t)(client + 1);
    return fits;
}

/* A shared filter has one winner for each item. */
static bool take_shared_add(struct model *model, unsigned client, const struct op *op, const struct resp_reply *reply,
                            uint64_t now_ns)
{
    struct model_shared *shared = &model->shared[op->name];
    bool fits = true, claims = op->name == MODEL_CLAIMS;
    for (unsigned i = 0; i < op->n; i++) {
        enum answer added = model_answer(op, reply, i);
        uint64_t item = bit(op->items[i]);
        if (added == NO_ANSWER)
            continue;
        if (claims && !(model->halves & item))
            fits = take_claim(shared, client, op->items[i], added) && fits;
        if (added == ANSWER_YES) {
            fits = fits && (claims || !(shared->won & item));
            shared->won |= item;
        }
        if (!(shared->acked & item))
            shared->acked_ns[op->items[i]] = now_ns;
        shared->acked |= item;
    }
    return fits;
}

static bool take_shared_exists(const struct model_shared *shared, const struct op *op, const struct resp_reply *reply,
                               bool maybe)
{
    bool fits = true;
    for (unsigned i = 0; i < op->n; i++) {
        enum answer found = model_answer(op, reply, i);
        uint64_t item = bit(op->items[i]);
        if (found != NO_ANSWER)
            fits = fits && (found ? maybe || (shared->sent & item) != 0 : !(op->known & item));
    }
    return fits;
}

static void add_step(struct model_client *client, const struct model_state *state, uint64_t now_ns)
{
    if (client->nsteps == client->size) {
        client->size *= 2;
        client->steps = arena_realloc(client->steps, client->size * sizeof(*client->steps));
    }
    client->steps[client->nsteps++] = (struct model_step){*state, now_ns};
}

static void note_save(struct model *model, const struct model_snapshot *snapshot)
{
    for (int i = 0; i < MODEL_CLIENTS; i++)
        if (model->clients[i].saved < snapshot->steps[i])
            model->clients[i].saved = snapshot->steps[i];
    for (int i = 0; i < MODEL_SHARED; i++)
        model->shared[i].saved |= snapshot->shared[i];
}

static void keep_dump(struct model_client *client, const struct op *op, const struct model_state *state,
                      const struct resp_reply *reply, unsigned jumps)
{
    const struct resp_reply_node *node = &reply->nodes[0];
    if (node->kind != RESP_REPLY_TEXT || node->len > MODEL_DUMP_MAX)
        return;
    client->dump.filter = state->names[op->name];
    filter_expire(&client->dump.filter, NEVER_MS, NEVER_MS);
    client->dump.plain = op->name < MODEL_PLAIN;
    client->dump.jumps = jumps;
    client->dump.len = node->len;
    memcpy(client->dump.bytes, reply->base + node->off, node->len);
}

static void keep_chunk(struct model_client *client, const struct op *op, const struct model_state *state,
                       const struct resp_reply *reply, unsigned jumps)
{
    struct model_scan *scan = &client->scan;
    const struct model_filter *filter = &state->names[op->name];
    bool is_chunk = reply->count == 3 && reply->nodes[0].kind == RESP_REPLY_ARRAY && op->chunk < MODEL_CHUNKS &&
                    reply->nodes[2].len <= MODEL_DUMP_MAX;
    scan->asks = false;
    if (!is_chunk || !(filter->presence & PRESENT)) {
        scan->n = 0;
        return;
    }
    scan->whole = reply->nodes[1].number == 0;
    struct model_dump *first = &scan->chunks[0], *chunk = &scan->chunks[op->chunk];
    if (op->chunk == 0)
        *first = (struct model_dump){.filter = *filter, .plain = op->name < MODEL_PLAIN, .jumps = jumps};
    uint64_t must = first->filter.must;
    filter_join(model_family_of(client->family, op->name), &first->filter, filter);
    first->filter.must = must;
    first->filter.more_hi += __builtin_popcountll(first->filter.may & ~must); /* counts are read after the bits */
    if (model_family_of(client->family, op->name) == FAMILY_LATEST)           /* a part may have ended */
        filter_age(FAMILY_LATEST, &first->filter, &(struct moment){0});
    filter_expire(&first->filter, NEVER_MS, NEVER_MS);
    if (scan->whole || jumps != first->jumps) {
        scan->n = jumps != first->jumps ? 0 : scan->n;
        return;
    }
    scan->iterators[op->chunk] = (uint64_t)reply->nodes[1].number;
    chunk->len = reply->nodes[2].len;
    memcpy(chunk->bytes, reply->base + reply->nodes[2].off, chunk->len);
    scan->n = op->chunk + 1;
}

static struct model_state all_absent(void)
{
    struct model_state state;
    for (unsigned i = 0; i < MODEL_NAMES; i++)
        state.names[i] = filter_absent();
    return state;
}

/* No command was under way beside it. */
static void take_flush(struct model *model, uint64_t now_ns)
{
    struct model_state state = all_absent();
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        add_step(&model->clients[i], &state, now_ns);
    for (unsigned i = 0; i < MODEL_SHARED; i++)
        model->shared[i] = (struct model_shared){.ever = model->shared[i].ever};
}

/* The client's oldest command, if this is its own reply, not one of those around it. */
static bool take_stage(struct model_client *client, const struct resp_reply *reply, struct op *op_out)
{
    struct op *op = &client->pipe[0];
    unsigned stage = op->stage++, own = op->exec && !op->alone ? op->before + 1 : op->before;
    if (op->exec && stage == 0)
        op->alone = reply->nodes[0].kind == RESP_REPLY_ERROR;
    *op_out = *op;
    if (op->stage == op->before + 1 + op->after)
        memmove(&client->pipe[0], &client->pipe[1], --client->npipe * sizeof(*op));
    return stage == own;
}

void model_replied(struct model *model, unsigned index, const struct resp_reply *reply, uint64_t now_ns,
                   uint64_t now_ms)
{
    struct model_client *client = &model->clients[index];
    struct model_state *last = &client->steps[client->nsteps - 1].state, state = *last;
    struct resp_reply inner = {reply->base, reply->nodes + 1, reply->count - 1};
    struct op op;
    if (client->npipe == 0) {
        model_fail(model, "client %u: a reply to nothing", index);
        return;
    }
    if (!take_stage(client, reply, &op))
        return;
    op.when.replied_ns = now_ns;
    op.when.replied_ms = now_ms;
    if (op.exec && !op.alone && reply->nodes[0].kind == RESP_REPLY_ARRAY && reply->count > 1)
        reply = &inner;
    bool fits = true, own = !op.shared && op.kind < OP_FLUSHALL;
    if (op.kind == OP_SAVE && reply->nodes[0].kind == RESP_REPLY_STATUS)
        note_save(model, &op.save);
    else if (op.shared && op.kind == OP_ADD)
        fits = take_shared_add(model, index, &op, reply, now_ns);
    else if (op.shared && op.kind == OP_EXISTS)
        fits = take_shared_exists(&model->shared[op.name], &op, reply, model->maybe);
    else if (own)
        fits = model_take(model, client->family, &state, &op, reply);
    if (op.kind == OP_FLUSHALL && reply->nodes[0].kind == RESP_REPLY_STATUS)
        take_flush(model, now_ns);
    if (op.kind == OP_SCAN)
        keep_chunk(client, &op, &state, reply, model->jumps);
    if (op.kind == OP_DUMP)
        keep_dump(client, &op, &state, reply, model->jumps);
    model->done[op.kind] += reply->nodes[0].kind != RESP_REPLY_ERROR && reply->nodes[0].kind != RESP_REPLY_NULL;
    if (!fits || (!model->faults && model_is_refused(model, &op, reply)))
        contradict(model, index, &op, reply);
    if (own && model_is_write(&op))
        add_step(client, &state, now_ns);
    else if (own)
        *last = state; /* a query has narrowed it */
}

void model_set_back(struct model *model, uint64_t was_ms)
{
    for (int i = 0; i < MODEL_CLIENTS; i++) {
        struct model_client *client = &model->clients[i];
        for (size_t step = client->saved; step < client->nsteps; step++)
            for (int name = 0; name < MODEL_NAMES; name++)
                filter_set_back(&client->steps[step].state.names[name], was_ms);
    }
}

void model_check_winners(struct model *model)
{
    for (int i = 0; i < MODEL_SHARED; i++)
        if (model->shared[i].acked & ~model->shared[i].won)
            model_fail(model, "items of s%d are there, and nobody has added them: %llx", i,
                       (unsigned long long)(model->shared[i].acked & ~model->shared[i].won));
}

/* ---- ends ---- */

static size_t floor_of(const struct model_client *client, enum model_kept kept, uint64_t now_ns)
{
    size_t floor = kept == KEPT_ACKNOWLEDGED ? client->nsteps - 1 : client->saved;
    while (kept == KEPT_SECONDS && floor + 1 < client->nsteps &&
           client->steps[floor + 1].acked_ns + SECONDS_NS < now_ns)
        floor++;
    return floor;
}

/* Of what is not kept for sure, a rename may be there and an earlier add not, or the other way around: any name of its
 * family may have the items of each other. */
static void mix(enum family own, struct model_filter *bounds, unsigned name, const struct model_state *state)
{
    for (unsigned other = 0; other < MODEL_NAMES; other++) {
        struct model_filter filter = state->names[other];
        if ((other < MODEL_PLAIN) == (name < MODEL_PLAIN) && filter.presence != ABSENT) {
            filter.presence = bounds->presence;
            filter_join(model_family_of(own, name), bounds, &filter);
        }
    }
    filter_forget(model_family_of(own, name), bounds);
}

static bool flushes(const struct model *model)
{
    return model->clients[0].npipe > 0 && model->clients[0].pipe[0].kind == OP_FLUSHALL;
}

struct model_filter model_bounds_of(struct model *model, unsigned index, unsigned name, enum model_kept kept,
                                    uint64_t now_ns)
{
    const struct model_client *client = &model->clients[index];
    enum family family = model_family_of(client->family, name);
    size_t floor = floor_of(client, kept, now_ns);
    struct model_filter bounds = client->steps[floor].state.names[name];
    struct model_state state = client->steps[client->nsteps - 1].state;
    bool all = floor + 1 == client->nsteps;
    for (size_t i = floor; i < client->nsteps; i++)
        filter_join(family, &bounds, &client->steps[i].state.names[name]);
    for (size_t i = 0; i < client->npipe; i++) {
        struct op op = client->pipe[i];
        op.when.replied_ns = now_ns;
        op.when.replied_ms = UINT64_MAX / 2; /* its time to live may end before */
        if (op.shared || !model_is_write(&op))
            continue;
        model_take(model, client->family, &state, &op, NULL);
        filter_join(family, &bounds, &state.names[name]);
        if (!all)
            mix(client->family, &bounds, name, &state);
    }
    for (size_t i = floor; !all && i < client->nsteps; i++)
        mix(client->family, &bounds, name, &client->steps[i].state);
    if (flushes(model))
        bounds.presence |= ABSENT;
    return bounds;
}

struct model_filter model_bounds_of_shared(const struct model *model, unsigned index, enum model_kept kept,
                                           uint64_t now_ns)
{
    const struct model_shared *shared = &model->shared[index];
    struct model_filter bounds = filter_empty();
    bounds.must = kept == KEPT_ACKNOWLEDGED ? shared->acked : shared->saved;
    for (unsigned i = 0; kept == KEPT_SECONDS && i < MODEL_ITEMS; i++)
        if ((shared->acked & bit(i)) && shared->acked_ns[i] + SECONDS_NS < now_ns)
            bounds.must |= bit(i);
    if (flushes(model))
        bounds.must = 0;
    bounds.may = shared->ever;
    bounds.presence = bounds.must ? PRESENT : UNSURE;
    return bounds;
}

void model_check(struct model *model, enum family family, const char *name, struct model_filter *bounds,
                 const struct model_seen *seen)
{
    struct model_filter was = *bounds;
    const char *contradiction = filter_see(family, bounds, seen, model->counts_may_exceed);
    model->checked++;
    if (contradiction)
        model_fail(model,
                   "%s (family %d) %s: it has %llx, counts %lld, expires at %llu; must %llx, may %llx, at %llu to %llu",
                   name, (int)family, contradiction, (unsigned long long)seen->items, (long long)seen->count,
                   (unsigned long long)seen->expire_ms, (unsigned long long)was.must, (unsigned long long)was.may,
                   (unsigned long long)was.expire_lo, (unsigned long long)was.expire_hi);
}

void model_restart(struct model *model, const struct model_filter names[MODEL_CLIENTS][MODEL_NAMES],
                   const struct model_filter shared[MODEL_SHARED], uint64_t now_ns)
{
    model->restarts++;
    for (int i = 0; i < MODEL_CLIENTS; i++) {
        struct model_client *client = &model->clients[i];
        client->nsteps = 1;
        client->saved = client->npipe = 0;
        client->steps[0].acked_ns = now_ns;
        memcpy(client->steps[0].state.names, names[i], sizeof(names[i]));
    }
    for (int i = 0; i < MODEL_SHARED; i++) {
        uint64_t items = shared[i].may;
        if (i == MODEL_CLAIMS) {
            memcpy(model->owners, model->shared[i].owner, sizeof(model->owners));
            model->claimed = model->shared[i].ever;
        }
        model->shared[i] =
            (struct model_shared){.ever = items, .sent = items, .acked = items, .won = items, .saved = items};
    }
}

void model_check_claims(struct model *model, const uint64_t marks[MODEL_CLIENTS], bool both, bool kept_all)
{
    struct model_shared *shared = &model->shared[MODEL_CLAIMS];
    const uint8_t *was = model->owners;
    for (unsigned item = 0; item < MODEL_ITEMS; item++) {
        unsigned owners = 0, owner = MODEL_NOBODY;
        for (unsigned i = 0; i < MODEL_CLIENTS; i++)
            if (marks[i] & bit(item)) {
                owners++;
                owner = i + 1;
            }
        bool is = shared->acked & bit(item);
        if (owners == 1 && !is && !both && (model->claimed & bit(item)))
            model->halves |= bit(item);
        if (model->halves & bit(item))
            continue;
        if (owners > 1 || (owners && !is) || (both && is && !owners))
            model_fail(model, "the claim of item %u has %u owners, and the item is %s", item, owners,
                       is ? "there" : "absent");
        if (was[item] && is && kept_all && owner != was[item])
            model_fail(model, "the claim of item %u went from client %u to %u", item, was[item] - 1u, owner - 1u);
        shared->owner[item] = is ? (uint8_t)owner : 0;
        for (unsigned i = 0; i < MODEL_CLIENTS; i++)
            shared->sent_by[i] |= marks[i] & bit(item);
    }
}
