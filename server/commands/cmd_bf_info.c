/* BF.INFO, BF.CARD, BF.FALSEPOSITIVE. The default reply of BF.INFO is RedisBloom's; FULL and single further fields say
 * what the bits say. Counting bits takes a millisecond per 10 MB: for large filters a thread of the pool does it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bf.h"
#include "command.h"
#include "handlers.h"

#define COUNT_INLINE_BYTES (256 * 1024) /* filters up to this size are counted on the loop: some tens of microseconds */

/* A filter as it is described. */
struct view {
    const struct bloom_filter *filter;
    struct usage_counts usage;
    struct bloom_state state; /* of all layers; valid if a field needed the bits */
    unsigned nlayers;
    struct bloom_layer_view layers[BLOOM_MAX_LAYERS];
    struct bloom_state layer_states[BLOOM_MAX_LAYERS];
};

struct field {
    const char *option;
    const char *name;
    void (*reply)(struct reply *reply, const struct view *view);
    bool needs_bits;
};

static void reply_count(struct reply *reply, uint64_t value)
{
    reply_integer(reply, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static void field_capacity(struct reply *reply, const struct view *view)
{
    reply_count(reply, bloom_filter_capacity(view->filter));
}

static void field_size(struct reply *reply, const struct view *view)
{
    reply_count(reply, bloom_filter_memory(view->filter));
}

static void field_filters(struct reply *reply, const struct view *view)
{
    reply_count(reply, bloom_filter_nlayers(view->filter));
}

static void field_items(struct reply *reply, const struct view *view)
{
    reply_count(reply, bloom_filter_items(view->filter));
}

static void field_expansion(struct reply *reply, const struct view *view)
{
    uint32_t expansion = bloom_filter_params(view->filter)->expansion;
    if (expansion == 0)
        reply_null(reply); /* a fixed filter has none */
    else
        reply_integer(reply, expansion);
}

static void field_error(struct reply *reply, const struct view *view)
{
    reply_double(reply, bloom_filter_params(view->filter)->error_rate);
}

static void field_predicted(struct reply *reply, const struct view *view)
{
    double log_absent = 0;
    for (unsigned i = 0; i < view->nlayers; i++) {
        const struct bloom_layer_view *layer = &view->layers[i];
        log_absent += log1p(-bloom_size_rate(layer->items, layer->shape.k, layer->shape.nwords * 64));
    }
    reply_double(reply, 0 - expm1(log_absent)); /* a difference: of an empty filter it is 0, not -0 */
}

static void field_current(struct reply *reply, const struct view *view)
{
    reply_double(reply, view->state.rate);
}

/* Of the queries for items that are not in the filter: how many said "present" nevertheless, as far as was reported. */
static void field_observed(struct reply *reply, const struct view *view)
{
    if (view->usage.wrong == 0)
        reply_null(reply);
    else
        reply_double(reply, (double)view->usage.wrong / ((double)view->usage.wrong + (double)view->usage.misses));
}

static void field_fill(struct reply *reply, const struct view *view)
{
    reply_double(reply, view->state.fill_ratio);
}

static void field_estimate(struct reply *reply, const struct view *view)
{
    reply_count(reply, (uint64_t)llround(view->state.estimated_items));
}

static void field_bits(struct reply *reply, const struct view *view)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < view->nlayers; i++)
        bits += view->layers[i].shape.nwords * 64;
    reply_count(reply, bits);
}

static void field_bits_set(struct reply *reply, const struct view *view)
{
    reply_count(reply, view->state.bits_set);
}

static void field_hashes(struct reply *reply, const struct view *view)
{
    reply_integer(reply, view->layers[view->nlayers - 1].shape.k);
}

static void field_layout(struct reply *reply, const struct view *view)
{
    static const char *const names[] = {[BLOOM_NA] = "na", [BLOOM_ME] = "me", [BLOOM_KA] = "ka"};
    reply_bulk_str(reply, names[view->layers[0].shape.variant]);
}

static void field_hits(struct reply *reply, const struct view *view)
{
    reply_count(reply, view->usage.hits);
}

