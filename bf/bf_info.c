#include "bf_info.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bf_valkey.h"
#include "bloom_layout.h"
#include "bloom_state.h"
#include "bloom_window.h"
#include "redisbloom.h"

/* The filter that a reply describes. */
struct view {
    const struct bloom_filter *filter;
    const struct bf_usage *usage;
    struct bloom_state state; /* of all layers; this and layer_states are valid if a field needs the bits */
    unsigned nlayers;
    struct bloom_layer_view *layers; /* nlayers */
    struct bloom_state *layer_states;
    bool evicted; /* its bits are not in memory */
    const struct bf_choice *choice;
    struct bloom_window_state window; /* valid if it is one */
};

struct field {
    const char *option, *name;
    void (*reply)(const struct bf_out *out, const struct view *view);
    bool needs_bits;
    bool of_window; /* FULL has it for windows only */
    bool of_keyed;  /* FULL has it for KEYED filters only */
    bool of_scaled; /* only filters with a tightening ratio that scale have it */
};

/* ---- fields ---- */

/* Fields that are numbers. */
#define COUNTED(name, number)                                                   \
    static void field_##name(const struct bf_out *out, const struct view *view) \
    {                                                                           \
        bf_out_count(out, (uint64_t)(number));                                  \
    }

#define REAL(name, number)                                                      \
    static void field_##name(const struct bf_out *out, const struct view *view) \
    {                                                                           \
        out->ops->real(out->ctx, number);                                       \
    }

COUNTED(capacity, bloom_filter_capacity(view->filter))
COUNTED(size, view->choice->valkey &&bloom_params_have_seed(bloom_filter_params(view->filter))
                  ? bf_valkey_size(view->filter)
                  : bloom_filter_memory(view->filter))
REAL(tightening, bloom_filter_params(view->filter)->tightening)
COUNTED(most, bf_valkey_most(bloom_filter_params(view->filter), view->choice->limit))
COUNTED(filters, bloom_filter_nlayers(view->filter))
COUNTED(items, bloom_filter_items(view->filter))

static void field_expansion(const struct bf_out *out, const struct view *view)
{
    uint32_t expansion = bloom_filter_params(view->filter)->expansion;
    if (expansion == 0)
        out->ops->null(out->ctx); /* a fixed filter has none */
    else
        bf_out_count(out, expansion);
}

REAL(error, bloom_filter_params(view->filter)->error_rate)

static void field_predicted(const struct bf_out *out, const struct view *view)
{
    double log_absent = 0;
    for (unsigned i = 0; i < view->nlayers; i++) {
        const struct bloom_layer_view *layer = &view->layers[i];
        log_absent += log1p(-bloom_shape_rate(&layer->shape, layer->items));
    }
    out->ops->real(out->ctx, 0 - expm1(log_absent)); /* a difference: of an empty filter it is 0, not -0 */
}

REAL(current, view->state.rate)

/* The share of queries for absent items that were answered "present", as far as clients reported them. */
static void field_observed(const struct bf_out *out, const struct view *view)
{
    /* An empty filter has never replied "present": reports about it mean nothing. */
    if (view->usage->wrong == 0 || bloom_filter_items(view->filter) == 0)
        out->ops->null(out->ctx);
    else
        out->ops->real(out->ctx,
                       (double)view->usage->wrong / ((double)view->usage->wrong + (double)view->usage->misses));
}

REAL(fill, view->state.fill_ratio)

COUNTED(estimate, llround(view->state.estimated_items))

static void field_bits(const struct bf_out *out, const struct view *view)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < view->nlayers; i++)
        bits += bloom_shape_bits(&view->layers[i].shape);
    bf_out_count(out, bits);
}

COUNTED(bits_set, view->state.bits_set)
COUNTED(hashes, view->layers[view->nlayers - 1].shape.k)

static void field_layout(const struct bf_out *out, const struct view *view)
{
    bf_out_text(out, bloom_variant_name(view->layers[0].shape.variant));
}

COUNTED(hits, view->usage->hits)
COUNTED(misses, view->usage->misses)
COUNTED(wrong, view->usage->wrong)

static void field_since(const struct bf_out *out, const struct view *view)
{
    if (view->usage->since_s == 0)
        out->ops->null(out->ctx);
    else
        out->ops->integer(out->ctx, view->usage->since_s);
}

COUNTED(resident, !view->evicted)

