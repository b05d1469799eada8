/* valkey-bloom's bytes: recorded filters can be read, and are the same when written again; values that it cannot have
 * made are refused. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "crc64.h"
#include "rdb_reader.h"
#include "valkey_format.h"
#include "valkey_recordings.h"

/* The bits of all layers, one after another. */
struct bits {
    const struct valkey_filter *value;
    unsigned char *bytes;
    size_t len;
    unsigned layer;  /* of the last piece */
    uint64_t offset; /* where the next one must begin */
};

static int take(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len)
{
    struct bits *bits = ctx;
    cr_assert(offset == (layer == bits->layer ? bits->offset : 0), "pieces come in order");
    cr_assert_leq(offset + len, bits->value->layers[layer].bytes);
    bits->layer = layer;
    bits->offset = offset + len;
    bits->bytes = realloc(bits->bytes, bits->len + len);
    memcpy(bits->bytes + bits->len, bytes, len);
    bits->len += len;
    return 0;
}

static int read_dump(const unsigned char *dump, size_t len, struct valkey_filter *value, struct bits *bits,
                     struct errbuf *err)
{
    struct rdb_reader reader;
    uint64_t id;
    *bits = (struct bits){.value = value, .layer = UINT32_MAX};
    cr_assert(rdb_is_dump(dump, len));
    int rc = rdb_open_dump(&reader, dump, len, &id, err);
    if (rc == RDB_OK) {
        cr_assert_eq(RDB_MODULE_TYPE(id), VALKEY_TYPE_ID);
        rc = valkey_read(&reader, RDB_MODULE_VERSION(id), value, take, bits);
    }
    return rc == RDB_OK ? rdb_close_dump(&reader) : rc;
}

static int read_load(const unsigned char *payload, size_t len, struct valkey_filter *value, struct bits *bits,
                     struct errbuf *err)
{
    *bits = (struct bits){.value = value, .layer = UINT32_MAX};
    return valkey_read_load(payload, len, value, take, bits, err);
}

static void expect_same(const struct valkey_filter *a, const struct valkey_filter *b, const char *filter)
{
    cr_assert(a->expansion == b->expansion && a->error == b->error && a->tightening == b->tightening, "%s", filter);
    cr_assert(a->fixed_seed == b->fixed_seed && a->nlayers == b->nlayers, "%s", filter);
    cr_assert(bloom_seed_equal(&a->seed, &b->seed), "%s", filter);
    for (unsigned i = 0; i < a->nlayers; i++) {
        const struct valkey_layer *x = &a->layers[i], *y = &b->layers[i];
        cr_assert(x->capacity == y->capacity && x->items == y->items && x->bytes == y->bytes && x->hashes == y->hashes,
                  "%s: layer %u", filter, i);
    }
}

static unsigned char *put_bits(unsigned char *at, const struct valkey_filter *value, unsigned layer,
                               const struct bits *bits, size_t *done)
{
    memcpy(at, bits->bytes + *done, value->layers[layer].bytes);
    *done += value->layers[layer].bytes;
    return at + value->layers[layer].bytes;
}

/* With another version of RDB than ours. */
static unsigned char *dump_end(unsigned char *at, unsigned char *dump, unsigned version)
{
    at = rdb_put_dump_end(at, dump);
    le16_put(at - 10, (uint16_t)version);
    le64_put(at - 8, crc64(0, dump, (size_t)(at - 8 - dump)));
    return at;
}

static unsigned char *write_dump(const struct valkey_filter *value, const struct bits *bits, unsigned version,
                                 size_t *len_out)
{
    unsigned char *dump = malloc(valkey_dump_max(value)), *at = valkey_put_head(dump, value);
    size_t done = 0;
    for (unsigned i = 0; i < value->nlayers; i++) {
        at = rdb_put_string_head(at, VALKEY_BLOB_HEAD + value->layers[i].bytes);
        at = put_bits(valkey_put_blob(at, value, i), value, i, bits, &done);
        at = rdb_put_unsigned(at, value->layers[i].capacity);
    }
    at = dump_end(rdb_put_unsigned(at, value->layers[value->nlayers - 1].items), dump, version);
    *len_out = (size_t)(at - dump);
    cr_assert_leq(*len_out, valkey_dump_max(value));
    return dump;
}

static unsigned char *write_load(const struct valkey_filter *value, const struct bits *bits, size_t *len_out)
{
    unsigned char *load = malloc(valkey_load_bytes(value)), *at = valkey_put_load_head(load, value);
    size_t done = 0;
    for (unsigned i = 0; i < value->nlayers; i++) {
        at = le64_put(at, VALKEY_BLOB_HEAD + value->layers[i].bytes);
        at = put_bits(valkey_put_blob(at, value, i), value, i, bits, &done);
        at = le64_put(le64_put(at, value->layers[i].items), value->layers[i].capacity);
    }
    *len_out = (size_t)(at - load);
    cr_assert_eq(*len_out, valkey_load_bytes(value));
    return load;
}

