/* BF.SCANDUMP and BF.LOADCHUNK: a filter of any size from one server to another, a piece at a time. docs/DUMP.md has
 * the bytes, dump.h the chain of pieces, redisbloom_dump.h RedisBloom's chunks; this file checks the requests and
 * publishes the filter. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "bf_texts.h"
#include "clock.h"
#include "content.h"
#include "dump.h"
#include "half_loads.h"
#include "handlers.h"
#include "redisbloom_dump.h"
#include "residency.h"

/* ---- BF.SCANDUMP ---- */

/* The identity of a dump: the filter's id in this run of the process. After a restart a filter may lack unsaved items,
 * so that a dump cannot go on. */
static uint64_t dump_identity(const struct server *server, uint64_t id, unsigned nlayers)
{
    uint64_t seed = XXH3_64bits(server->process.run_id, strlen(server->process.run_id));
    uint64_t what[2] = {id, nlayers};
    return XXH3_64bits_withSeed(what, sizeof(what), seed);
}

static uint64_t random_nonce(void)
{
    uint64_t nonce;
    if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        nonce = (uint64_t)clock_ms();
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

/* The iterator is the number of bytes handed out, and one for the header: any number is at the end, if not before. */
static void scan_redisbloom(struct command_job *job, struct entry *entry, int64_t iterator)
{
    unsigned char *chunk;
    uint64_t next;
    size_t len;
    if (iterator < 0) {
        reply_error(&job->reply, "ERR invalid iterator: begin with 0, go on with what the last reply said");
    } else if (redisbloom_scan(entry_filter(entry), (uint64_t)iterator, DUMP_DATA_BYTES, &next, &chunk, &len) != 0) {
        reply_error(&job->reply, "ERR out of memory");
    } else {
        reply_array(&job->reply, 2);
        reply_integer(&job->reply, (int64_t)next);
        reply_bulk(&job->reply, chunk, len);
        free(chunk);
    }
}

static void scandump(struct command_job *job, struct entry *entry, int64_t iterator)
{
    struct dump_place place = {.nlayers = bloom_filter_nlayers(entry_filter(entry))};
    struct dump_plan plan;
    if (redisbloom_is_layout(entry_filter(entry))) {
        scan_redisbloom(job, entry, iterator);
        return;
    }
    if (iterator != 0 &&
        (!dump_place_from(iterator, &place) || place.nlayers > bloom_filter_nlayers(entry_filter(entry)))) {
        reply_error(&job->reply, BF_NO_ITERATOR);
        return;
    }
    dump_plan_of(entry_filter(entry), place.nlayers, &plan);
    if (dump_chunks(&plan) >= DUMP_MAX_CHUNKS)
        reply_error(&job->reply, "ERR the filter is too large for a dump: more than 2 TB");
    else if (place.next < dump_chunks(&plan))
        reply_chunk(job, entry, &plan, &place);
    else if (place.next == dump_chunks(&plan))
        reply_end(job);
    else
        reply_error(&job->reply, BF_NO_ITERATOR);
}

static void scandump_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    int64_t iterator;
    bool replied;
    struct entry *entry = content_pin(job, args->argv[1], &replied);
    if (!entry) {
        if (!replied)
            reply_error(&job->reply, BF_NOT_FOUND);
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

/* ---- BF.LOADCHUNK ---- */

#define DROPPED "; the filter that was being loaded has been dropped"

/* Makes a load with its filter. `redisbloom` passes to the load; NULL: a dump of ours. NULL after an error reply,
 * except that RedisBloom's header is not answered where the name has a load by now (*busy_out). */
static struct half_load *make_load(struct command_job *job, struct slice name, const struct dump_plan *plan,
                                   struct redisbloom_load *redisbloom, bool *busy_out)
{
    struct half_load *load;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < plan->nlayers; i++)
        bytes += plan->shapes[i].nwords * 8;
    int status = half_loads_add(job->server->half_loads, name, bytes, redisbloom, &load);
    *busy_out = status == HALF_LOADS_BUSY;
    if (status == HALF_LOADS_FULL)
        reply_errorf(&job->reply, "ERR %d filters are being loaded already", HALF_LOADS_MAX);
    else if (status == HALF_LOADS_LARGE)
        reply_errorf(&job->reply,
                     "OOM %llu bytes for this filter and those that are being loaded are more than the machine has",
                     (unsigned long long)bytes);
    else if (status == HALF_LOADS_BUSY && !redisbloom)
        reply_error(&job->reply, "ERR received bad data: two chunks at a time" DROPPED);
    else if (status != HALF_LOADS_OK && status != HALF_LOADS_BUSY)
        reply_error(&job->reply, "ERR out of memory");
    if (status != HALF_LOADS_OK)
        return NULL;

    if (!content_prepare(job, name, &plan->params, plan->shapes, plan->nlayers, &load->entry)) {
        (void)half_loads_drop(job->server->half_loads, load);
        return NULL;
    }
    bloom_filter_expect_fill(entry_filter(load->entry));
    return load;
}

/* The first chunk: prepares the filter of the header. */
static void begin_load(struct command_job *job, struct slice name, int64_t iterator, struct slice data)
{
    struct errbuf err = {""};
    struct dump_load dump;
    bool busy;
    if (dump_load_begin(&dump, iterator, data.ptr, data.len, &err) != DUMP_OK) {
        reply_errorf(&job->reply, "ERR received bad data: %s", err.text);
        return;
    }
    struct half_load *load = make_load(job, name, &dump.plan, NULL, &busy);
    if (!load)
        return;
    struct entry *entry = load->entry;
    load->dump = dump;
    if (half_loads_keep(job->server->half_loads, load, clock_ms())) {
        reply_status(&job->reply, "OK");
        return;
    }
    registry_abandon(job->server->registry, entry);
    (void)half_loads_drop(job->server->half_loads, load);
    reply_error(&job->reply, "ERR received bad data: two chunks at a time" DROPPED);
}

/* All chunks have come and are valid. */
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
    rcu_reader_offline(); /* no other thread has this filter, and removed filters can be freed meanwhile */
    int status = dump_load_chunk(&load->dump, entry_filter(entry), iterator, data.ptr, data.len, &complete, &err);
    rcu_reader_online();
    if (status == DUMP_OK && !complete && half_loads_keep(loads, load, clock_ms())) {
        reply_status(&job->reply, "OK");
        return;
    }
    bool spoilt = half_loads_drop(loads, load); /* even after the last chunk: another client has been told that the load
                                                 * is dropped */
    if (status == DUMP_OK && complete && !spoilt) {
        end_load(job, entry);
        return;
    }
    registry_abandon(job->server->registry, entry);
    reply_errorf(&job->reply, "ERR received bad data: %s" DROPPED,
                 status == DUMP_OK ? "two chunks at a time" : err.text);
}