static void field_layers(const struct bf_out *out, const struct view *view)
{
    out->ops->array(out->ctx, view->nlayers);
    for (unsigned i = 0; i < view->nlayers; i++) {
        const struct bloom_layer_view *layer = &view->layers[i];
        const struct bloom_state *state = &view->layer_states[i];
        out->ops->map(out->ctx, 9);
        bf_out_named_count(out, "Capacity", layer->capacity);
        bf_out_named_count(out, "Number of items inserted", layer->items);
        bf_out_named_count(out, "Estimated items", (uint64_t)llround(state->estimated_items));
        bf_out_named_real(out, "Error rate", layer->error_rate);
        bf_out_named_real(out, "Current error rate", state->rate);
        bf_out_named_real(out, "Fill ratio", state->fill_ratio);
        bf_out_named_count(out, "Hashes", layer->shape.k);
        bf_out_named_count(out, "Bits", state->bits);
        bf_out_named_count(out, "Bits set", state->bits_set);
    }
}

/* ---- fields of windows: null where the filter is none ---- */

static bool is_window(const struct bf_out *out, const struct view *view)
{
    if (bloom_filter_forgets(view->filter))
        return true;
    out->ops->null(out->ctx);
    return false;
}

static void window_text(const struct bf_out *out, const struct bloom_params *params)
{
    bool by_items = params->window_flags & BLOOM_WINDOW_ITEMS;
    char text[64];
    snprintf(text, sizeof(text), "%" PRIu64 " %s%s", by_items ? params->window : params->window / 1000000,
             by_items ? "items" : "seconds", params->window_flags & BLOOM_WINDOW_REFRESH ? " refresh" : "");
    bf_out_text(out, text);
}

static void field_window(const struct bf_out *out, const struct view *view)
{
    if (is_window(out, view))
        window_text(out, bloom_filter_params(view->filter));
}

static void field_parts(const struct bf_out *out, const struct view *view)
{
    if (is_window(out, view))
        bf_out_count(out, bloom_filter_params(view->filter)->window_parts);
}

static double seconds_since(const struct view *view, int64_t us)
{
    int64_t age = bloom_window_now_us(view->filter) - us;
    return age > 0 ? (double)age / 1e6 : 0;
}

static void field_oldest(const struct bf_out *out, const struct view *view)
{
    if (!is_window(out, view))
        return;
    if (view->window.parts == 0)
        out->ops->null(out->ctx);
    else
        out->ops->real(out->ctx, seconds_since(view, view->window.oldest_us));
}

/* One for each living part, from the newest on; a part may have several layers. */
static void reply_part(const struct bf_out *out, const struct view *view, uint64_t turn)
{
    uint64_t items = 0, bits = 0, set = 0, capacity = 0;
    int64_t started_us = 0;
    for (unsigned i = 0; i < view->nlayers; i++) {
        const struct bloom_layer_view *layer = &view->layers[i];
        if (layer->turn != turn || layer->forgotten)
            continue;
        items += layer->items;
        capacity += layer->capacity;
        bits += view->layer_states[i].bits;
        set += view->layer_states[i].bits_set;
        started_us = layer->started_us;
    }
    out->ops->map(out->ctx, 5);
    bf_out_named_count(out, "Part", turn);
    bf_out_named_real(out, "Age", seconds_since(view, started_us));
    bf_out_named_count(out, "Number of items inserted", items);
    bf_out_named_count(out, "Capacity", capacity);
    bf_out_named_real(out, "Fill ratio", bits ? (double)set / (double)bits : 0);
}

/* The newest living part below this number; 0: none. */
static uint64_t part_below(const struct view *view, uint64_t limit)
{
    uint64_t found = 0;
    for (unsigned i = 0; i < view->nlayers; i++) {
        uint64_t turn = view->layers[i].turn;
        if (!view->layers[i].forgotten && turn < limit && turn > found)
            found = turn;
    }
    return found;
}

static void field_ring(const struct bf_out *out, const struct view *view)
{
    size_t parts = 0;
    if (!is_window(out, view))
        return;
    for (uint64_t turn = UINT64_MAX; (turn = part_below(view, turn)) != 0; parts++)
        continue;
    out->ops->array(out->ctx, parts);
    for (uint64_t turn = UINT64_MAX; (turn = part_below(view, turn)) != 0;)
        reply_part(out, view, turn);
}

