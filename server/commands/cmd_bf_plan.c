/* BF.PLAN: what a filter would cost and give, with nothing allocated. */
#include "bf.h"
#include "bloom_plan.h"
#include "command.h"
#include "handlers.h"

/* ITEMS n: how many the filter is to take in the end. */
static bool plan_option(struct command_ctx *ctx, size_t *i, void *more)
{
    int64_t *items = more;
    if (!slice_is(command_arg(ctx, *i), "ITEMS"))
        return false;
    if (++*i == command_argc(ctx) || !slice_to_int64(command_arg(ctx, *i), items) || *items < 1) {
        reply_error(ctx->reply, "ERR bad number of items");
        return false;
    }
    return true;
}

static void reply_named_integer(struct reply *reply, const char *name, uint64_t value)
{
    reply_status(reply, name);
    reply_integer(reply, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void reply_named_double(struct reply *reply, const char *name, double value)
{
    reply_status(reply, name);
    reply_double(reply, value);
}

static void reply_layer(struct reply *reply, const struct bloom_plan_layer *layer)
{
    reply_map(reply, 6);
    reply_named_integer(reply, "Capacity", layer->capacity);
    reply_named_double(reply, "Error rate", layer->error_rate);
    reply_named_double(reply, "Predicted error rate", layer->predicted_rate);
    reply_named_integer(reply, "Hashes", layer->k);
    reply_named_integer(reply, "Bits", layer->nwords * 64);
    reply_named_double(reply, "Bits per item", (double)(layer->nwords * 64) / (double)layer->capacity);
}

static void reply_plan(struct reply *reply, const struct bloom_params *params, const struct bloom_plan *plan)
{
    reply_map(reply, 10);
    reply_named_integer(reply, "Capacity", plan->capacity);
    reply_named_integer(reply, "Size", plan->memory);
    reply_named_integer(reply, "Number of filters", plan->nlayers);
    reply_status(reply, "Expansion rate");
    if (params->expansion)
        reply_integer(reply, params->expansion);
    else
        reply_null(reply);
    reply_named_double(reply, "Error rate", params->error_rate);
    reply_named_double(reply, "Predicted error rate", plan->predicted_rate);
    reply_named_integer(reply, "Hashes", plan->layers[plan->nlayers - 1].k);
    reply_named_integer(reply, "Bits", plan->bits);
    reply_named_double(reply, "Bits per item", (double)plan->bits / (double)plan->capacity);
    reply_status(reply, "Layers");
    reply_array(reply, plan->nlayers);
    for (unsigned i = 0; i < plan->nlayers; i++)
        reply_layer(reply, &plan->layers[i]);
}

void cmd_bf_plan(struct command_ctx *ctx)
{
    struct bloom_params params = {.expansion = (uint32_t)server_config(ctx->server)->bf_expansion_factor};
    struct bloom_plan plan;
    struct errbuf err = {""};
    int64_t capacity, items = 0;
    if (!bf_read_rate(ctx, 1, &params.error_rate))
        return;
    if (!bf_read_capacity(ctx, 2, &capacity))
        return;
    if (!bf_read_scaling(ctx, 3, "BF.PLAN takes EXPANSION n, NONSCALING and ITEMS n", &params, plan_option, &items))
        return;
    if (!bf_take_capacity(ctx, capacity, &params))
        return;
    if (bloom_plan(&params, (uint64_t)items, &plan, &err) != BLOOM_OK)
        reply_errorf(ctx->reply, "ERR %s", err.text);
    else
        reply_plan(ctx->reply, &params, &plan);
}
