/* The value is the number of chunks, then each chunk as a string (rdb_reader.h). An engine may compress them. */
#include <errno.h>
#include <stdlib.h>

#include "bytes.h"
#include "clock.h"
#include "dump.h"
#include "errbuf.h"
#include "rdb_reader.h"

/* The type's id, without the version of the encoding: DUMP_TYPE_NAME. */
#define TYPE_ID UINT64_C(0x6e5a2899eaf2d400)

/* ---- writing ---- */

static uint64_t length_bytes(uint64_t value)
{
    unsigned char space[RDB_LENGTH_MAX_BYTES];

    return (uint64_t)(rdb_put_length(space, value) - space);
}

uint64_t dump_whole_bytes(const struct dump_plan *plan)
{
    uint32_t n = dump_chunks(plan);
    uint64_t bytes = RDB_DUMP_MAX + 1 + length_bytes(n); /* an opcode before the number */

    for (uint32_t i = 0; i < n; i++) {
        size_t len = dump_chunk_bytes(plan, i);

        bytes += 1 + length_bytes(len) + len;
    }
    return bytes;
}

void dump_write_whole(const struct dump_plan *plan, const struct bloom_filter *filter, unsigned char *out)
{
    struct dump_place place = {.nlayers = plan->nlayers};
    uint32_t n = dump_chunks(plan);
    unsigned char *at = rdb_put_unsigned(rdb_put_module(out, TYPE_ID | DUMP_TYPE_VERSION), n);

    for (uint32_t i = 0; i < n; i++) {
        size_t len = dump_chunk_bytes(plan, i);

        at = rdb_put_string_head(at, len);
        dump_write_chunk(plan, filter, 0, 0, &place, at);
        at += len;
    }
    rdb_put_dump_end(at, out);
}

/* ---- reading ---- */

/* The next chunk, into `buf`, which has room for `max` bytes. */
static int read_chunk(struct rdb_reader *reader, unsigned char *buf, size_t max, size_t *len_out)
{
    uint64_t len = 0;
    int rc = rdb_module_copy(reader, buf, max, &len, "a chunk");

    if (rc == RDB_OK && len > max)
        rc = rdb_bad(reader, "a chunk has %llu bytes", (unsigned long long)len);
    *len_out = (size_t)len;
    return rc;
}

/* Reads a value up to its second chunk. */
static int open_load(struct rdb_reader *reader, const void *data, size_t len, struct dump_load *load,
                     uint64_t *chunks_out, struct errbuf *err)
{
    unsigned char header[DUMP_HEADER_MAX];
    uint64_t id;
    size_t header_len;

    if (rdb_open_dump(reader, data, len, &id, err) != RDB_OK || RDB_MODULE_TYPE(id) != TYPE_ID)
        return errbuf_fail(err, DUMP_FOREIGN, "not a filter of Bloomery");
    if (RDB_MODULE_VERSION(id) != DUMP_TYPE_VERSION)
        return errbuf_fail(err, DUMP_BAD, "version %u of the encoding is unknown", RDB_MODULE_VERSION(id));
    if (rdb_module_unsigned(reader, chunks_out, "the number of chunks") != RDB_OK ||
        read_chunk(reader, header, sizeof(header), &header_len) != RDB_OK)
        return DUMP_BAD;
    return dump_load_begin(load, NULL, header, header_len, err);
}

int dump_read_plan(const void *data, size_t len, struct dump_plan *plan_out, struct errbuf *err)
{
    struct rdb_reader reader;
    struct dump_load load;
    uint64_t n;

    if (!rdb_is_dump(data, len))
        return errbuf_fail(err, DUMP_FOREIGN, "the checksum is wrong");
    TRY(open_load(&reader, data, len, &load, &n, err));
    if (n != dump_chunks(&load.plan))
        return errbuf_fail(err, DUMP_BAD, "%llu chunks of %u: the filter was being loaded", (unsigned long long)n,
                           dump_chunks(&load.plan));
    *plan_out = load.plan;
    return DUMP_OK;
}

