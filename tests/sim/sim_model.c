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

static bool is_write(const struct op *op)
{
    return op->kind == OP_RESERVE || op->kind == OP_ADD || op->kind == OP_DEL || op->kind == OP_RENAME;
}

void model_sent(struct model *model, unsigned index, const struct op *op)
{
    struct model_client *client = &model->clients[index];
    struct op *sent = &client->pipe[client->npipe++];
    *sent = *op;
    model->commands++;
    if (op->shared && op->kind == OP_ADD)
        model->shared[op->name].sent |= bits_of(op);
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
    if (node->kind == RESP_REPLY_INTEGER || node->kind == RESP_REPLY_ARRAY)
        snprintf(text, size, "%s %lld", kinds[node->kind], (long long)node->number);
    else
        snprintf(text, size, "%s %.*s", kinds[node->kind], (int)(node->len < 80 ? node->len : 80),
                 reply->base + node->off);
    return text;
}

static bool says(const struct resp_reply *reply, const char *words)
{
    const struct resp_reply_node *node = &reply->nodes[0];
    return node->kind <= RESP_REPLY_ERROR && memmem(reply->base + node->off, node->len, words, strlen(words));
}

static void contradict(struct model *model, unsigned client, const struct op *op, const struct resp_reply *reply)
{
    static const char *const kinds[OP_KINDS] = {"BF.RESERVE", "BF.ADD", "BF.EXISTS", "BF.CARD", "DEL",
                                                "RENAME",     "SAVE",   "BGSAVE",    "HELLO"};
    char text[120];
    model_fail(model, "client %u: %s of %s name %u, items from %u: the reply is %s", client, kinds[op->kind],
               op->shared ? "shared" : "own", op->name, op->items[0], text_of(reply, text, sizeof(text)));
}

/* The answer to item `i`; -1: an error. In replies to BF.MADD and BF.MEXISTS the elements follow the array's node. */
static int answer(const struct op *op, const struct resp_reply *reply, unsigned i)
{
    const struct resp_reply_node *nodes = reply->nodes;
    const struct resp_reply_node *node = &nodes[0];
    if (op->many) {
        if (node->kind != RESP_REPLY_ARRAY || i >= (unsigned)node->number)
            return -1;
        node = &nodes[1 + i];
    }
    return node->kind == RESP_REPLY_INTEGER ? (int)node->number : -1;
}

/* A shared filter has one winner for each item. */
static bool take_shared_add(struct model_shared *shared, const struct op *op, const struct resp_reply *reply,
                            uint64_t now_ns)
{
    bool fits = true;
    for (unsigned i = 0; i < op->n; i++) {
        int added = answer(op, reply, i);
        uint64_t item = bit(op->items[i]);
        if (added < 0)
            continue;
        if (added == 1) {
            fits = fits && !(shared->won & item);
            shared->won |= item;
        }
        if (!(shared->acked & item))
            shared->acked_ns[op->items[i]] = now_ns;
        shared->acked |= item;
    }
    return fits;
}

static bool take_shared_exists(const struct model_shared *shared, const struct op *op, const struct resp_reply *reply)
{
    bool fits = true;
    for (unsigned i = 0; i < op->n; i++) {
        int found = answer(op, reply, i);
        uint64_t item = bit(op->items[i]);
        if (found >= 0)
            fits = fits && (found ? (shared->sent & item) != 0 : !(op->known & item));
    }
    return fits;
}

static bool take_add(struct model_filter *filter, const struct op *op, const struct resp_reply *reply)
{
    bool fits = true;
    for (unsigned i = 0; i < op->n; i++) {
        int added = answer(op, reply, i);
        uint64_t item = bit(op->items[i]);
        if (added < 0) {
            filter->presence = filter->presence == ABSENT ? UNSURE : filter->presence;
            continue;
        }
        fits = fits && added == !(filter->items & item);
        filter->items |= item;
        filter->presence = PRESENT;
    }
    return fits;
}

static bool take_exists(const struct model_filter *filter, const struct op *op, const struct resp_reply *reply)
{
    bool fits = true;
    for (unsigned i = 0; i < op->n; i++) {
        int found = answer(op, reply, i);
        if (found >= 0)
            fits = fits && found == ((filter->items & bit(op->items[i])) != 0);
    }
    return fits;
}