static void field_misses(struct reply *reply, const struct view *view)
{
    reply_count(reply, view->usage.misses);
}

static void field_wrong(struct reply *reply, const struct view *view)
{
    reply_count(reply, view->usage.wrong);
}

static void field_since(struct reply *reply, const struct view *view)
{
    if (view->usage.since_s == 0)
        reply_null(reply);
    else
        reply_integer(reply, view->usage.since_s);
}

static void field_layers(struct reply *reply, const struct view *view)
{
    reply_array(reply, view->nlayers);
    for (unsigned i = 0; i < view->nlayers; i++) {
        const struct bloom_layer_view *layer = &view->layers[i];
        const struct bloom_state *state = &view->layer_states[i];
        reply_map(reply, 9);
        reply_status(reply, "Capacity");
        reply_count(reply, layer->capacity);
        reply_status(reply, "Number of items inserted");
        reply_count(reply, layer->items);
        reply_status(reply, "Estimated items");
        reply_count(reply, (uint64_t)llround(state->estimated_items));
        reply_status(reply, "Error rate");
        reply_double(reply, layer->error_rate);
        reply_status(reply, "Current error rate");
        reply_double(reply, state->rate);
        reply_status(reply, "Fill ratio");
        reply_double(reply, state->fill_ratio);
        reply_status(reply, "Hashes");
        reply_integer(reply, layer->shape.k);
        reply_status(reply, "Bits");
        reply_count(reply, state->bits);
        reply_status(reply, "Bits set");
        reply_count(reply, state->bits_set);
    }
}

/* The first DEFAULT_FIELDS are RedisBloom's, in its order. */
static const struct field fields[] = {
    {"CAPACITY", "Capacity", field_capacity, false},
    {"SIZE", "Size", field_size, false},
    {"FILTERS", "Number of filters", field_filters, false},
    {"ITEMS", "Number of items inserted", field_items, false},
    {"EXPANSION", "Expansion rate", field_expansion, false},
    {"ERRORRATE", "Error rate", field_error, false},
    {"PREDICTEDRATE", "Predicted error rate", field_predicted, false},
    {"CURRENTRATE", "Current error rate", field_current, true},
    {"OBSERVEDRATE", "Observed error rate", field_observed, false},
    {"FILL", "Fill ratio", field_fill, true},
    {"ESTIMATE", "Estimated items", field_estimate, true},
    {"BITS", "Bits", field_bits, false},
    {"BITSSET", "Bits set", field_bits_set, true},
    {"HASHES", "Hashes", field_hashes, false},
    {"LAYOUT", "Layout", field_layout, false},
    {"HITS", "Hits", field_hits, false},
    {"MISSES", "Misses", field_misses, false},
    {"FALSEPOSITIVES", "False positives reported", field_wrong, false},
    {"SINCE", "Counted since", field_since, false},
    {"LAYERS", "Layers", field_layers, true},
};
#define FIELDS         (sizeof(fields) / sizeof(fields[0]))
#define DEFAULT_FIELDS 5

/* ---- replies ----------------------------------------------------------------------------------------------------- */

/* What is asked for: fields[first] and those behind it. */
struct choice {
    size_t first, n;
    bool needs_bits;
};

static void take_view(struct server *server, struct entry *entry, const struct choice *choice, struct view *view_out)
{
    view_out->filter = entry_filter(entry);
    server_usage(server, entry->id, &view_out->usage);
    view_out->nlayers = bloom_filter_nlayers(view_out->filter);
    for (unsigned i = 0; i < view_out->nlayers; i++) {
        bloom_filter_layer(view_out->filter, i, &view_out->layers[i]);
        if (choice->needs_bits)
            bloom_layer_state(&view_out->layers[i], &view_out->layer_states[i]);
    }
    if (choice->needs_bits)
        bloom_chain_state(view_out->layer_states, view_out->nlayers, &view_out->state);
}

/* RESP2 gives one field alone without its name, RESP3 as a map of one. */
static void reply_view(struct reply *reply, const struct view *view, const struct choice *choice)
{
    bool names = choice->n > 1 || reply->version >= 3;
    if (names)
        reply_map(reply, choice->n);
    else
        reply_array(reply, 1);
    for (size_t i = choice->first; i < choice->first + choice->n; i++) {
        if (names)
            reply_status(reply, fields[i].name);
        fields[i].reply(reply, view);
    }
}