static void field_key(const struct bf_out *out, const struct view *view)
{
    uint64_t key = bloom_filter_params(view->filter)->key;
    char text[BF_KEY_TEXT];
    if (key)
        bf_out_text(out, bf_key_text(key, text));
    else
        out->ops->null(out->ctx);
}

/* The first VALKEY_FIELDS are valkey-bloom's, in its order; those from SCALED_FIELDS on only filters that scale have.
 * The next DEFAULT_FIELDS are RedisBloom's. */
static const struct field fields[] = {
    {"CAPACITY", "Capacity", field_capacity, false},
    {"SIZE", "Size", field_size, false},
    {"FILTERS", "Number of filters", field_filters, false},
    {"ITEMS", "Number of items inserted", field_items, false},
    {"ERROR", "Error rate", field_error, false},
    {"EXPANSION", "Expansion rate", field_expansion, false},
    {"TIGHTENING", "Tightening ratio", field_tightening, .of_scaled = true},
    {"MAXSCALEDCAPACITY", "Max scaled capacity", field_most, .of_scaled = true},
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
    {"RESIDENT", "Resident", field_resident, false},
    {"WINDOW", "Window", field_window, false, true},
    {"PARTS", "Parts", field_parts, false, true},
    {"OLDEST", "Oldest part", field_oldest, false, true},
    {"RING", "Ring", field_ring, true, true},
    {"KEY", "Key", field_key, .of_keyed = true},
    {"LAYERS", "Layers", field_layers, true},
    {"TIGHTENING", "Tightening ratio", field_tightening, .of_scaled = true},
    {"MAXSCALEDCAPACITY", "Max scaled capacity", field_most, .of_scaled = true},
};
#define FIELDS         (sizeof(fields) / sizeof(fields[0]))
#define VALKEY_FIELDS  8
#define DEFAULT_FIELDS 5

bool bf_read_info(const struct bf_args *args, struct bf_choice *choice_out, struct errbuf *error)
{
    size_t first = args->valkey ? 0 : VALKEY_FIELDS;
    *choice_out =
        (struct bf_choice){.valkey = args->valkey, .first = first, .n = args->valkey ? VALKEY_FIELDS : DEFAULT_FIELDS};
    if (args->argc < 2 || args->argc > 3)
        return bf_wrong_arity(args, error);
    if (args->argc == 2)
        return true;
    if (slice_is(bf_arg(args, 2), "FULL")) {
        choice_out->first = VALKEY_FIELDS;
        choice_out->n = FIELDS - VALKEY_FIELDS;
        choice_out->needs_bits = true;
        return true;
    }
    for (size_t n = 0; n < FIELDS; n++) {
        size_t i = (first + n) % FIELDS;
        if (slice_is(bf_arg(args, 2), fields[i].option)) {
            choice_out->first = i;
            choice_out->n = 1;
            choice_out->needs_bits = fields[i].needs_bits;
            return true;
        }
    }
    return bf_refuse(error, args->valkey ? "ERR invalid information value" : "Invalid information value");
}

/* Whether the filter lacks the field, which is none of RedisBloom's. */
static bool is_none_of(const struct bloom_filter *filter, size_t i)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    return fields[i].of_scaled && !(bloom_params_have_seed(params) && params->expansion);
}

bool bf_info_has(const struct bloom_filter *filter, const struct bf_choice *choice, struct errbuf *error)
{
    bool foreign = choice->first < VALKEY_FIELDS && !choice->valkey; /* its name for a field that has another one */
    if (choice->n > 1 ||
        !(is_none_of(filter, choice->first) || (foreign && !bloom_params_have_seed(bloom_filter_params(filter)))))
        return true;
    return bf_refuse(error, choice->valkey ? "ERR invalid information value" : "Invalid information value");
}

static int take_view(struct view *view, const struct bloom_filter *filter, bool needs_bits)
{
    view->filter = filter;
    if (bloom_filter_forgets(filter))
        bloom_window_state(filter, &view->window);
    view->nlayers = bloom_filter_nlayers(filter);
    view->layers = calloc(view->nlayers, sizeof(*view->layers));
    view->layer_states = calloc(view->nlayers, sizeof(*view->layer_states));
    if (!view->layers || !view->layer_states)
        return -ENOMEM;
    for (unsigned i = 0; i < view->nlayers; i++) {
        bloom_filter_layer(filter, i, &view->layers[i]);
        if (needs_bits)
            bloom_layer_state(&view->layers[i], &view->layer_states[i]);
    }
    if (needs_bits)
        bloom_chain_state(view->layer_states, view->nlayers, &view->state);
    return 0;
}