/* A recorded dump may have compressed strings, whose form is the compressor's choice: its value without compression is
 * in an RDB file, but for the largest. */
static bool is_recorded(const unsigned char *again, size_t again_len, const unsigned char *dump, size_t dump_len)
{
    static unsigned char *rdb;
    static size_t len;
    if (again_len == dump_len && memcmp(again, dump, dump_len) == 0)
        return true;
    if (!rdb)
        rdb = golden_file(&len, "%s/small_uncompressed.rdb", VALKEY_GOLDEN);
    return memmem(rdb, len, again + 1, again_len - 1 - 10) != NULL; /* without its type and its footer */
}

Test(valkey_format, recorded_filters_are_read_and_written_byte_by_byte)
{
    size_t recorded = 0;
    for (size_t f = 0; f < VALKEY_NFILTERS; f++) {
        static struct valkey_filter value, from_load;
        struct errbuf err = {""};
        struct bits bits, load_bits;
        size_t dump_len, load_len, len;
        const char *name = VALKEY_FILTERS[f];
        unsigned char *dump = golden_file(&dump_len, "%s/%s/dump.bin", VALKEY_GOLDEN, name), *again;
        unsigned char *load = golden_file(&load_len, "%s/%s/load.bin", VALKEY_GOLDEN, name);
        cr_assert_eq(read_dump(dump, dump_len, &value, &bits, &err), RDB_OK, "%s: %s", name, err.text);
        cr_assert_eq(read_load(load, load_len, &from_load, &load_bits, &err), RDB_OK, "%s: %s", name, err.text);
        expect_same(&value, &from_load, name);
        cr_assert_eq(bits.len, load_bits.len);
        cr_assert_arr_eq(bits.bytes, load_bits.bytes, bits.len, "%s", name);

        again = write_load(&value, &bits, &len);
        cr_assert_eq(len, load_len, "%s", name);
        cr_assert_arr_eq(again, load, len, "%s", name);
        free(again);
        again = write_dump(&value, &bits, le16_get(dump + dump_len - 10), &len);
        recorded += is_recorded(again, len, dump, dump_len);
        free(again);
        free(dump);
        free(load);
        free(bits.bytes);
        free(load_bits.bytes);
    }
    cr_assert_eq(recorded, VALKEY_NFILTERS - 1, "all but 17_100k: %zu", recorded);
}

static int read_hostile(size_t i, const unsigned char *bytes, size_t len, struct errbuf *err)
{
    static struct valkey_filter value;
    struct bits bits;
    int rc = (i < VALKEY_HOSTILE_LOAD ? read_dump : read_load)(bytes, len, &value, &bits, err);
    free(bits.bytes);
    return rc;
}

Test(valkey_format, hostile_values_are_refused_with_the_number_that_is_wrong)
{
    for (size_t i = 0; i < VALKEY_NHOSTILE; i++) {
        const struct valkey_hostile *hostile = &VALKEY_HOSTILE[i];
        struct errbuf err = {""};
        size_t len;
        unsigned char *bytes = valkey_hostile_file(hostile, &len);
        int rc = read_hostile(i, bytes, len, &err);
        cr_expect_eq(rc, hostile->reason ? RDB_BAD : RDB_OK, "%s: %s", hostile->file, err.text);
        if (hostile->reason)
            cr_expect(strstr(err.text, hostile->reason), "%s: %s", hostile->file, err.text);
        free(bytes);
    }
}

/* CVE-2026-21864: valkey-bloom 1.0.0 ended its server by an assertion at any RESTORE whose value ends too early. Here
 * each cut of a value, with a checksum that is right, is a clear error; so is each cut of a payload. */
Test(valkey_format, cve_2026_21864_a_value_that_ends_too_early_is_an_error)
{
    static struct valkey_filter value;
    struct bits bits;
    size_t len, cuts = 0;
    unsigned char *dump = golden_file(&len, "%s/01_tiny_cap1/dump.bin", VALKEY_GOLDEN), *cut = malloc(len);
    for (size_t n = 11; n < len - 11; n++, cuts++) {
        struct errbuf err = {""};
        memcpy(cut, dump, n);
        unsigned char *end = rdb_put_dump_end(cut + n, cut); /* with the opcode of an end */
        cr_assert_eq(read_dump(cut, (size_t)(end - cut), &value, &bits, &err), RDB_BAD, "%zu bytes", n);
        cr_assert(err.text[0], "%zu bytes", n);
        free(bits.bytes);
    }
    free(dump);
    free(cut);
    unsigned char *load = golden_file(&len, "%s/01_tiny_cap1/load.bin", VALKEY_GOLDEN);
    for (size_t n = 0; n <= len + 1; n++, cuts++) { /* with the NUL behind it: that does not matter */
        struct errbuf err = {""};
        cr_assert_eq(read_load(load, n, &value, &bits, &err), n >= len ? RDB_OK : RDB_BAD, "%zu bytes", n);
        cr_assert(n >= len || err.text[0], "%zu bytes", n);
        free(bits.bytes);
    }
    free(load);
    cr_assert_gt(cuts, 1000);
}