struct info_job {
    struct choice choice;
    size_t name_len;
    char name[];
};

static void run_info_job(struct command_job *job)
{
    const struct info_job *info = job->data;
    struct entry *entry = registry_pin(job->server->registry, (struct slice){info->name, info->name_len});
    if (!entry || !entry_filter(entry)) {
        reply_error(&job->reply, "ERR not found"); /* it was there a moment ago */
    } else {
        struct view view;
        rcu_reader_offline(); /* the pin keeps the filter alive, and what others remove can be freed meanwhile */
        take_view(job->server, entry, &info->choice, &view);
        rcu_reader_online();
        reply_view(&job->reply, &view, &info->choice);
    }
    if (entry)
        registry_unpin(entry);
}

static void defer_info(struct command_ctx *ctx, const struct choice *choice)
{
    struct slice name = command_arg(ctx, 1);
    struct info_job *info = malloc(sizeof(*info) + name.len);
    if (!info) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    info->choice = *choice;
    info->name_len = name.len;
    if (name.len)
        memcpy(info->name, name.ptr, name.len);
    command_defer(ctx, run_info_job, info);
}

static bool choose(struct slice word, struct choice *choice_out)
{
    if (slice_is(word, "FULL")) {
        *choice_out = (struct choice){.n = FIELDS, .needs_bits = true};
        return true;
    }
    for (size_t i = 0; i < FIELDS; i++) {
        if (slice_is(word, fields[i].option)) {
            *choice_out = (struct choice){.first = i, .n = 1, .needs_bits = fields[i].needs_bits};
            return true;
        }
    }
    return false;
}

void cmd_bf_info(struct command_ctx *ctx)
{
    if (command_argc(ctx) > 3) {
        reply_error(ctx->reply, "ERR wrong number of arguments for 'bf.info' command");
        return;
    }
    struct bf_call call = bf_call_of(ctx);
    bool replied;
    struct bloom_filter *filter = bf_filter(&call, &replied);
    struct choice choice = {.n = DEFAULT_FIELDS};
    if (!filter) {
        if (!replied)
            reply_error(ctx->reply, "ERR not found");
    } else if (command_argc(ctx) == 3 && !choose(command_arg(ctx, 2), &choice)) {
        reply_error(ctx->reply, "Invalid information value");
    } else if (choice.needs_bits && bloom_filter_memory(filter) > COUNT_INLINE_BYTES) {
        defer_info(ctx, &choice);
    } else {
        struct view view;
        take_view(ctx->server, call.entry, &choice, &view);
        reply_view(ctx->reply, &view, &choice);
    }
}

void cmd_bf_card(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    bool replied;
    struct bloom_filter *filter = bf_filter(&call, &replied);
    if (!replied)
        reply_integer(ctx->reply, filter ? (int64_t)bloom_filter_items(filter) : 0);
}

/* ---- BF.FALSEPOSITIVE -------------------------------------------------------------------------------------------- */

void cmd_bf_falsepositive(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct usage_counts usage;
    bool replied;
    int64_t count = 1;
    if (command_argc(ctx) > 3) {
        reply_wrong_arity(ctx);
        return;
    }
    if (command_argc(ctx) == 3 && (!slice_to_int64(command_arg(ctx, 2), &count) || count < 1 || count > UINT32_MAX)) {
        reply_errorf(ctx->reply, "ERR count must be an integer in the range [1, %u]", UINT32_MAX);
        return;
    }
    if (!bf_filter(&call, &replied)) {
        if (!replied)
            reply_error(ctx->reply, "ERR not found");
        return;
    }
    stats_add(&ctx->stats->false_positives, (uint64_t)count);
    usage_count(ctx->stats->usage, call.entry->id, 0, 0, (uint64_t)count);
    server_usage(ctx->server, call.entry->id, &usage);
    reply_count(ctx->reply, usage.wrong);
}
