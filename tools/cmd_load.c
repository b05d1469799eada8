/* bloomery load: a Filter.db file into a running server, as the chunks of a dump (docs/DUMP.md). It appears whole:
 * under its name when the last chunk has come, or, to replace a filter, under a name of its own that is then exchanged.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "dump.h"
#include "filter_file.h"
#include "filter_load.h"
#include "move/server_url.h"
#include "progress.h"
#include "tls_options.h"
#include "tool.h"

#define COMMAND     "load"
#define TIMEOUT_MS  60000
#define TEMP_PREFIX "bloomery:load:"

struct load {
    const char *path, *name;
    bool replace;
    struct loaded_filter loaded;
    struct server_url url;
    struct peer peer;
    uint64_t nonce[2];
    char temp[64];
};

/* ---- the server ---- */

static int refuse(const struct load *load, const char *text)
{
    return tool_failed(COMMAND, "%s: %s", load->url.shown, text);
}

/* Waits for the reply to what has been put; it must be a status or a number. */
static int take_reply(struct load *load, struct resp_reply *reply)
{
    struct errbuf err = {{0}};

    if (peer_reply(&load->peer, reply, &err) != 0)
        return refuse(load, err.text);
    if (reply->nodes[0].kind == RESP_REPLY_ERROR) {
        struct slice text = resp_reply_text(reply, 0);
        return tool_failed(COMMAND, "%s answers: %.*s", load->url.shown, (int)text.len, text.ptr);
    }
    return TOOL_OK;
}

static int connect_to(struct load *load)
{
    struct errbuf err = {{0}};

    peer_init(&load->peer, TIMEOUT_MS, NULL);
    if (peer_connect(&load->peer, &load->url.address, &err) != 0 ||
        peer_log_in(&load->peer, &load->url.address, &err) != 0)
        return refuse(load, err.text);
    return TOOL_OK;
}

/* ---- the filter ---- */

static int send_chunk(struct load *load, struct slice name, const struct dump_plan *plan, struct dump_place *place,
                      unsigned char *chunk)
{
    char number[PEER_NUMBER_SIZE];
    struct resp_reply reply;
    size_t len = dump_chunk_bytes(plan, place->next);

    dump_write_chunk(plan, load->loaded.filter, load->nonce[0], load->nonce[1], place, chunk);
    PEER_PUT(&load->peer, PEER_WORD("BF.LOADCHUNK"), name, peer_number(dump_iterator(place), number),
             ((struct slice){(const char *)chunk, len}));
    return take_reply(load, &reply);
}

static int send_chunks(struct load *load, struct slice name)
{
    struct dump_place place = {.nlayers = 1};
    unsigned char *chunk = malloc(DUMP_CHUNK_MAX);
    struct dump_plan *plan = malloc(sizeof(*plan));
    struct progress progress;
    int rc = chunk && plan ? TOOL_OK : tool_failed(COMMAND, "out of memory");

    if (rc == TOOL_OK) {
        dump_plan_of(load->loaded.filter, 1, plan);
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
    struct slice name = PEER_WORD(load->name), temp = PEER_WORD(load->temp);
    struct resp_reply reply;

    if (!load->replace)
        return send_chunks(load, name);
    int rc = send_chunks(load, temp);
    if (rc != TOOL_OK)
        return rc;
    PEER_PUT(&load->peer, PEER_WORD("RENAME"), temp, name);
    return take_reply(load, &reply);
}

static int read_file(struct load *load, const struct tool_args *args)
{
    const char *variant = tool_option(args, "--variant");
    struct bloom_params params;
    struct filter_file file;
    struct errbuf err = {{0}};
    uint64_t items;

    if (filter_check_variant(args) != TOOL_OK)
        return TOOL_USAGE;
    if (filter_open(&file, load->path, variant, &err) != 0)
        return tool_failed(COMMAND, "%s: %s", load->path, err.text);
    int rc = filter_decide_params(args, load->path, &file, &params, &items);
    if (rc == TOOL_OK && loaded_filter_read(&load->loaded, &file, &params, &err) != 0)
        rc = tool_failed(COMMAND, "%s: %s", load->path, err.text);
    if (rc == TOOL_OK)
        bloom_filter_set_items(load->loaded.filter, 0, items);
    filter_file_close(&file);
    return rc;
}

static int read_url(struct load *load, char *text)
{
    const char *password = getenv("REDISCLI_AUTH");
    struct errbuf err = {{0}};

    if (server_url_read(&load->url, text, &err) != 0)
        return tool_misused(COMMAND, "%s", err.text);
    server_url_hide(text);
    if (!load->url.address.password && password && server_url_set_password(&load->url, password) != 0)
        return tool_failed(COMMAND, "$REDISCLI_AUTH is too long");
    return TOOL_OK;
}

static void report(const struct load *load, bool json)
{
    uint64_t bytes = bloom_filter_memory(load->loaded.filter), items = bloom_filter_items(load->loaded.filter);

    if (!json) {
        printf("%s: filter '%s': %" PRIu64 " bytes, about %" PRIu64 " items\n", load->url.shown, load->name, bytes,
               items);
        return;
    }
    fputs("{\"server\": ", stdout);
    tool_print_json(stdout, load->url.shown, strlen(load->url.shown));
    fputs(", \"name\": ", stdout);
    tool_print_json(stdout, load->name, strlen(load->name));
    printf(", \"bytes\": %" PRIu64 ", \"items\": %" PRIu64 "}\n", bytes, items);
}

static int run(const struct tool_args *args)
{
    static struct load load;
    struct tls_context *tls = NULL;
    int rc = read_url(&load, args->positional[0]);

    if (rc == TOOL_OK)
        rc = tls_options_read(args, load.url.with_tls, &tls);
    load.url.address.tls = tls;
    load.name = args->positional[1];
    load.path = args->positional[2];
    load.replace = tool_option(args, "--replace") != NULL;
    (void)!getrandom(load.nonce, sizeof(load.nonce), 0);
    snprintf(load.temp, sizeof(load.temp), TEMP_PREFIX "%016" PRIx64 "%016" PRIx64, load.nonce[0], load.nonce[1]);
    if (rc == TOOL_OK)
        rc = read_file(&load, args);
    if (rc == TOOL_OK) {
        rc = connect_to(&load);
        if (rc == TOOL_OK)
            rc = send_filter(&load);
        peer_close(&load.peer);
    }
    if (rc == TOOL_OK)
        report(&load, tool_option(args, "--json") != NULL);
    loaded_filter_deinit(&load.loaded);
    tls_context_destroy(tls);
    return rc;
}

static const struct tool_option options[] = {
    FILTER_PARAMS_OPTIONS,
    {.name = "--replace", .doc = "Replaces the filter NAME if it exists, at one moment."},
    {.name = "--json", .doc = "The result as an object: server, name, bytes, items."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_load_command = {
    .name = COMMAND,
    .arguments = "URL NAME FILE",
    .min = 3,
    .max = 3,
    .summary = "Loads a Filter.db file into a running Bloomery as a filter.",
    .text =
        "URL is redis://[[user]:password@]host[:port], rediss://... with TLS, or unix:///path/of/socket; a password "
        "can also be in "
        "$REDISCLI_AUTH. NAME must be free. The filter appears when all of it has come, and is as durable then as the "
        "daemon's settings make it. Files that the daemon can read itself come faster by BF.IMPORT.",
    .options = options,
    .examples = "bloomery load redis://127.0.0.1 small small.db --variant na\n"
                "bloomery load unix:///run/bloomery/bloomery.sock users-1 nb-1-big-Filter.db --replace",
    .run = run,
};