static bool is_left_out(const struct view *view, const struct bf_choice *choice, size_t i)
{
    return choice->n > 1 &&
           (is_none_of(view->filter, i) || (fields[i].of_window && !bloom_filter_forgets(view->filter)) ||
            (fields[i].of_keyed && !bloom_filter_params(view->filter)->key));
}

/* A single field is an array of its value in RESP2, a map of one pair in RESP3. */
static void reply_fields(const struct bf_out *out, const struct view *view, const struct bf_choice *choice)
{
    bool names = choice->n > 1 || (out->maps && !choice->valkey);
    size_t n = 0;
    for (size_t i = choice->first; i < choice->first + choice->n; i++)
        n += !is_left_out(view, choice, i);
    if (choice->valkey && names)
        out->ops->array(out->ctx, 2 * n);
    else if (names)
        out->ops->map(out->ctx, n);
    else if (!choice->valkey)
        out->ops->array(out->ctx, 1);
    for (size_t i = choice->first; i < choice->first + choice->n; i++) {
        if (is_left_out(view, choice, i))
            continue;
        if (names)
            out->ops->status(out->ctx, fields[i].name);
        if (fields[i].needs_bits && view->evicted)
            out->ops->null(out->ctx);
        else
            fields[i].reply(out, view);
    }
}

int bf_reply_info(const struct bf_out *out, const struct bloom_filter *filter, const struct bf_usage *usage,
                  const struct bf_choice *choice)
{
    struct view view = {.usage = usage, .evicted = choice->evicted, .choice = choice};
    int err = take_view(&view, filter, choice->needs_bits && !choice->evicted);
    if (!err)
        reply_fields(out, &view, choice);
    free(view.layers);
    free(view.layer_states);
    return err;
}

void bf_reply_debug(const struct bf_out *out, const struct bloom_filter *filter)
{
    char line[256];
    if (bloom_filter_forgets(filter))
        bloom_window_forget((struct bloom_filter *)filter);
    unsigned nlayers = bloom_filter_nlayers(filter); /* another thread may add a layer meanwhile */
    out->ops->array(out->ctx, nlayers + 1);
    snprintf(line, sizeof(line), "size:%" PRIu64, bloom_filter_items(filter));
    bf_out_text(out, line);
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view layer;
        bloom_filter_layer(filter, i, &layer);
        snprintf(line, sizeof(line),
                 "bytes:%" PRIu64 " bits:%" PRIu64 " hashes:%u hashwidth:%d capacity:%" PRIu64 " size:%" PRIu64
                 " ratio:%g",
                 bloom_shape_bytes(&layer.shape), bloom_shape_bytes(&layer.shape) * 8, layer.shape.k,
                 bloom_layout_of(layer.shape.variant)->hash == BLOOM_HASH_MURMUR2_32 ? 32 : 64, layer.capacity,
                 layer.items, layer.error_rate);
        bf_out_text(out, line);
    }
}

/* ---- BF.PLAN ---- */

static void reply_plan_layer(const struct bf_out *out, const struct bloom_plan_layer *layer)
{
    out->ops->map(out->ctx, 6);
    bf_out_named_count(out, "Capacity", layer->capacity);
    bf_out_named_real(out, "Error rate", layer->error_rate);
    bf_out_named_real(out, "Predicted error rate", layer->predicted_rate);
    bf_out_named_count(out, "Hashes", layer->k);
    bf_out_named_count(out, "Bits", layer->nwords * 64);
    bf_out_named_real(out, "Bits per item", (double)(layer->nwords * 64) / (double)layer->capacity);
}

#define FEW_LAYERS 4 /* the size of a layer in blocks takes a tenth of a millisecond */

/* Whether Cassandra's layout and blocks are compared: one of them is requested. */
static bool has_layouts(const struct bloom_params *params, const struct bloom_plan *plan)
{
    return (params->redisbloom == 0 || params->redisbloom == BLOOM_OPTION_BLOCKED) && plan->nlayers <= FEW_LAYERS;
}

