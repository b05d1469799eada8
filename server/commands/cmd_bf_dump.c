/* BF.SCANDUMP and BF.LOADCHUNK: a filter of any size from one server to another, a piece at a time. docs/DUMP.md has
 * the bytes, dump.h how pieces hang together; here is who may ask for them and what becomes of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "content.h"
#include "dump.h"
#include "half_loads.h"
#include "handlers.h"

/* ---- BF.SCANDUMP ------------------------------------------------------------------------------------------------- */

/* What all chunks of a dump have in common: the filter, by its id, in this life of the process. After a restart a
 * filter may lack what had not been saved, so that a dump cannot go on. */
static uint64_t dump_identity(const struct server *server, uint64_t id, unsigned nlayers)
{
    uint64_t seed = XXH3_64bits(server->run_id, strlen(server->run_id));
    uint64_t what[2] = {id, nlayers};
    return XXH3_64bits_withSeed(what, sizeof(what), seed);
}

static uint64_t random_nonce(void)
{
    uint64_t nonce;
    if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        nonce = (uint64_t)server_now_ms();
    return nonce;
}

static void reply_chunk(struct command_job *job, struct entry *entry, const struct dump_plan *plan,
                        struct dump_place *place)
{
    size_t len = dump_chunk_bytes(plan, place->next);
    unsigned char *chunk = malloc(len);
    if (!chunk) {
        reply_error(&job->reply, "ERR out of memory");
        return;
    }
    dump_write_chunk(plan, entry_filter(entry), dump_identity(job->server, entry->id, plan->nlayers), random_nonce(),
                     place, chunk);
    reply_array(&job->reply, 2);
    reply_integer(&job->reply, dump_iterator(place));
    reply_bulk(&job->reply, chunk, len);
    free(chunk);
}

static void reply_end(struct command_job *job)
{
    reply_array(&job->reply, 2);
    reply_integer(&job->reply, 0);
    reply_bulk(&job->reply, NULL, 0);
}

static void scandump(struct command_job *job, struct entry *entry, int64_t iterator)
{
    struct dump_place place = {.nlayers = bloom_filter_nlayers(entry_filter(entry))};
    struct dump_plan plan;
    if (iterator != 0 &&
        (!dump_place_from(iterator, &place) || place.nlayers > bloom_filter_nlayers(entry_filter(entry)))) {
        reply_error(&job->reply, "ERR invalid iterator: begin with 0, go on with what the last reply said");
        return;
    }
    dump_plan_of(entry_filter(entry), place.nlayers, &plan);
    if (place.next < dump_chunks(&plan))
        reply_chunk(job, entry, &plan, &place);
    else if (place.next == dump_chunks(&plan))
        reply_end(job);
    else
        reply_error(&job->reply, "ERR invalid iterator: begin with 0, go on with what the last reply said");
}

static void scandump_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    int64_t iterator;
    bool replied;
    struct entry *entry = content_pin(job, args->argv[1], &replied);
    if (!entry) {
        if (!replied)
            reply_error(&job->reply, "ERR not found");
        return;
    }
    if (slice_to_int64(args->argv[2], &iterator))
        scandump(job, entry, iterator);
    else
        reply_error(&job->reply, "Second argument must be numeric");
    registry_unpin(entry);
}

void cmd_bf_scandump(struct command_ctx *ctx)
{
    content_defer(ctx, REGISTRY_MAX_NAME, scandump_job);
}

/* ---- BF.LOADCHUNK ------------------------------------------------------------------------------------------------ */

#define DROPPED "; the filter that was being loaded has been dropped"

/* The first chunk: makes the filter that the header asks for. */
static void begin_load(struct command_job *job, struct slice name, int64_t iterator, struct slice data)
{
    struct errbuf err = {""};
    struct dump_load dump;
    struct half_load *load;
    if (dump_load_begin(&dump, iterator, data.ptr, data.len, &err) != DUMP_OK) {
        reply_errorf(&job->reply, "ERR received bad data: %s", err.text);
        return;
    }
    int status = half_loads_add(job->server->half_loads, name, &load);
    if (status == HALF_LOADS_FULL)
        reply_errorf(&job->reply, "ERR %d filters are being loaded already", HALF_LOADS_MAX);
    else if (status == HALF_LOADS_BUSY)
        reply_error(&job->reply, "ERR received bad data: two chunks at a time" DROPPED);
    else if (status != HALF_LOADS_OK)
        reply_error(&job->reply, "ERR out of memory");
    if (status != HALF_LOADS_OK)
        return;

    struct entry *entry;
    load->dump = dump;
    if (!content_prepare(job, name, &dump.plan.params, dump.plan.shapes, dump.plan.nlayers, &entry)) {
        (void)half_loads_drop(job->server->half_loads, load);
        return;
    }
    bloom_filter_expect_fill(entry_filter(entry));
    load->entry = entry;
    if (half_loads_keep(job->server->half_loads, load, server_now_ms())) {
        reply_status(&job->reply, "OK");
        return;
    }
    registry_abandon(job->server->registry, entry);
    (void)half_loads_drop(job->server->half_loads, load);
    reply_error(&job->reply, "ERR received bad data: two chunks at a time" DROPPED);
}

/* All of it has come and is as it should be. */
static void end_load(struct command_job *job, struct entry *entry)
{
    struct content_publication publication = {.how = {.only_new = true, .event = "bloom.load"}};

    content_finish(job, entry, &publication, "ERR received bad data: the key exists" DROPPED);
}

static void go_on(struct command_job *job, struct half_load *load, int64_t iterator, struct slice data)
{
    struct half_loads *loads = job->server->half_loads;
    struct errbuf err = {""};
    struct entry *entry = load->entry;
    bool complete = false;
    rcu_reader_offline(); /* nobody else has this filter; and what others remove can be freed meanwhile */
    int status = dump_load_chunk(&load->dump, entry_filter(entry), iterator, data.ptr, data.len, &complete, &err);
    rcu_reader_online();
    if (status == DUMP_OK && !complete && half_loads_keep(loads, load, server_now_ms())) {
        reply_status(&job->reply, "OK");
        return;
    }
    bool spoilt = half_loads_drop(loads, load); /* of the last chunk as well: somebody has been told that all is dropped */
    if (status == DUMP_OK && complete && !spoilt) {
        end_load(job, entry);
        return;
    }
    registry_abandon(job->server->registry, entry);
    reply_errorf(&job->reply, "ERR received bad data: %s" DROPPED, status == DUMP_OK ? "two chunks at a time" : err.text);
}

static void loadchunk_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct slice name = args->argv[1], data = args->argv[3];
    struct half_load *load;
    int64_t iterator;
    if (!slice_to_int64(args->argv[2], &iterator)) {
        reply_error(&job->reply, "ERR Second argument must be numeric");
        return;
    }
    if (registry_lookup(job->server->registry, name)) {
        reply_error(&job->reply, "ERR received bad data: the key exists");
        return;
    }
    switch (half_loads_take(job->server->half_loads, name, &load)) {
    case HALF_LOADS_OK:
        go_on(job, load, iterator, data);
        break;
    case HALF_LOADS_BUSY:
        reply_error(&job->reply, "ERR received bad data: two chunks at a time" DROPPED);
        break;
    default:
        begin_load(job, name, iterator, data);
        break;
    }
}

void cmd_bf_loadchunk(struct command_ctx *ctx)
{
    content_defer(ctx, DUMP_CHUNK_MAX, loadchunk_job);
}
