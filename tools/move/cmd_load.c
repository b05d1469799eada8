/* bloomery load: sends a Filter.db to a running server, as the chunks of a dump (docs/DUMP.md). The filter appears with
 * the last chunk; to replace one, it is loaded under a temporary name and renamed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "dump.h"
#include "filter_load.h"
#include "tool.h"
#include "log_text.h"
#include "output.h"
#include "server_call.h"

#define COMMAND     "load"
#define TEMP_PREFIX "bloomery:load:"
#define EXISTS      "ERR received bad data: the key exists"

struct load {
    const char *name;
    bool replace;
    struct bloom_alone loaded;
    struct server_call server;
    uint64_t nonce[2];
    struct bloom_secret key; /* id 0: the filter is not KEYED */
    char temp[64];
};

/* ---- the filter ---- */

static int send_chunk(struct load *load, struct slice name, const struct dump_plan *plan, struct dump_place *place,
                      unsigned char *chunk)
{
    char number[PEER_NUMBER_SIZE];
    struct resp_reply reply;
    size_t len = dump_chunk_bytes(plan, place->next);

    dump_write_chunk(plan, load->loaded.filter, load->nonce[0], load->nonce[1], place, chunk);
    PEER_PUT(&load->server.peer, slice_of("BF.LOADCHUNK"), name, peer_number(dump_iterator(place), number),
             ((struct slice){(const char *)chunk, len}));
    int rc = server_call_any_reply(&load->server, &reply);
    struct slice text = rc == TOOL_OK ? resp_reply_text(&reply, 0) : (struct slice){"", 0};
    if (rc != TOOL_OK || reply.nodes[0].kind != RESP_REPLY_ERROR)
        return rc;
    if (slice_is(text, EXISTS))
        return tool_failed(COMMAND, "%s: filter '%s' exists; --replace replaces it", load->server.url.shown,
                           load->name);
    return tool_failed(COMMAND, "%s answers: %.*s", load->server.url.shown, (int)text.len, text.ptr);
}

static int send_chunks(struct load *load, struct slice name)
{
    struct dump_place place = {.nlayers = 1};
    unsigned char *chunk = malloc(DUMP_CHUNK_MAX);
    struct dump_plan *plan = malloc(sizeof(*plan));
    struct progress progress;
    int rc = TOOL_OK;

    if (!chunk || !plan) {
        rc = tool_failed(COMMAND, "out of memory");
    } else {
        dump_plan_of(load->loaded.filter, 1, plan);
        if (load->key.id)
            plan->params.key = load->key.id;
        progress_begin(&progress, "loading", plan->bytes);
        while (place.next < dump_chunks(plan) && rc == TOOL_OK) {
            progress_update(&progress, (uint64_t)place.next * DUMP_DATA_BYTES);
            rc = send_chunk(load, name, plan, &place, chunk);
        }
        progress_end(&progress);
    }
    free(chunk);
    free(plan);
    return rc;
}

static int send_filter(struct load *load)
{
    struct slice name = slice_of(load->name), temp = slice_of(load->temp);
    struct resp_reply reply;

    if (!load->replace)
        return send_chunks(load, name);
    TRY(send_chunks(load, temp));
    PEER_PUT(&load->server.peer, slice_of("RENAME"), temp, name);
    return server_call_reply(&load->server, &reply);
}

static int report(const struct load *load, const struct tool_args *args)
{
    uint64_t bytes = bloom_filter_memory(load->loaded.filter), items = bloom_filter_items(load->loaded.filter);
    struct output out;

    struct buf *json = output_single(&out, args);
    if (json) {
        output_string(json, "server", load->server.url.shown);
        output_string(json, "name", load->name);
        JSON_COUNTS(json, {"bytes", bytes}, {"items", items});
        json_end(json, '}');
    } else {
        printf("%s: filter '%s': %" PRIu64 " bytes, about %s\n", load->server.url.shown, load->name, bytes,
               log_count(items, "item").text);
    }
    return output_end(&out, TOOL_OK);
}

static int run_load(const struct tool_args *args)
{
    static struct load load;
    struct bloom_params params;
    struct bloom_shape shape;
    int rc = server_call_read(&load.server, args, args->positional[0]);

    load.name = args->positional[1];
    load.replace = tool_option(args, "--replace") != NULL;
    (void)!getrandom(load.nonce, sizeof(load.nonce), 0);
    snprintf(load.temp, sizeof(load.temp), TEMP_PREFIX "%016" PRIx64 "%016" PRIx64, load.nonce[0], load.nonce[1]);
    STEP(rc, loaded_filter_open(&load.loaded, args, args->positional[2], &params, &shape));
    if (rc == TOOL_OK && tool_option(args, "--key-file"))
        rc = key_option_read(args, params.key, args->positional[2], &load.key);
    STEP(rc, server_call_connect(&load.server));
    STEP(rc, send_filter(&load));
    STEP(rc, report(&load, args));
    bloom_alone_deinit(&load.loaded);
    server_call_close(&load.server);
    return rc;
}

static const struct tool_option options[] = {
    FILTER_PARAMS_OPTIONS,
    KEY_OPTIONS(
        "The keys of a FILE of 'bloomery build --key-file': NAME becomes KEYED. The server needs the key, too; the "
        "command sends only the id."),
    {.name = "--replace", .doc = "Replaces an existing filter NAME, atomically."},
    {.name = "--json", .doc = "The result as an object: server, name, bytes, items."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_load_command = {
    .name = COMMAND,
    .arguments = "URL NAME FILE",
    .summary = "Loads a Filter.db file into a running Bloomery as a filter.",
    .text = SERVER_CALL_URL
    " NAME must be free. The filter appears when it is complete, with the durability of the daemon's settings. "
    "BF.IMPORT is faster for files that the daemon can read itself.",
    .options = options,
    .examples = "bloomery load redis://127.0.0.1 small small.db --variant na\n"
                "bloomery load unix:///run/bloomery/bloomery.sock users-1 nb-1-big-Filter.db --replace",
    .run = run_load,
};