/* The filter's plan in each of the two layouts: plans[0] is the requested one, and the other has room behind it. */
static void reply_layouts(const struct bf_out *out, const struct bf_plan *requested, struct bloom_plan plans[2])
{
    static const uint8_t options[] = {0, BLOOM_OPTION_BLOCKED};
    struct bloom_params params = requested->params;
    out->ops->status(out->ctx, "Layouts");
    out->ops->array(out->ctx, 2);
    for (unsigned i = 0; i < 2; i++) {
        params.redisbloom = options[i];
        bool other = options[i] != requested->params.redisbloom;
        const struct bloom_plan *plan = &plans[other];
        bool possible = !other || bloom_plan(&params, requested->items, &plans[1], NULL) == BLOOM_OK;
        out->ops->map(out->ctx, possible ? 4 : 1);
        out->ops->status(out->ctx, "Layout");
        bf_out_text(out, bloom_variant_name(bloom_params_variant(&params)));
        if (!possible) /* blocks have no such rate */
            continue;
        uint64_t lines = 0;
        for (unsigned j = 0; j < plan->nlayers; j++)
            lines += options[i] ? 1 : plan->layers[j].k;
        bf_out_named_count(out, "Size", plan->memory);
        bf_out_named_count(out, "Cache lines", lines * (params.window_parts ? params.window_parts : 1));
        bf_out_named_real(out, "Predicted error rate", plan->predicted_rate);
    }
}

static void reply_plan(const struct bf_out *out, const struct bloom_params *params, const struct bloom_plan *plan)
{
    bool window = bloom_params_is_window(params);
    out->ops->map(out->ctx, (window ? 14u : 10u) + has_layouts(params, plan));
    bf_out_named_count(out, "Capacity", plan->capacity);
    bf_out_named_count(out, "Size", plan->memory);
    bf_out_named_count(out, "Number of filters", (uint64_t)plan->nlayers * plan->parts);
    out->ops->status(out->ctx, "Expansion rate");
    if (params->expansion)
        bf_out_count(out, params->expansion);
    else
        out->ops->null(out->ctx);
    bf_out_named_real(out, "Error rate", params->error_rate);
    bf_out_named_real(out, "Predicted error rate", plan->predicted_rate);
    bf_out_named_count(out, "Hashes", plan->layers[plan->nlayers - 1].k);
    bf_out_named_count(out, "Bits", plan->bits);
    bf_out_named_real(out, "Bits per item", (double)plan->bits / (double)plan->capacity);
    if (window) {
        out->ops->status(out->ctx, "Window");
        window_text(out, params);
        bf_out_named_count(out, "Parts", params->window_parts);
        bf_out_named_count(out, "Parts in memory", plan->parts);
        bf_out_named_real(out, "Predicted error rate of a part", plan->part_rate);
    }
    out->ops->status(out->ctx, "Layers");
    out->ops->array(out->ctx, plan->nlayers);
    for (unsigned i = 0; i < plan->nlayers; i++)
        reply_plan_layer(out, &plan->layers[i]);
}

/* A plan has up to 1,024 layers: not on the stack. */
void bf_reply_plan(const struct bf_out *out, const struct bf_plan *requested)
{
    struct errbuf err = {""};
    struct bloom_plan *plan = malloc(2 * sizeof(*plan));
    if (!plan)
        out->ops->error(out->ctx, "ERR out of memory");
    else if (bloom_plan(&requested->params, requested->items, plan, &err) != BLOOM_OK)
        bf_out_errorf(out, "ERR %s", err.text);
    else {
        reply_plan(out, &requested->params, plan);
        if (has_layouts(&requested->params, plan))
            reply_layouts(out, requested, plan);
    }
    free(plan);
}

bool bf_rate_is_off(const struct bloom_filter *filter, struct errbuf *text_out)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct bloom_layer_view layer;
    if (params->redisbloom == 0 || params->redisbloom == BLOOM_OPTION_BLOCKED) /* these keep it */
        return false;
    const char *layout = bloom_params_have_seed(params) ? "valkey-bloom" : "RedisBloom";
    bloom_filter_layer(filter, 0, &layer);
    double rate = bloom_shape_rate(&layer.shape, layer.capacity);
    if (rate <= 2 * params->error_rate)
        return false;
    errbuf_set(text_out,
               "a new filter for %" PRIu64
               " items at the error rate %g will have a rate of about %.2g: %s's layout does "
               "not keep low rates in small filters; LAYOUT na does (docs/SIZING.md)",
               layer.capacity, params->error_rate, rate, layout);
    return true;
}
