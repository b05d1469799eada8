/* Dumps of filters. Checksums are corrected first, so that the code after them is reached. The first byte chooses: a
 * piece (DUMP), a header, or a chunk that follows a header. Accepted input has the same bytes when it is written
 * again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "crc64.h"
#include "dump.h"
#include "fuzz_filters.h"

#define MAX_BYTES (1u << 20) /* larger filters are not created here */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign(uint8_t *bytes, size_t len)
{
    XXH128_canonical_t sum;

    if (len < DUMP_FRAME_BYTES)
        return;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, len - 16));
    memcpy(bytes + len - 16, sum.digest, 16);
}

/* Engines write a piece in more than one form (compressed strings, longer lengths): an accepted piece is the same
 * filter when it is written and read again. */
static void try_whole(struct bloom_pool *pool, uint8_t *bytes, size_t len)
{
    struct dump_plan plan;
    struct errbuf err = {""};

    if (len >= 8) {
        uint64_t crc = crc64(0, bytes, len - 8);
        memcpy(bytes + len - 8, &crc, 8);
    }
    int rc = dump_read_plan(bytes, len, &plan, &err);
    CHECK((rc == DUMP_OK) == (err.text[0] == '\0'));
    struct bloom_filter *filter = rc == DUMP_OK ? make_up_to(pool, &plan, MAX_BYTES) : NULL;
    if (filter && dump_read_whole(bytes, len, filter, &err) == DUMP_OK) {
        struct dump_plan again;
        dump_plan_of(filter, bloom_filter_nlayers(filter), &again);
        size_t size = (size_t)dump_whole_bytes(&again);
        uint8_t *written = malloc(size), *twice = malloc(size);
        struct bloom_filter *other = make_up_to(pool, &again, MAX_BYTES);

        CHECK(written && twice && other);
        dump_write_whole(&again, filter, written);
        CHECK(dump_read_whole(written, size, other, &err) == DUMP_OK);
        dump_write_whole(&again, other, twice);
        CHECK(memcmp(written, twice, size) == 0);
        free(written);
        free(twice);
        drop(other);
    }
    drop(filter);
}

static void try_header(struct bloom_pool *pool, const uint8_t *bytes, size_t len)
{
    struct dump_load load;
    struct errbuf err = {""};
    uint32_t chain = 0;

    if (len >= 16)
        memcpy(&chain, bytes + len - 16, 4);
    for (unsigned nlayers = 1; nlayers <= 2; nlayers++) {
        struct dump_place place = {.nlayers = nlayers, .next = 1, .chain = chain & 0x7fffff};

        err.text[0] = '\0';
        int rc = dump_load_begin(&load, (int64_t[]){dump_iterator(&place)}, bytes, len, &err);
        CHECK((rc == DUMP_OK) == (err.text[0] == '\0'));
        struct bloom_filter *filter = rc == DUMP_OK ? make_up_to(pool, &load.plan, MAX_BYTES) : NULL;
        drop(filter);
    }
}

/* Bytes instead of chunk 1 or 2 of a dump with a valid beginning. */
static void try_chunk(struct bloom_pool *pool, uint8_t *bytes, size_t len, uint32_t index)
{
    struct dump_plan plan = {.params = {100, 0.01, 2}, .nlayers = 1, .shapes = {{4, 5, BLOOM_NA}}, .bytes = 32};
    struct bloom_filter *filter = make_up_to(pool, &plan, MAX_BYTES);
    struct dump_place place = {.nlayers = 1};
    struct dump_load load;
    struct errbuf err = {""};
    uint8_t chunk[256];
    bool complete = false;
    uint32_t chain = 0;

    CHECK(filter != NULL);
    dump_write_chunk(&plan, filter, 3, 4, &place, chunk);
    CHECK(dump_load_begin(&load, (int64_t[]){dump_iterator(&place)}, chunk, dump_chunk_bytes(&plan, 0), &err) ==
          DUMP_OK);
    if (index == 2) {
        dump_write_chunk(&plan, filter, 3, 4, &place, chunk);
        CHECK(dump_load_chunk(&load, filter, (int64_t[]){dump_iterator(&place)}, chunk, dump_chunk_bytes(&plan, 1),
                              &complete, &err) == DUMP_OK);
    }
    if (len >= DUMP_FRAME_BYTES) {
        memcpy(bytes + 24, &place.chain, 4); /* no fuzzer guesses it */
        sign(bytes, len);
        memcpy(&chain, bytes + len - 16, 4);
    }
    place = (struct dump_place){.nlayers = 1, .next = index + 1, .chain = chain & 0x7fffff};
    int rc = dump_load_chunk(&load, filter, (int64_t[]){dump_iterator(&place)}, bytes, len, &complete, &err);
    CHECK((rc == DUMP_OK) == (err.text[0] == '\0'));
    CHECK(rc == DUMP_OK || rc == DUMP_BAD);
    CHECK(rc != DUMP_OK || complete == (index == 2));
    CHECK(bloom_filter_items(filter) <= bloom_filter_capacity(filter));
    drop(filter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bloom_pool *pool;

    if (size < 1 || size > MAX_BYTES)
        return 0;
    CHECK(bloom_pool_create(&pool) == 0);
    size_t len = size - 1;
    uint8_t *bytes = malloc(len > 0 ? len : 1);
    CHECK(bytes != NULL);
    memcpy(bytes, data + 1, len);
    if (data[0] & 0x80)
        sign(bytes, len);
    switch (data[0] & 3) {
    case 0:
        try_whole(pool, bytes, len);
        break;
    case 1:
        try_header(pool, bytes, len);
        break;
    default:
        try_chunk(pool, bytes, len, (data[0] & 3) - 1u);
        break;
    }
    free(bytes);
    bloom_pool_destroy(pool);
    return 0;
}
