/* bloomery fill: adds the items of a file or a pipe to a filter of a running server.
 *
 * Batches of BF.INSERT go out in a pipeline, always with NOCREATE: a filter that is deleted meanwhile must not come
 * back with a part of the items. Nothing is sent twice: a lost connection ends the command with the number of
 * acknowledged items. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "item_input.h"
#include "log_text.h"
#include "output.h"
#include "server_call.h"

#define COMMAND      "fill"
#define LOCAL        "redis://127.0.0.1"
#define PIPELINE     256        /* batches without an answer */
#define QUEUED_BYTES (1u << 20) /* of items, before they are sent */
#define DEFAULT_RATE 0.01

struct fill {
    struct server_call server;
    struct item_input input;
    const char *name;
    bool makes, demands_new, keyed;
    bool made; /* the filter, by this run */
    double rate;
    uint64_t capacity; /* 0: as many as there are items */

    struct {
        size_t items[PIPELINE]; /* of the batches without an answer, a ring */
        unsigned first, n;
        size_t queued; /* bytes */
    } waiting;
    uint64_t sent, acknowledged, added;
    struct errbuf reason; /* the reason to stop; empty: none */
};

/* ---- the filter ---- */

static bool says_exists(const struct resp_reply *reply)
{
    static const char text[] = "item exists"; /* the text of RedisBloom */
    struct slice error = resp_reply_text(reply, 0);

    return reply->nodes[0].kind == RESP_REPLY_ERROR && memmem(error.ptr, error.len, text, strlen(text));
}

static int demand_filter(struct fill *fill)
{
    struct resp_reply reply;

    PEER_PUT(&fill->server.peer, slice_of("EXISTS"), slice_of(fill->name));
    int rc = server_call_reply(&fill->server, &reply);
    if (rc == TOOL_OK && (reply.nodes[0].kind != RESP_REPLY_INTEGER || reply.nodes[0].number != 1))
        return tool_failed(COMMAND, "%s: no filter '%s'; use --error and --capacity to create it",
                           fill->server.url.shown, fill->name);
    return rc;
}

static int make_filter(struct fill *fill)
{
    char rate[32], capacity[PEER_NUMBER_SIZE];
    struct errbuf err = {{0}};
    struct resp_reply reply;

    snprintf(rate, sizeof(rate), "%.17g", fill->rate);
    const struct slice words[] = {slice_of("BF.RESERVE"), slice_of(fill->name), slice_of(rate),
                                  peer_number((int64_t)fill->capacity, capacity), slice_of("KEYED")};
    peer_put(&fill->server.peer, words, fill->keyed ? 5 : 4);
    if (peer_reply(&fill->server.peer, &reply, &err) != 0)
        return tool_failed(COMMAND, "%s: %s", fill->server.url.shown, err.text);
    if (says_exists(&reply) && fill->demands_new)
        return tool_failed(COMMAND, "%s: '%s' exists, but --new requires a new name", fill->server.url.shown,
                           fill->name);
    if (says_exists(&reply))
        return TOOL_OK;
    if (reply.nodes[0].kind == RESP_REPLY_ERROR) {
        struct slice text = resp_reply_text(&reply, 0);
        return tool_failed(COMMAND, "%s: cannot create '%s': %.*s", fill->server.url.shown, fill->name, (int)text.len,
                           text.ptr);
    }
    fill->made = true;
    return TOOL_OK;
}

/* ---- items ---- */

/* Keeps the first reason: later ones are its consequences. */
static void stop(struct fill *fill, struct slice reason)
{
    if (fill->reason.text[0] == '\0')
        errbuf_set(&fill->reason, "%.*s", (int)reason.len, reason.ptr);
}

static void lose_server(struct fill *fill, const struct errbuf *err)
{
    stop(fill, slice_of(err->text));
    peer_close(&fill->server.peer);
}

/* A reply has a number for each item, and at the first refused one an error. */
static void count_answer(struct fill *fill, const struct resp_reply *reply, size_t items)
{
    size_t numbers = 0;

    for (size_t i = reply->nodes[0].kind == RESP_REPLY_ARRAY; i < reply->count; i++) {
        const struct resp_reply_node *node = &reply->nodes[i];
        if (node->kind == RESP_REPLY_ERROR)
            stop(fill, resp_reply_text(reply, i));
        if (i == 0 || node->kind != RESP_REPLY_INTEGER || node->number < 0 || node->number > 1 || numbers == items)
            break;
        numbers++;
        fill->added += (uint64_t)node->number;
    }
    fill->acknowledged += numbers;
    if (numbers != items || reply->count != items + 1)
        stop(fill, slice_of("the reply to BF.INSERT does not have a number for each item"));
}