/* The state after the reply. False: such a reply is impossible. */
static bool take_own(struct model_state *state, const struct op *op, const struct resp_reply *reply)
{
    struct model_filter *filter = &state->names[op->name];
    const struct resp_reply_node *node = &reply->nodes[0];
    bool ok = node->kind == RESP_REPLY_STATUS, was = filter->presence == PRESENT, not = filter->presence == ABSENT;
    switch (op->kind) {
    case OP_RESERVE:
        if (ok || says(reply, "exists"))
            filter->presence = PRESENT;
        else
            filter->presence = not ? UNSURE : filter->presence;
        return ok ? !was : !not || !says(reply, "exists");
    case OP_ADD:
        return take_add(filter, op, reply);
    case OP_EXISTS:
        return take_exists(filter, op, reply);
    case OP_CARD:
        return node->kind != RESP_REPLY_INTEGER ||
               node->number == __builtin_popcountll(filter->items) + filter->surplus;
    case OP_DEL:
        if (node->kind != RESP_REPLY_INTEGER)
            return true;
        *filter = (struct model_filter){ABSENT, 0, 0};
        return node->number ? !not : !was;
    case OP_RENAME:
        if (!ok)
            return !was || !says(reply, "no such key");
        state->names[op->to] = (struct model_filter){PRESENT, filter->items, filter->surplus};
        *filter = (struct model_filter){ABSENT, 0, 0};
        return !not ;
    default:
        return true;
    }
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

/* An error of the whole command, or of an item. */
static bool is_refused(const struct op *op, const struct resp_reply *reply)
{
    if (reply->nodes[0].kind == RESP_REPLY_ERROR)
        return op->kind >= OP_SAVE ? !says(reply, "in progress")
                                   : !(op->kind == OP_RESERVE && says(reply, "exists")) && !says(reply, "no such key");
    for (unsigned i = 0; i < op->n && (op->kind == OP_ADD || op->kind == OP_EXISTS); i++)
        if (answer(op, reply, i) < 0)
            return true;
    return false;
}

void model_replied(struct model *model, unsigned index, const struct resp_reply *reply, uint64_t now_ns)
{
    struct model_client *client = &model->clients[index];
    struct model_state state = client->steps[client->nsteps - 1].state;
    if (client->npipe == 0) {
        model_fail(model, "client %u: a reply to nothing", index);
        return;
    }
    struct op op = client->pipe[0];
    struct resp_reply inner = {reply->base, reply->nodes + 1, reply->count - 1};
    bool last = !op.exec || op.stage == 2, counts = op.exec ? op.stage == (op.alone ? 1 : 2) : true;
    if (op.exec && op.stage == 0)
        client->pipe[0].alone = reply->nodes[0].kind == RESP_REPLY_ERROR;
    client->pipe[0].stage++;
    if (last)
        memmove(&client->pipe[0], &client->pipe[1], --client->npipe * sizeof(op));
    if (!counts)
        return;
    if (op.exec && !op.alone && reply->nodes[0].kind == RESP_REPLY_ARRAY && reply->count > 1)
        reply = &inner;
    bool fits = true;
    if (op.kind == OP_SAVE && reply->nodes[0].kind == RESP_REPLY_STATUS)
        note_save(model, &op.save);
    else if (op.shared && op.kind == OP_ADD)
        fits = take_shared_add(&model->shared[op.name], &op, reply, now_ns);
    else if (op.shared && op.kind == OP_EXISTS)
        fits = take_shared_exists(&model->shared[op.name], &op, reply);
    else if (!op.shared)
        fits = take_own(&state, &op, reply);
    if (!fits || (!model->faults && is_refused(&op, reply)))
        contradict(model, index, &op, reply);
    if (is_write(&op) && !op.shared)
        add_step(client, &state, now_ns);
}

void model_check_winners(struct model *model)
{
    for (int i = 0; i < MODEL_SHARED; i++)
        if (model->shared[i].acked & ~model->shared[i].won)
            model_fail(model, "items of s%d are there, and nobody has added them: %llx", i,
                       (unsigned long long)(model->shared[i].acked & ~model->shared[i].won));
}

/* ---- ends ---- */

static void widen(struct model_bounds *bounds, const struct model_filter *least, const struct model_filter *most)
{
    bounds->may_be |= least->presence != ABSENT || most->presence != ABSENT;
    bounds->may_not_be |= least->presence != PRESENT || most->presence != PRESENT;
    if (least->presence != ABSENT || most->presence != ABSENT) /* an item's record may be lost, and its filter's not */
        bounds->lower &= least->items;
    bounds->upper |= most->items | least->items;
}

/* A command without a reply may have added any of its items, or none. */
static void apply(struct model_state *least, struct model_state *most, const struct op *op)
{
    struct model_state *both[] = {least, most};
    for (int i = 0; i < 2; i++) {
        struct model_filter *filter = &both[i]->names[op->name];
        if (op->kind == OP_RESERVE) {
            filter->presence = PRESENT;
        } else if (op->kind == OP_ADD) {
            filter->presence = PRESENT;
            filter->items |= i == 1 ? bits_of(op) : 0;
        } else if (op->kind == OP_DEL) {
            *filter = (struct model_filter){ABSENT, 0, 0};
        } else if (op->kind == OP_RENAME && filter->presence != ABSENT) {
            both[i]->names[op->to] = *filter;
            *filter = (struct model_filter){ABSENT, 0, 0};
        }
    }
}

static size_t floor_of(const struct model_client *client, enum model_kept kept, uint64_t now_ns)
{
    size_t floor = kept == KEPT_ACKNOWLEDGED ? client->nsteps - 1 : client->saved;
    while (kept == KEPT_SECONDS && floor + 1 < client->nsteps &&
           client->steps[floor + 1].acked_ns + SECONDS_NS < now_ns)
        floor++;
    return floor;
}

struct model_bounds model_bounds_of(const struct model *model, unsigned index, unsigned name, enum model_kept kept,
                                    uint64_t now_ns)
{
    const struct model_client *client = &model->clients[index];
    struct model_bounds bounds = {.lower = UINT64_MAX};
    size_t floor = floor_of(client, kept, now_ns);
    for (size_t i = floor; i < client->nsteps; i++)
        widen(&bounds, &client->steps[i].state.names[name], &client->steps[i].state.names[name]);
    if (floor + 1 < client->nsteps) /* of what is not kept for sure, a rename may be there and an earlier add not, */
        bounds.lower = 0;           /* or the other way around */
    struct model_state least = client->steps[client->nsteps - 1].state, most = least;
    for (size_t i = 0; i < client->npipe; i++) {
        const struct op *op = &client->pipe[i];
        if (op->shared || !is_write(op))
            continue;
        apply(&least, &most, op);
        widen(&bounds, &least.names[name], &most.names[name]);
        for (unsigned other = 0; floor + 1 < client->nsteps && other < MODEL_NAMES; other++)
            bounds.upper |= most.names[other].items;
    }
    for (size_t i = floor; floor + 1 < client->nsteps && i < client->nsteps; i++)
        for (unsigned other = 0; other < MODEL_NAMES; other++)
            bounds.upper |= client->steps[i].state.names[other].items;
    return bounds;
}

struct model_bounds model_bounds_of_shared(const struct model *model, unsigned index, enum model_kept kept,
                                           uint64_t now_ns)
{
    const struct model_shared *shared = &model->shared[index];
    uint64_t kept_items = kept == KEPT_ACKNOWLEDGED ? shared->acked : shared->saved;
    for (unsigned i = 0; kept == KEPT_SECONDS && i < MODEL_ITEMS; i++)
        if ((shared->acked & bit(i)) && shared->acked_ns[i] + SECONDS_NS < now_ns)
            kept_items |= bit(i);
    return (struct model_bounds){true, kept_items == 0, kept_items, shared->sent};
}

void model_check(struct model *model, const char *name, const struct model_bounds *bounds,
                 const struct model_seen *seen)
{
    uint64_t lost = bounds->lower & ~seen->items, more = seen->items & ~bounds->upper;
    int64_t items = __builtin_popcountll(seen->items), most = model->counts_may_exceed ? MODEL_ITEMS : items;
    model->checked++;
    if (seen->present ? !bounds->may_be : !bounds->may_not_be)
        model_fail(model, "%s %s", name, seen->present ? "is there" : "is not there");
    else if (seen->present && lost)
        model_fail(model, "%s lacks items: %llx", name, (unsigned long long)lost);
    else if (more)
        model_fail(model, "%s has items that it never had: %llx", name, (unsigned long long)more);
    else if (seen->count < items || seen->count > most)
        model_fail(model, "%s counts %lld items and has %lld", name, (long long)seen->count, (long long)items);
}

void model_restart(struct model *model, const struct model_seen names[MODEL_CLIENTS][MODEL_NAMES],
                   const struct model_seen shared[MODEL_SHARED], uint64_t now_ns)
{
    model->restarts++;
    for (int i = 0; i < MODEL_CLIENTS; i++) {
        struct model_client *client = &model->clients[i];
        client->nsteps = 1;
        client->saved = client->npipe = 0;
        client->steps[0].acked_ns = now_ns;
        for (int j = 0; j < MODEL_NAMES; j++)
            client->steps[0].state.names[j] =
                (struct model_filter){names[i][j].present ? PRESENT : ABSENT, names[i][j].items,
                                      names[i][j].count - __builtin_popcountll(names[i][j].items)};
    }
    for (int i = 0; i < MODEL_SHARED; i++) {
        uint64_t items = shared[i].items;
        model->shared[i] = (struct model_shared){.sent = items, .acked = items, .won = items, .saved = items};
    }
}
