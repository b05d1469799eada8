/* bloomery plan: BF.PLAN without a server. Words, errors and numbers are those of the command (bf/); its reply becomes
 * lines, or JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bf_info.h"
#include "bf_request.h"
#include "output.h"

#define COMMAND "plan"
#define DEPTH   4 /* of a reply: a map, an array of layers, a map for each */

/* The map or array that is being written. */
struct aggregate {
    bool map;
    size_t left;   /* elements; in a map names and values together */
    unsigned nth;  /* of the array that it is in, from 1 on; 0: it is in none */
    bool has_some; /* values */
};

struct plan_output {
    struct buf *json; /* NULL: lines */
    struct aggregate open[DEPTH];
    unsigned depth, layers; /* layers so far */
    char name[64];          /* of the value that follows */
    char error[256];
};

/* Whether the next element is a name. */
static bool is_name(const struct plan_output *out)
{
    return out->depth && out->open[out->depth - 1].map && out->open[out->depth - 1].left % 2 == 0;
}

static const char *key_of(const struct plan_output *out)
{
    return out->depth && out->open[out->depth - 1].map ? out->name : NULL;
}

/* Ends an element, and also the aggregates that it completes. */
static void end_element(struct plan_output *out)
{
    while (out->depth && --out->open[out->depth - 1].left == 0) {
        const struct aggregate *top = &out->open[--out->depth];
        if (out->json && (out->depth || !top->map))
            json_end(out->json, top->map ? '}' : ']');
        else if (!out->json && top->nth)
            printf("\n");
    }
}

static void print_value(struct plan_output *out, const char *value)
{
    struct aggregate *top = &out->open[out->depth - 1];
    if (out->depth == 1)
        printf("%-30s %s\n", out->name, value);
    else
        printf("%s%s %s", top->has_some ? ", " : "", out->name, value);
    top->has_some = true;
}

static void begin(struct plan_output *out, bool map, size_t n)
{
    struct aggregate *top = &out->open[out->depth];
    bool in_array = out->depth && !out->open[out->depth - 1].map;
    *top = (struct aggregate){.map = map, .left = map ? 2 * n : n, .nth = in_array ? ++out->layers : 0};
    if (out->json && out->depth)
        json_begin(out->json, key_of(out), map ? '{' : '[');
    else if (!out->json && in_array)
        printf("Layer %u: ", out->layers);
    out->depth++;
}

/* ---- as a host of bf ---- */

static void put_text(void *ctx, const char *text)
{
    struct plan_output *out = ctx;
    if (is_name(out))
        snprintf(out->name, sizeof(out->name), "%s", text);
    else if (out->json)
        json_str(out->json, key_of(out), text);
    else
        print_value(out, text);
    end_element(out);
}

static void put_bytes(void *ctx, const void *bytes, size_t n)
{
    char text[256];
    snprintf(text, sizeof(text), "%.*s", (int)n, (const char *)bytes);
    put_text(ctx, text);
}

static void put_error(void *ctx, const char *text)
{
    struct plan_output *out = ctx;
    snprintf(out->error, sizeof(out->error), "%s", text);
}

static void put_integer(void *ctx, int64_t value)
{
    struct plan_output *out = ctx;
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64, value);
    if (out->json)
        json_count(out->json, key_of(out), (uint64_t)value);
    else
        print_value(out, text);
    end_element(out);
}

static void put_real(void *ctx, double value)
{
    struct plan_output *out = ctx;
    char text[32];
    snprintf(text, sizeof(text), "%.4g", value);
    if (out->json)
        json_real(out->json, key_of(out), value);
    else
        print_value(out, text);
    end_element(out);
}

static void put_null(void *ctx)
{
    struct plan_output *out = ctx;
    if (out->json)
        json_null(out->json, key_of(out));
    else
        print_value(out, "none");
    end_element(out);
}

static void put_boolean(void *ctx, bool value)
{
    put_text(ctx, value ? "yes" : "no");
}

static void put_array(void *ctx, size_t n)
{
    begin(ctx, false, n);
}

static void put_map(void *ctx, size_t pairs)
{
    begin(ctx, true, pairs);
}

static const struct bf_out_ops ops = {.status = put_text,
                                      .error = put_error,
                                      .integer = put_integer,
                                      .real = put_real,
                                      .boolean = put_boolean,
                                      .null = put_null,
                                      .bytes = put_bytes,
                                      .array = put_array,
                                      .map = put_map};

/* ---- the command ---- */

/* Word 0 is the command's name. */
static struct slice word_at(const void *ctx, size_t i)
{
    const struct tool_args *args = ctx;
    const char *word = i ? args->positional[i - 1] : "bf.plan";
    return slice_of(word);
}

/* The text of an error reply without its code. */
static const char *without_code(const char *text)
{
    return strncmp(text, "ERR ", 4) == 0 ? text + 4 : text;
}

static int run(const struct tool_args *args)
{
    const struct bf_args words = {args->npositional + 1, word_at, args, "bf.plan"};
    const struct bf_defaults defaults = {.params = {.capacity = 100, .error_rate = 0.01, .expansion = 2}};
    struct plan_output plan = {.depth = 0};
    const struct bf_out out = {.ops = &ops, .ctx = &plan, .limits = "", .maps = true};
    struct bf_plan requested;
    struct errbuf err = {{0}};
    struct output json;
    if (!bf_read_plan(&words, &defaults, &requested, &err))
        return tool_misused(COMMAND, "%s", without_code(err.text));
    plan.json = output_single(&json, args);
    bf_reply_plan(&out, &requested);
    if (plan.error[0]) {
        output_drop(&json);
        return tool_failed(COMMAND, "%s", without_code(plan.error));
    }
    if (plan.json)
        json_end(plan.json, '}');
    return output_end(&json, TOOL_OK);
}

static const struct tool_option options[] = {
    {.name = "--json", .doc = "The reply as an object, with the names of BF.PLAN."},
    {.name = NULL},
};

const struct tool_command tool_plan_command = {
    .name = COMMAND,
    .arguments = "RATE CAPACITY [WORD...]",
    .summary = "Computes the size and the rates of a filter, as BF.PLAN does, without a server.",
    .text =
        "RATE is the requested rate of false positives, CAPACITY the number of items of the first layer. The options "
        "are those of BF.PLAN:\n"
        "  EXPANSION N, NONSCALING         how the filter grows; without either, each layer has twice the items\n"
        "  LAYOUT na|redisbloom            na without it\n"
        "  WINDOW SECONDS|ITEMS N, PARTS N, REFRESH   a filter that forgets\n"
        "  ITEMS N                         how many items it will have; without it those of the first layer",
    .options = options,
    .examples = "bloomery plan 0.001 1000000\n"
                "bloomery plan 0.01 100000 EXPANSION 4 ITEMS 5000000 --json\n"
                "bloomery plan 0.01 1000000 WINDOW 86400 PARTS 24",
    .run = run,
};