static void take_answer(struct fill *fill)
{
    struct errbuf err = {{0}};
    struct resp_reply reply;

    if (peer_reply(&fill->server.peer, &reply, &err) != 0) {
        lose_server(fill, &err);
        return;
    }
    fill->waiting.queued = 0;
    count_answer(fill, &reply, fill->waiting.items[fill->waiting.first]);
    fill->waiting.first = (fill->waiting.first + 1) % PIPELINE;
    fill->waiting.n--;
}

static void take_answers(struct fill *fill, unsigned left)
{
    while (fill->waiting.n > left && peer_is_open(&fill->server.peer))
        take_answer(fill);
}

static void put_batch(struct fill *fill, const struct item_batch *batch)
{
    struct slice words[4 + BLOOM_BATCH] = {slice_of("BF.INSERT"), slice_of(fill->name), slice_of("NOCREATE"),
                                           slice_of("ITEMS")};

    for (size_t i = 0; i < batch->n; i++) {
        words[4 + i] = (struct slice){batch->items[i].ptr, batch->items[i].len};
        fill->waiting.queued += batch->items[i].len;
    }
    peer_put(&fill->server.peer, words, 4 + batch->n);
    fill->waiting.items[(fill->waiting.first + fill->waiting.n++) % PIPELINE] = batch->n;
    fill->sent += batch->n;
}

/* While the input pauses, no batch waits for its reply: errors show at once. */
static int send_batch(void *ctx, const struct item_batch *batch)
{
    struct fill *fill = ctx;
    struct errbuf err = {{0}};

    put_batch(fill, batch);
    if (batch->n < BLOOM_BATCH && item_input_pauses(&fill->input)) {
        take_answers(fill, 0);
    } else if (fill->waiting.n == PIPELINE) {
        take_answers(fill, PIPELINE / 2);
    } else if (fill->waiting.queued >= QUEUED_BYTES) {
        if (peer_flush(&fill->server.peer, &err) != 0)
            lose_server(fill, &err);
        fill->waiting.queued = 0;
    }
    return fill->reason.text[0] ? TOOL_FAILED : TOOL_OK;
}

static int count_items(struct fill *fill)
{
    if (!fill->input.can_rewind)
        return tool_misused(COMMAND, "--capacity is missing: the items of a pipe cannot be counted in advance");
    int rc = item_input_each(&fill->input, "counting", NULL, NULL);
    fill->capacity = fill->input.items ? fill->input.items : 1;
    return rc == TOOL_OK ? item_input_rewind(&fill->input) : rc;
}

/* ---- the end ---- */

/* Without a reason the input is bad, and its message has been printed. */
static int report_failure(const struct fill *fill)
{
    return tool_failed(COMMAND, "%s: %s%s%" PRIu64 " of %s sent to '%s' were acknowledged%s", fill->server.url.shown,
                       fill->reason.text, fill->reason.text[0] ? "; " : "", fill->acknowledged,
                       log_count(fill->sent, "item").text, fill->name, fill->made ? "; the new filter remains" : "");
}

static int report(const struct fill *fill, const struct tool_args *args, int rc)
{
    struct output out;
    struct buf *json = output_single(&out, args);

    if (json) {
        output_string(json, "server", fill->server.url.shown);
        output_string(json, "name", fill->name);
        JSON_COUNTS(json, {"sent", fill->sent}, {"acknowledged", fill->acknowledged}, {"new", fill->added});
        json_bool(json, "complete", rc == TOOL_OK);
        json_end(json, '}');
    } else {
        printf("%s: filter '%s': %s sent, %" PRIu64 " acknowledged, %" PRIu64 " new\n", fill->server.url.shown,
               fill->name, log_count(fill->sent, "item").text, fill->acknowledged, fill->added);
    }
    return output_end(&out, rc);
}

static int fill_filter(struct fill *fill, const struct tool_args *args)
{
    TRY(fill->makes ? make_filter(fill) : demand_filter(fill));
    int rc = item_input_each(&fill->input, "filling", send_batch, fill); /* TOOL_FAILED: after a message if it is bad */
    take_answers(fill, 0);
    if (rc != TOOL_OK || fill->reason.text[0])
        rc = report_failure(fill);
    return report(fill, args, rc);
}

/* ---- options ---- */

