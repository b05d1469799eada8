/* The type of a value, its id and its opcodes, the version and the checksum, in this order:
 *
 *     7 | id | opcode 2, number of chunks | opcode 5, chunk (a string) ... | opcode 0 | RDB version, 2 bytes | CRC-64
 *
 * An engine may have compressed the strings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "crc64.h"
#include "dump.h"
#include "rdb_reader.h"
#include "rdb_value.h"

/* Values of modules have this form since version 8 of RDB; every engine takes versions up to its own. */
#define VERSION    8
#define TAIL_BYTES 10 /* version and checksum */

enum opcode { OPCODE_END = 0, OPCODE_UNSIGNED = 2, OPCODE_STRING = 5 };

/* Nine characters of six bits each, and ten bits of the version. */
static uint64_t type_id(void)
{
    static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint64_t id = 0;

    for (const char *at = DUMP_TYPE_NAME; *at; at++)
        id = id << 6 | (uint64_t)(strchr(characters, *at) - characters);
    return id << 10 | DUMP_TYPE_VERSION;
}

/* ---- writing ---- */

static uint64_t length_bytes(uint64_t value)
{
    unsigned char space[RDB_LENGTH_MAX_BYTES];

    return (uint64_t)(rdb_put_length(space, value) - space);
}

uint64_t dump_whole_bytes(const struct dump_plan *plan)
{
    uint32_t n = dump_chunks(plan);
    uint64_t bytes = 1 + length_bytes(type_id()) + 1 + length_bytes(n) + 1 + TAIL_BYTES;

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
    unsigned char *at = out;

    *at++ = RDB_TYPE_MODULE_2;
    at = rdb_put_length(at, type_id());
    *at++ = OPCODE_UNSIGNED;
    at = rdb_put_length(at, n);
    for (uint32_t i = 0; i < n; i++) {
        size_t len = dump_chunk_bytes(plan, i);

        *at++ = OPCODE_STRING;
        at = rdb_put_length(at, len);
        dump_write_chunk(plan, filter, 0, 0, &place, at);
        at += len;
    }
    *at++ = OPCODE_END;
    *at++ = VERSION;
    *at++ = 0;
    le64_put(at, crc64(0, out, (size_t)(at - out)));
}

/* ---- reading ---- */

static int expect(struct rdb_reader *reader, uint64_t opcode, const char *what)
{
    uint64_t got;
    int rc = rdb_length(reader, &got, what);

    return rc != 0 || got == opcode ? rc : rdb_bad(reader, "%s is of another kind", what);
}

/* The next chunk, into `buf`, which has room for `max` bytes. */
static int read_chunk(struct rdb_reader *reader, unsigned char *buf, size_t max, size_t *len_out)
{
    uint64_t len = 0;
    int rc = expect(reader, OPCODE_STRING, "a chunk");

    if (rc == 0)
        rc = rdb_string_copy(reader, buf, max, &len, "a chunk");
    if (rc == 0 && len > max)
        rc = rdb_bad(reader, "a chunk has %llu bytes", (unsigned long long)len);
    *len_out = (size_t)len;
    return rc;
}

/* Opens a value up to its first chunk. */
static int open_value(struct rdb_reader *reader, const unsigned char *data, size_t len, uint64_t *chunks_out,
                      struct errbuf *err)
{
    unsigned char type;
    uint64_t id;

    rdb_reader_memory(reader, data, len - TAIL_BYTES, err);
    if (rdb_byte(reader, &type, "the type") != 0 || type != RDB_TYPE_MODULE_2 ||
        rdb_length(reader, &id, "the id") != 0 || id >> 10 != type_id() >> 10) {
        errbuf_set(err, "not a filter of Bloomery");
        return DUMP_FOREIGN;
    }
    if (id != type_id()) {
        errbuf_set(err, "version %u of the encoding is unknown", (unsigned)(id & 1023));
        return DUMP_BAD;
    }
    if (expect(reader, OPCODE_UNSIGNED, "the number of chunks") != 0 ||
        rdb_length(reader, chunks_out, "the number of chunks") != 0)
        return DUMP_BAD;
    return DUMP_OK;
}

static int open_load(struct rdb_reader *reader, struct dump_load *load, struct errbuf *err)
{
    unsigned char header[DUMP_HEADER_MAX];
    size_t len;

    return read_chunk(reader, header, sizeof(header), &len) == 0 ? dump_replay_begin(load, header, len, err) : DUMP_BAD;
}

int dump_read_plan(const void *data, size_t len, struct dump_plan *plan_out, struct errbuf *err)
{
    struct rdb_reader reader;
    struct dump_load load;
    uint64_t n;
    int rc;

    if (len <= TAIL_BYTES || le64_get((const unsigned char *)data + len - 8) != crc64(0, data, len - 8)) {
        errbuf_set(err, "the checksum is wrong");
        return DUMP_FOREIGN;
    }
    rc = open_value(&reader, data, len, &n, err);
    if (rc == DUMP_OK)
        rc = open_load(&reader, &load, err);
    if (rc != DUMP_OK)
        return rc;
    if (n != dump_chunks(&load.plan)) {
        errbuf_set(err, "%llu chunks of %u: the filter was being loaded", (unsigned long long)n,
                   dump_chunks(&load.plan));
        return DUMP_BAD;
    }
    *plan_out = load.plan;
    return DUMP_OK;
}

static int read_chunks(struct rdb_reader *reader, struct dump_load *load, struct bloom_filter *filter,
                       unsigned char *chunk, struct errbuf *err)
{
    bool complete = false;

    while (!complete) {
        size_t len;

        if (read_chunk(reader, chunk, DUMP_CHUNK_MAX, &len) != 0 ||
            dump_replay_chunk(load, filter, chunk, len, &complete, err) != DUMP_OK)
            return DUMP_BAD;
    }
    if (expect(reader, OPCODE_END, "the end") != 0)
        return DUMP_BAD;
    return DUMP_OK;
}

int dump_read_whole(const void *data, size_t len, struct bloom_filter *filter, struct errbuf *err)
{
    unsigned char *chunk = malloc(DUMP_CHUNK_MAX);
    struct rdb_reader reader;
    struct dump_load load;
    uint64_t n;
    int rc;

    if (!chunk)
        return -ENOMEM;
    rc = open_value(&reader, data, len, &n, err);
    if (rc == DUMP_OK)
        rc = open_load(&reader, &load, err);
    if (rc == DUMP_OK)
        rc = read_chunks(&reader, &load, filter, chunk, err);
    free(chunk);
    return rc;
}