/* ---- BF.LOADCHUNK of RedisBloom's chunks ---- */

/* False: another client has just begun a load of this name. */
static bool begin_redisbloom(struct command_job *job, struct slice name, struct slice data)
{
    struct errbuf err = {""};
    struct redisbloom_load *redisbloom = malloc(sizeof(*redisbloom));
    bool busy = false;
    if (!redisbloom) {
        reply_error(&job->reply, "ERR out of memory");
    } else if (redisbloom_load_begin(redisbloom, data.ptr, data.len, &err) != DUMP_OK) {
        free(redisbloom);
        reply_errorf(&job->reply, "ERR received bad data: %s", err.text);
    } else {
        struct half_load *load = make_load(job, name, &redisbloom->plan, redisbloom, &busy);
        if (load) {
            (void)half_loads_keep(job->server->half_loads, load, clock_ms());
            reply_status(&job->reply, "OK");
        }
    }
    return !busy;
}

/* A chunk that is wrong changes nothing: the load goes on. */
static void take_redisbloom(struct command_job *job, struct half_load *load, int64_t iterator, struct slice data)
{
    struct half_loads *loads = job->server->half_loads;
    struct errbuf err = {""};
    struct entry *entry = load->entry;
    bool complete = false;
    rcu_reader_offline();
    int status = redisbloom_load_chunk(load->redisbloom, entry_filter(entry), (uint64_t)iterator, data.ptr, data.len,
                                       &complete, &err);
    rcu_reader_online();
    if (complete) {
        (void)half_loads_drop(loads, load);
        end_load(job, entry);
        return;
    }
    (void)half_loads_keep(loads, load, clock_ms());
    if (status == DUMP_OK)
        reply_status(&job->reply, "OK");
    else if (status == DUMP_BAD)
        reply_errorf(&job->reply, "ERR received bad data: %s", err.text);
    else
        reply_error(&job->reply, "ERR out of memory");
}

