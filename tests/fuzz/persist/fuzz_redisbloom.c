/* RedisBloom's bytes. The first byte chooses: the result of a DUMP, with its checksum corrected first; a value of
 * one of the five encoding versions; or the header of a BF.SCANDUMP. Accepted small input becomes a filter, which is
 * dumped, scanned, and loaded again, with the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "crc64.h"
#include "fuzz_filters.h"
#include "rdb_reader.h"
#include "redisbloom_dump.h"

#define MAX_BYTES (1u << 20) /* larger filters are not created here */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* NULL: it would be too large; there is no other refusal. */
static struct bloom_filter *make(struct bloom_pool *pool, const struct dump_plan *plan)
{
    if (plan->bytes > MAX_BYTES)
        return NULL;
    struct bloom_filter *filter = make_up_to(pool, plan, MAX_BYTES);
    CHECK(filter);
    return filter;
}

/* The chunk after this iterator, of at most 1000 bytes; the header for 0. */
static void scan(const struct bloom_filter *filter, uint64_t iterator, uint64_t *next_out, unsigned char **chunk_out,
                 size_t *len_out)
{
    static struct redisbloom_filter value;
    uint64_t at = iterator - REDISBLOOM_HEADER_ITERATOR, left;
    unsigned layer;

    *next_out = 0;
    *chunk_out = NULL;
    *len_out = 0;
    if (iterator == 0) {
        redisbloom_describe(filter, bloom_filter_nlayers(filter), &value);
        *len_out = redisbloom_header_bytes(value.nlayers);
        CHECK((*chunk_out = malloc(*len_out)));
        redisbloom_write_header(&value, *chunk_out);
        *next_out = REDISBLOOM_HEADER_ITERATOR;
    } else if (bloom_filter_find_byte(filter, &at, &layer, &left)) {
        *len_out = left < 1000 ? (size_t)left : 1000;
        CHECK((*chunk_out = malloc(*len_out)));
        bloom_filter_get_bytes(filter, layer, at, *chunk_out, *len_out);
        *next_out = iterator + *len_out;
    }
}

/* The chunks of a filter, loaded again in reverse order, are the same filter. */
static void scan_and_load(struct bloom_pool *pool, const struct bloom_filter *filter, const unsigned char *dump,
                          uint64_t len)
{
    struct errbuf err = {""};
    struct redisbloom_load load;
    unsigned char *chunk, *again;
    uint64_t next, ends[4096];
    size_t n = 0, chunk_len;
    bool complete = false;

    scan(filter, 0, &next, &chunk, &chunk_len);
    CHECK(redisbloom_load_begin(&load, chunk, chunk_len, &err) == DUMP_OK);
    CHECK(redisbloom_load_began_with(&load, chunk, chunk_len));
    free(chunk);
    struct bloom_filter *copy = make(pool, &load.plan);
    for (; next != 0 && n < 4096; n++) {
        ends[n] = next;
        scan(filter, next, &next, &chunk, &chunk_len);
        free(chunk);
    }
    while (n > 1) {
        CHECK(!complete);
        scan(filter, ends[--n - 1], &next, &chunk, &chunk_len);
        CHECK(redisbloom_load_chunk(&load, copy, ends[n], chunk, chunk_len, &complete, &err) == DUMP_OK);
        CHECK(redisbloom_has_chunk(copy, ends[n], chunk, chunk_len));
        free(chunk);
    }
    uint64_t again_len;
    if (complete) {
        CHECK(redisbloom_dump(copy, UINT64_MAX, &again, &again_len) == DUMP_OK);
        CHECK(again_len == len && memcmp(again, dump, (size_t)len) == 0);
        free(again);
    }
    redisbloom_load_deinit(&load);
    drop(copy);
}

static void try_dump(struct bloom_pool *pool, uint8_t *bytes, size_t len)
{
    struct dump_plan plan;
    struct errbuf err = {""};

    if (len > 10)
        le64_put(bytes + len - 8, crc64(0, bytes, len - 8));
    CHECK(rdb_is_dump(bytes, len) == (len > 10));
    int rc = redisbloom_restore_plan(bytes, len, &plan, &err);
    CHECK((rc == DUMP_OK) == (err.text[0] == '\0'));
    struct bloom_filter *filter = rc == DUMP_OK ? make(pool, &plan) : NULL;
    if (!filter)
        return;
    unsigned char *dump;
    uint64_t dump_len;
    redisbloom_restore(bytes, len, filter);
    CHECK(redisbloom_dump(filter, UINT64_MAX, &dump, &dump_len) == DUMP_OK);
    CHECK(rdb_is_dump(dump, (size_t)dump_len));
    CHECK(redisbloom_restore_plan(dump, (size_t)dump_len, &plan, &err) == DUMP_OK);
    scan_and_load(pool, filter, dump, dump_len);
    free(dump);
    drop(filter);
}

static void try_value(unsigned encver, const uint8_t *bytes, size_t len)
{
    static struct redisbloom_filter value;
    struct rdb_reader reader;
    struct errbuf err = {""};

    rdb_reader_memory(&reader, bytes, len, &err);
    int rc = redisbloom_read(&reader, encver, &value, NULL, NULL);
    CHECK((rc == RDB_OK) == (err.text[0] == '\0'));
    CHECK(rdb_reader_offset(&reader) <= len);
}

static void try_header(struct bloom_pool *pool, const uint8_t *bytes, size_t len)
{
    struct redisbloom_load load;
    struct errbuf err = {""};
    int rc = redisbloom_load_begin(&load, bytes, len, &err);

    CHECK((rc == DUMP_OK) == (err.text[0] == '\0'));
    if (rc != DUMP_OK)
        return;
    struct bloom_filter *filter = make(pool, &load.plan);
    bool complete = false;
    if (filter) {
        CHECK(redisbloom_load_chunk(&load, filter, load.bytes + 2, "x", 1, &complete, &err) == DUMP_BAD);
        CHECK(redisbloom_load_chunk(&load, filter, 1, "x", 1, &complete, &err) == DUMP_BAD);
        CHECK(redisbloom_load_chunk(&load, filter, load.bytes + 1, "x", 1, &complete, &err) == DUMP_OK);
        CHECK(complete == (load.bytes == 1));
        drop(filter);
    }
    redisbloom_load_deinit(&load);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bloom_pool *pool;

    if (size == 0)
        return 0;
    uint8_t *bytes = malloc(size);
    CHECK(bytes && bloom_pool_create(&pool) == 0);
    memcpy(bytes, data + 1, size - 1);
    if (data[0] < 5)
        try_value(data[0], bytes, size - 1);
    else if (data[0] == 'H')
        try_header(pool, bytes, size - 1);
    else
        try_dump(pool, bytes, size - 1);
    bloom_pool_destroy(pool);
    free(bytes);
    return 0;
}