static int read_options(struct fill *fill, const struct tool_args *args)
{
    fill->keyed = tool_option(args, "--keyed") != NULL;
    fill->demands_new = tool_option(args, "--new") != NULL;
    fill->makes = fill->demands_new || fill->keyed || tool_option(args, "--error") || tool_option(args, "--capacity");
    fill->rate = DEFAULT_RATE;
    if (tool_rate(args, "--error", &fill->rate) != TOOL_OK ||
        tool_number(args, "--capacity", 1, INT64_MAX, &fill->capacity) != TOOL_OK)
        return TOOL_USAGE;
    return TOOL_OK;
}

/* One argument is NAME. One that is clearly an address lacks its NAME: the items must not go to the local server. */
static int read_names(struct fill *fill, const struct tool_args *args)
{
    static char local[] = LOCAL;
    unsigned last = args->npositional - 1;

    fill->name = args->positional[last];
    if (last == 0 && strstr(fill->name, "://"))
        return tool_misused(COMMAND, "NAME is missing");
    return server_call_read(&fill->server, args, last ? args->positional[0] : local);
}

static int run_fill(const struct tool_args *args)
{
    static struct fill fill;
    const struct item_form form = {.nul = tool_option(args, "-0") != NULL};
    int rc = read_options(&fill, args);

    STEP(rc, read_names(&fill, args));
    STEP(rc, item_input_open_as(&fill.input, tool_option(args, "--from"), args, &form));
    bool opened = rc == TOOL_OK;
    if (rc == TOOL_OK && fill.makes && fill.capacity == 0)
        rc = count_items(&fill);
    STEP(rc, server_call_connect(&fill.server));
    STEP(rc, fill_filter(&fill, args));
    server_call_close(&fill.server);
    if (opened)
        item_input_close(&fill.input);
    return rc;
}

static const struct tool_option options[] = {
    {.name = "--error",
     .value = "P",
     .doc = "Creates a missing NAME with this rate of false positives, 0 < P < 1 (0.01). An existing filter keeps its "
            "rate.",
     .group = "The filter"},
    {.name = "--capacity",
     .value = "N",
     .doc = "Creates a missing NAME with this capacity. The default is the number of items in FILE, including "
            "duplicates; FILE is then read twice. A pipe needs this option."},
    {.name = "--keyed", .doc = "Creates a missing NAME as KEYED: strangers cannot compute items that pass it."},
    {.name = "--new", .doc = "NAME must not exist; creates it according to --error and --capacity."},
    {.name = "--from",
     .value = "FILE",
     .doc = "The file of items, one a line; - and the default are the standard input.",
     .group = "The items"},
    {.name = "-0", .doc = "Items end with a NUL, as from find -print0 or psql -At0: they may contain newlines."},
    {.name = "--json",
     .doc = "The result as an object: server, name, sent, acknowledged, new, complete (a boolean).",
     .group = "Output"},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_fill_command = {
    .name = COMMAND,
    .arguments = "[URL] NAME",
    .summary = "Adds the items of a file or a pipe to a filter of a running server.",
    .text = SERVER_CALL_URL
    " Without it the server is " LOCAL ":6379. An item may have any bytes; an empty line is an empty item.\n\nWithout "
    "--error, --capacity, --keyed and --new the filter must exist: a mistyped name creates no "
    "filter.\n\nItems are sent in pipelined batches and never twice. The result has how many were sent, acknowledged "
    "by the server, and new in the filter. If the filter is full, the server refuses items or the connection is lost, "
    "the command ends with the reason. Then those that were not acknowledged may be in the filter or not; adding all "
    "again does no harm.\n\nTo replace a filter, fill a new one, and RENAME it if that went well. A pipe does not tell "
    "whether its writer has failed: where that matters, write a file first.",
    .options = options,
    .examples = "seq 1000000 | bloomery fill numbers --error 0.001 --capacity 1000000\n"
                "psql -At0 -c 'SELECT name FROM users' >names && "
                "bloomery fill redis://10.0.0.1 users:new -0 --from names --error 0.001 --new && "
                "redis-cli -h 10.0.0.1 RENAME users:new users\n"
                "csvcut -c name users.csv | tail -n +2 | bloomery fill users --error 0.001 --capacity 100000\n"
                "jq -j '.[].name + \"\\u0000\"' users.json | bloomery fill users -0 --error 0.001 --capacity 100000\n"
                "find / -xdev -type f -print0 | bloomery fill unix:///run/bloomery/bloomery.sock files -0",
    .run = run_fill,
};
