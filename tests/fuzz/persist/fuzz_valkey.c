/* valkey-bloom's bytes. The first byte chooses: L the payload of a BF.LOAD; otherwise the result of a DUMP (RESTORE),
 * with its checksum corrected first. What is accepted is written again in both forms, which give the same numbers and
 * bits; if a filter can have these numbers, it is made, and has them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "check.h"
#include "crc64.h"
#include "fuzz_filters.h"
#include "valkey_dump.h"

#define MAX_BYTES (1u << 18) /* of bits that are kept; more are only counted */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct kept {
    struct valkey_filter value;
    uint64_t len;
    unsigned char bytes[MAX_BYTES];
};

static int keep(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len)
{
    struct kept *kept = ctx;

    CHECK(offset + len <= kept->value.layers[layer].bytes);
    if (kept->len + len <= MAX_BYTES)
        memcpy(kept->bytes + kept->len, bytes, len);
    kept->len += len;
    return 0;
}

static int read_value(const uint8_t *bytes, size_t len, bool load, struct kept *kept, struct errbuf *err)
{
    struct rdb_reader reader;
    uint64_t id;

    kept->len = 0;
    if (load)
        return valkey_read_load(bytes, len, &kept->value, keep, kept, err);
    int rc = rdb_open_dump(&reader, bytes, len, &id, err);
    if (rc == RDB_OK)
        rc = valkey_read(&reader, RDB_MODULE_VERSION(id), &kept->value, keep, kept);
    return rc == RDB_OK ? rdb_close_dump(&reader) : rc;
}

static unsigned char *put_layer(unsigned char *at, const struct kept *kept, unsigned layer, uint64_t *done)
{
    at = valkey_put_blob(at, &kept->value, layer);
    memcpy(at, kept->bytes + *done, (size_t)kept->value.layers[layer].bytes);
    *done += kept->value.layers[layer].bytes;
    return at + kept->value.layers[layer].bytes;
}

static size_t write_value(const struct kept *kept, bool load, unsigned char *out)
{
    const struct valkey_filter *value = &kept->value;
    unsigned char *at = load ? valkey_put_load_head(out, value) : valkey_put_head(out, value);
    uint64_t done = 0;

    for (unsigned i = 0; i < value->nlayers; i++) {
        const struct valkey_layer *layer = &value->layers[i];
        uint64_t len = VALKEY_BLOB_HEAD + layer->bytes;
        at = put_layer(load ? le64_put(at, len) : rdb_put_string_head(at, len), kept, i, &done);
        at = load ? le64_put(le64_put(at, layer->items), layer->capacity) : rdb_put_unsigned(at, layer->capacity);
    }
    if (!load)
        at = rdb_put_dump_end(rdb_put_unsigned(at, value->layers[value->nlayers - 1].items), out);
    return (size_t)(at - out);
}

/* A dump says of the last layer alone how many items it has. */
static void expect_same(const struct kept *a, const struct kept *b, bool all_items)
{
    const struct valkey_filter *x = &a->value, *y = &b->value;

    CHECK(a->len == b->len && memcmp(a->bytes, b->bytes, (size_t)a->len) == 0);
    CHECK(x->expansion == y->expansion && x->error == y->error && x->tightening == y->tightening);
    CHECK(x->fixed_seed == y->fixed_seed && bloom_seed_equal(&x->seed, &y->seed) && x->nlayers == y->nlayers);
    for (uint64_t i = 0; i < x->nlayers; i++) {
        CHECK(x->layers[i].capacity == y->layers[i].capacity && x->layers[i].hashes == y->layers[i].hashes);
        CHECK(x->layers[i].bytes == y->layers[i].bytes);
        CHECK(x->layers[i].items == y->layers[i].items || !(all_items || i + 1 == x->nlayers));
    }
}

static void write_and_read(const struct kept *kept, bool load)
{
    static struct kept again;
    struct errbuf err = {""};
    uint64_t max = load ? valkey_load_bytes(&kept->value) : valkey_dump_max(&kept->value);
    unsigned char *out = malloc((size_t)max);

    CHECK(out);
    size_t len = write_value(kept, load, out);
    CHECK(load ? len == max : len <= max);
    CHECK(read_value(out, len, load, &again, &err) == RDB_OK);
    expect_same(kept, &again, load);
    free(out);
}

/* The filter of the value, which gives the same payload, and a dump that makes it again. */
static void make_filter(const uint8_t *bytes, size_t len, bool load, const struct kept *kept)
{
    static struct dump_plan plan;
    static struct valkey_filter value;
    static struct kept again;
    enum valkey_form form = load ? VALKEY_LOAD : VALKEY_DUMP;
    struct errbuf err = {""};
    struct bloom_pool *pool;
    unsigned char *dump;
    uint64_t dump_len;

    CHECK(bloom_pool_create(&pool) == 0);
    int rc = valkey_restore_plan(form, bytes, len, &plan, &err);
    CHECK((rc == DUMP_OK) == (err.text[0] == '\0'));
    struct bloom_filter *filter = rc == DUMP_OK ? make_up_to(pool, &plan, 2 * MAX_BYTES) : NULL;
    if (filter) {
        valkey_restore(form, bytes, len, filter);
        valkey_describe(filter, &value);
        unsigned char *out = malloc((size_t)valkey_load_bytes(&value));
        CHECK(out && valkey_write_load(filter, &value, out) == out + valkey_load_bytes(&value));
        CHECK(read_value(out, (size_t)valkey_load_bytes(&value), true, &again, &err) == RDB_OK);
        again.value.fixed_seed = kept->value.fixed_seed; /* a random seed may be that one */
        expect_same(kept, &again, true);
        CHECK(valkey_dump(filter, UINT64_MAX, &dump, &dump_len) == DUMP_OK);
        CHECK(valkey_is_dump(dump, (size_t)dump_len));
        CHECK(valkey_restore_plan(VALKEY_DUMP, dump, (size_t)dump_len, &plan, &err) == DUMP_OK);
        free(dump);
        free(out);
    }
    drop(filter);
    bloom_pool_destroy(pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kept kept;
    struct errbuf err = {""};

    if (size == 0)
        return 0;
    uint8_t *bytes = malloc(size);
    CHECK(bytes);
    memcpy(bytes, data + 1, size - 1);
    if (data[0] != 'L' && size > 11)
        le64_put(bytes + size - 9, crc64(0, bytes, size - 9));
    int rc = read_value(bytes, size - 1, data[0] == 'L', &kept, &err);
    CHECK((rc == RDB_OK) == (err.text[0] == '\0'));
    if (rc == RDB_OK && kept.len <= MAX_BYTES) {
        write_and_read(&kept, false);
        write_and_read(&kept, true);
        make_filter(bytes, size - 1, data[0] == 'L', &kept);
    }
    free(bytes);
    return 0;
}