/* The header of the load once more changes nothing; another one begins it anew. False: as begin_redisbloom(). */
static bool take_header(struct command_job *job, struct half_load *load, struct slice name, struct slice data)
{
    if (redisbloom_load_began_with(load->redisbloom, data.ptr, data.len)) {
        (void)half_loads_keep(job->server->half_loads, load, clock_ms());
        reply_status(&job->reply, "OK");
        return true;
    }
    registry_abandon(job->server->registry, load->entry);
    (void)half_loads_drop(job->server->half_loads, load);
    return begin_redisbloom(job, name, data);
}

/* A chunk that comes once more, after the last one has made the filter, is what the filter has already. */
static bool is_repeated(struct command_job *job, struct slice name, int64_t iterator, struct slice data)
{
    struct errbuf why;
    struct entry *entry = iterator > 0 ? residency_pin(job->server, name, &why) : NULL;
    bool repeated = entry && entry_filter(entry) &&
                    redisbloom_has_chunk(entry_filter(entry), (uint64_t)iterator, data.ptr, data.len);
    if (entry)
        registry_unpin(entry);
    return repeated;
}

/* ---- BF.LOADCHUNK ---- */

static bool load_chunk(struct command_job *job, struct slice name, int64_t iterator, struct slice data)
{
    struct half_load *load;
    switch (half_loads_take(job->server->half_loads, name, &load)) {
    case HALF_LOADS_OK:
        if (!load->redisbloom)
            go_on(job, load, iterator, data);
        else if (iterator == REDISBLOOM_HEADER_ITERATOR)
            return take_header(job, load, name, data);
        else
            take_redisbloom(job, load, iterator, data);
        return true;
    case HALF_LOADS_BUSY:
        reply_error(&job->reply, "ERR received bad data: two chunks at a time" DROPPED);
        return true;
    default:
        if (iterator == REDISBLOOM_HEADER_ITERATOR) /* none of ours is so small */
            return begin_redisbloom(job, name, data);
        begin_load(job, name, iterator, data);
        return true;
    }
}

static void loadchunk_job(struct command_job *job)
{
    const struct job_args *args = job->data;
    struct slice name = args->argv[1], data = args->argv[3];
    int64_t iterator;
    if (!slice_to_int64(args->argv[2], &iterator)) {
        reply_error(&job->reply, "ERR Second argument must be numeric");
        return;
    }
    if (data.len > REDISBLOOM_CHUNK_MAX) {
        reply_errorf(&job->reply, "ERR received bad data: a chunk has at most %u bytes", REDISBLOOM_CHUNK_MAX);
        return;
    }
    if (registry_lookup(job->server->registry, name)) {
        if (is_repeated(job, name, iterator, data))
            reply_status(&job->reply, "OK");
        else
            reply_error(&job->reply, "ERR received bad data: the key exists");
        return;
    }
    while (!load_chunk(job, name, iterator, data)) {
    }
}

void cmd_bf_loadchunk(struct command_ctx *ctx)
{
    content_defer(ctx, REDISBLOOM_CHUNK_MAX, loadchunk_job);
}