static int read_chunks(struct rdb_reader *reader, struct dump_load *load, struct bloom_filter *filter,
                       unsigned char *chunk, struct errbuf *err)
{
    bool complete = false;

    while (!complete) {
        size_t len;

        if (read_chunk(reader, chunk, DUMP_CHUNK_MAX, &len) != RDB_OK ||
            dump_load_chunk(load, filter, NULL, chunk, len, &complete, err) != DUMP_OK)
            return DUMP_BAD;
    }
    /* A zero byte behind a dump leaves its checksum right, so that says nothing about the length. */
    return rdb_module_end(reader) == RDB_OK && rdb_close_dump(reader) == RDB_OK ? DUMP_OK : DUMP_BAD;
}

int dump_read_whole(const void *data, size_t len, struct bloom_filter *filter, struct errbuf *err)
{
    unsigned char *chunk = malloc(DUMP_CHUNK_MAX);
    struct rdb_reader reader;
    struct dump_load load;
    uint64_t n;

    if (!chunk)
        return -ENOMEM;
    int rc = open_load(&reader, data, len, &load, &n, err);
    STEP(rc, read_chunks(&reader, &load, filter, chunk, err));
    free(chunk);
    return rc;
}

/* ---- windows ---- */

void dump_write_window(const struct dump_plan *plan, unsigned char *at)
{
    at = le64_put(at, plan->params.window);
    at = le32_put(at, plan->params.window_parts);
    at = le32_put(at, plan->params.window_flags);
    at = le64_put(at, (uint64_t)plan->taken_ms);
    for (unsigned i = 0; i < plan->nlayers; i++) {
        at = le64_put(at, plan->turns[i].number);
        at = le64_put(at, plan->turns[i].age_us);
    }
}

void dump_read_window(const unsigned char *at, struct bloom_params *params)
{
    uint32_t parts = le32_get(at + 8), flags = le32_get(at + 12);

    params->window = le64_get(at);
    params->window_parts = parts <= UINT16_MAX ? (uint16_t)parts : 0; /* 0 is none, which a window cannot have */
    params->window_flags = flags <= UINT8_MAX ? (uint8_t)flags : UINT8_MAX;
}

/* Part of a plan, whose numbers of layers and of bytes have been checked. DUMP_OK or DUMP_BAD. */
int dump_read_turns(const unsigned char *at, struct dump_plan *plan, struct errbuf *err)
{
    plan->taken_ms = (int64_t)le64_get(at + 16);
    at += DUMP_WINDOW_BYTES;
    for (unsigned i = 0; i < plan->nlayers; i++, at += DUMP_TURN_BYTES) {
        plan->turns[i] = (struct dump_turn){le64_get(at), le64_get(at + 8)};
        const struct bloom_turn turn = {.number = plan->turns[i].number, .started_us = (int64_t)plan->turns[i].age_us};
        if (!bloom_turn_valid(&turn) || plan->taken_ms < 0)
            return errbuf_fail(err, DUMP_BAD, "the turn of layer %u is not valid", i);
    }
    return DUMP_OK;
}

/* Parts are as old as they were at the dump, plus the age of the dump. A dump from the future counts as one of now. */
void dump_take_turns(const struct dump_plan *plan, struct bloom_filter *filter)
{
    int64_t now_us = bloom_window_now_us(filter), since_ms = clock_unix_ms() - plan->taken_ms;
    int64_t at_us = now_us - (since_ms > 0 ? since_ms * 1000 : 0);

    for (unsigned i = 0; i < plan->nlayers; i++) {
        int64_t started_us = at_us - (int64_t)plan->turns[i].age_us;
        const struct bloom_turn turn = {.number = plan->turns[i].number, .started_us = started_us > 0 ? started_us : 0};
        bloom_window_set_turn(filter, i, &turn);
    }
}
