/* RedisBloom's bytes: recorded values can be read, and are the same when written again. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "crc64.h"
#include "golden.h"
#include "rdb_reader.h"
#include "redisbloom_format.h"
#include "redisbloom_recordings.h"

/* ---- recorded values ---- */

/* The bits of all layers, one after another. */
struct bits {
    unsigned char *bytes;
    size_t len;
    unsigned layer;  /* of the last piece */
    uint64_t offset; /* where the next one must begin */
};

static int take(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len)
{
    struct bits *bits = ctx;
    cr_assert(offset == (layer == bits->layer ? bits->offset : 0), "pieces come in order");
    bits->layer = layer;
    bits->offset = offset + len;
    bits->bytes = realloc(bits->bytes, bits->len + len);
    memcpy(bits->bytes + bits->len, bytes, len);
    bits->len += len;
    return 0;
}

static void read_dump(const unsigned char *dump, size_t len, struct redisbloom_filter *value, struct bits *bits)
{
    struct rdb_reader reader;
    struct errbuf err = {""};
    unsigned encver = 99;
    *bits = (struct bits){.layer = UINT32_MAX};
    cr_assert(rdb_is_dump(dump, len));
    cr_assert_eq(redisbloom_open_dump(&reader, dump, len, &encver, &err), RDB_OK, "%s", err.text);
    cr_assert_eq(encver, REDISBLOOM_ENCVER);
    cr_assert_eq(redisbloom_read(&reader, encver, value, take, bits), RDB_OK, "%s", err.text);
    cr_assert_eq(rdb_close_dump(&reader), RDB_OK, "%s", err.text);
}

/* The next "hex" of a recorded scan, as bytes. */
static size_t next_chunk(const char **at, unsigned char *out, uint64_t *iterator_out)
{
    const char *iterator = strstr(*at, "\"iterator\": "), *hex = strstr(*at, "\"hex\": \"");
    size_t n = 0;
    if (!iterator || !hex)
        return 0;
    *iterator_out = strtoull(iterator + 12, NULL, 10);
    for (hex += 8; *hex != '"'; hex += 2)
        cr_assert_eq(sscanf(hex, "%2hhx", &out[n++]), 1);
    *at = hex;
    return n;
}

static void expect_same(const struct redisbloom_filter *a, const struct redisbloom_filter *b, const char *filter)
{
    cr_assert(a->options == b->options && a->growth == b->growth && a->nlayers == b->nlayers, "%s", filter);
    cr_assert_eq(memcmp(a->layers, b->layers, a->nlayers * sizeof(a->layers[0])), 0, "%s", filter);
}

Test(redisbloom_format, a_recorded_dump_and_the_scan_of_the_same_filter_agree)
{
    for (size_t f = 0; f < REDISBLOOM_NFILTERS; f++) {
        static struct redisbloom_filter from_dump, from_scan;
        struct errbuf err = {""};
        struct bits bits;
        size_t len, scan_len;
        unsigned char *dump = redisbloom_dump_file(REDISBLOOM_FILTERS[f], &len);
        char *scan = (char *)golden_file(&scan_len, "%s/%s/scandump.json", REDISBLOOM_GOLDEN, REDISBLOOM_FILTERS[f]);
        unsigned char *chunk = malloc(scan_len), *again = malloc(scan_len);
        const char *at = scan;
        uint64_t iterator, end = 1;
        read_dump(dump, len, &from_dump, &bits);

        size_t n = next_chunk(&at, chunk, &iterator);
        cr_assert_eq(iterator, REDISBLOOM_HEADER_ITERATOR);
        cr_assert_eq(redisbloom_read_header(chunk, n, &from_scan, &err), RDB_OK, "%s: %s", REDISBLOOM_FILTERS[f],
                     err.text);
        expect_same(&from_dump, &from_scan, REDISBLOOM_FILTERS[f]);
        cr_assert_eq(redisbloom_header_bytes(from_scan.nlayers), n);
        redisbloom_write_header(&from_scan, again);
        cr_assert_arr_eq(again, chunk, n, "%s: the header, written again", REDISBLOOM_FILTERS[f]);

        while ((n = next_chunk(&at, chunk, &iterator)) > 0) {
            cr_assert_arr_eq(bits.bytes + end - 1, chunk, n, "%s: bits before %llu", REDISBLOOM_FILTERS[f],
                             (unsigned long long)iterator);
            end += n;
            cr_assert_eq(iterator, end);
        }
        cr_assert_eq(end - 1, bits.len);
        free(dump);
        free(scan);
        free(chunk);
        free(again);
        free(bits.bytes);
    }
}

/* With another version of RDB than ours. */
static unsigned char *dump_end(unsigned char *at, unsigned char *dump, unsigned version)
{
    at = rdb_put_dump_end(at, dump);
    le16_put(at - 10, (uint16_t)version);
    le64_put(at - 8, crc64(0, dump, (size_t)(at - 8 - dump)));
    return at;
}

static size_t write_dump(const struct redisbloom_filter *value, const struct bits *bits, unsigned version,
                         unsigned char *out)
{
    unsigned char *at = redisbloom_put_head(out, value);
    size_t done = 0;
    for (unsigned i = 0; i < value->nlayers; i++) {
        at = redisbloom_put_fields(at, &value->layers[i]);
        size_t bytes = (size_t)redisbloom_bytes(&value->layers[i]);
        at = rdb_put_string_head(at, bytes);
        memcpy(at, bits->bytes + done, bytes);
        at = rdb_put_unsigned(at + bytes, value->layers[i].count);
        done += bytes;
    }
    at = dump_end(at, out, version);
    cr_assert_leq((size_t)(at - out), redisbloom_dump_max(value));
    return (size_t)(at - out);
}

/* Byte by byte where Redis has not compressed a string; the compressed form is the compressor's choice. */
Test(redisbloom_format, a_recorded_dump_is_written_again)
{
    size_t equal = 0;
    for (size_t f = 0; f < REDISBLOOM_NFILTERS; f++) {
        static struct redisbloom_filter value, again;
        struct bits bits, bits_again;
        size_t len;
        unsigned char *dump = redisbloom_dump_file(REDISBLOOM_FILTERS[f], &len);
        read_dump(dump, len, &value, &bits);
        unsigned char *out = malloc(redisbloom_dump_max(&value));
        size_t n = write_dump(&value, &bits, le16_get(dump + len - 10), out);
        equal += n == len && memcmp(out, dump, n) == 0;
        read_dump(out, n, &again, &bits_again);
        expect_same(&value, &again, REDISBLOOM_FILTERS[f]);
        cr_assert_eq(bits.len, bits_again.len);
        cr_assert_arr_eq(bits.bytes, bits_again.bytes, bits.len);
        free(bits_again.bytes);
        free(out);
        free(bits.bytes);
        free(dump);
    }
    cr_assert_eq(equal, REDISBLOOM_NFILTERS - 1, "all but the empty filter's, which Redis has compressed: %zu", equal);
}

/* ---- older encodings ---- */

/* Reads a value put together by hand. */
static int read_value(const void *bytes, size_t len, unsigned encver, struct redisbloom_filter *value,
                      struct errbuf *err)
{
    struct rdb_reader reader;
    *err = (struct errbuf){""};
    rdb_reader_memory(&reader, bytes, len, err);
    int rc = redisbloom_read(&reader, encver, value, NULL, NULL);
    cr_assert_eq(rc == RDB_OK, err->text[0] == '\0');
    cr_assert(rc != RDB_OK || rdb_reader_offset(&reader) == len);
    return rc;
}

/* One layer of 64 bits for 10 entries at 0.01: opcodes, then the parts that differ by version. */
#define HALF    "\0\0\0\0\0\0\xe0\x3f"             /* 0.5 */
#define BPE     "\x9a\x99\x99\x99\x99\x99\x19\x40" /* 6.4 */
#define FIELDS  "\2\12\4" HALF "\2\7\4" BPE
#define BITS    "\5\10abcdefgh\2\3\0"
#define OLDEST  "\2\3\2\1" FIELDS BITS
#define WITH_N2 "\2\3\2\1" FIELDS "\2\x40\x40\2\0" BITS
#define OPTIONS "\2\3\2\1\2\4" FIELDS "\2\x40\x40\2\6" BITS
#define NEWEST  "\2\3\2\1\2\5\2\3" FIELDS "\2\x40\x40\2\0" BITS

Test(redisbloom_format, every_version_of_the_encoding_is_read)
{
    static const struct {
        const char *bytes;
        size_t len;
        unsigned encver;
        unsigned options, growth, n2;
    } table[] = {
        {OLDEST, sizeof(OLDEST) - 1, 0, 0, 2, 0},   {WITH_N2, sizeof(WITH_N2) - 1, 1, 0, 2, 0},
        {OPTIONS, sizeof(OPTIONS) - 1, 2, 4, 2, 6}, {OPTIONS, sizeof(OPTIONS) - 1, 3, 4, 2, 6},
        {NEWEST, sizeof(NEWEST) - 1, 4, 5, 3, 0},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        static struct redisbloom_filter value;
        struct errbuf err;
        cr_assert_eq(read_value(table[i].bytes, table[i].len, table[i].encver, &value, &err), RDB_OK, "row %zu: %s", i,
                     err.text);
        cr_assert_eq(value.nlayers, 1);
        cr_assert_eq(value.options, table[i].options);
        cr_assert_eq(value.growth, table[i].growth);
        const struct redisbloom_layer *layer = &value.layers[0];
        cr_assert(layer->entries == 10 && layer->error == 0.5 && layer->hashes == 7 && layer->bits == 64);
        cr_assert(layer->n2 == table[i].n2 && layer->count == 3);
        for (size_t cut = 0; cut < table[i].len; cut++)
            cr_assert_eq(read_value(table[i].bytes, cut, table[i].encver, &value, &err), RDB_BAD);
    }
}

/* ---- hostile values ---- */

#define HUGE_LENGTH "\x81\xff\xff\xff\xff\xff\xff\xff\xff"

Test(redisbloom_format, a_made_up_value_is_refused_by_the_name_of_its_field)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *reason;
    } table[] = {
#define ROW(bytes, reason) {bytes, sizeof(bytes) - 1, reason}
        ROW("\2\3\2\0\2\5\2\3\0", "nfilters: 0 layers"),
        ROW("\2\3\2\x44\x01\2\5\2\3" FIELDS, "nfilters: 1025 layers"),
        ROW("\2\3\2" HUGE_LENGTH "\2\5\2\3" FIELDS, "nfilters: 18446744073709551615 layers"),
        ROW("\1\3\2\1\2\5\2\3" FIELDS "\2\x40\x40\2\0" BITS, "size: opcode 1, expected 2"),
        ROW("\2\3\2\1\2\5\2\3" FIELDS "\2\0\2\0" BITS, "layer 0: bits: 0 is not a whole number of bytes"),
        ROW("\2\3\2\1\2\5\2\3" FIELDS "\2\x40\x41\2\0" BITS, "layer 0: bits: 65 is not a whole number of bytes"),
        ROW("\2\3\2\1\2\5\2\3" FIELDS "\2\x40\x48\2\0" BITS, "layer 0: the string of bits: 8 bytes, expected 9"),
        ROW("\2\3\2\1\2\5\2\3" FIELDS "\2\x81\xff\xff\xff\xff\xff\xff\xff\xf8\2\0" BITS,
            "layer 0: the string of bits: 8 bytes, expected 2305843009213693951"),
        ROW("\2\3\2\1\2\5\2\3" FIELDS "\2\x81\x7f\xff\xff\xff\xff\xff\xff\xf8\2\0\5\x81\x0f\xff\xff\xff\xff\xff\xff\xff"
            "abc",
            "layer 0: the data ends within the string of bits"),
        ROW("\2\4\2\1\2\5\2\3" FIELDS "\2\x40\x40\2\0" BITS, "size: 4 items, but those of the layers add up to 3"),
        ROW("\2\2\2\2\2\5\2\3" FIELDS "\2\x40\x40\2\0\5\10abcdefgh\2" HUGE_LENGTH FIELDS "\2\x40\x40\2\0" BITS,
            "size: the items of the layers add up to more than a 64-bit number"),
        ROW("\2\3\2\1\2\5\2\3" FIELDS "\2\x40\x40\2\0\5\10abcdefgh\2\3\2", "the end of the value: opcode 2"),
        ROW("\2\3\2\1\2\5\2\3\2\xc1\1\1", "layer 0: entries: a specially encoded string is no number"),
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        static struct redisbloom_filter value;
        struct errbuf err;
        cr_assert_eq(read_value(table[i].bytes, table[i].len, 4, &value, &err), RDB_BAD, "row %zu", i);
        cr_assert(strstr(err.text, table[i].reason), "row %zu: '%s'", i, err.text);
    }
    static struct redisbloom_filter value;
    struct errbuf err;
    cr_assert_eq(read_value(NEWEST, sizeof(NEWEST) - 1, 5, &value, &err), RDB_BAD);
    cr_assert(strstr(err.text, "encoding version 5"), "%s", err.text);
}

static int open_dump(const unsigned char *dump, size_t len, struct errbuf *err)
{
    static struct redisbloom_filter value;
    struct rdb_reader reader;
    unsigned encver;
    *err = (struct errbuf){""};
    int rc = redisbloom_open_dump(&reader, dump, len, &encver, err);
    if (rc == RDB_OK)
        rc = redisbloom_read(&reader, encver, &value, NULL, NULL);
    return rc == RDB_OK ? rdb_close_dump(&reader) : rc;
}

/* A value and the trailer of a DUMP. */
static size_t seal(unsigned char *out, const char *bytes, size_t len)
{
    memcpy(out, bytes, len);
    out[len] = 11;
    out[len + 1] = 0;
    le64_put(out + len + 2, crc64(0, out, len + 2));
    return len + 10;
}

#define MODULE "\7\x81\x30\x16\xe5\xa2\x89\xbe\xf8\4"

Test(redisbloom_format, what_is_no_dump_of_a_filter_is_refused)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *reason; /* NULL: it is one */
    } table[] = {
        ROW(MODULE NEWEST, NULL),
        ROW("\xf3\1spec\2\7\0" MODULE NEWEST, NULL), /* with a module's notes beside the key */
        ROW("\0\3abc", "the value is a string, not a Bloom filter"),
        ROW("\4\1\1a\1b", "the value is a hash, not a Bloom filter"),
        ROW("\x63\1\1a\1b", "the value is a value of an unknown type"),
        ROW("\7\x81\x30\x16\xe5\xa2\x89\xbe\x08\4\0", "the value is of the module type MBbloom"),
        ROW("\7\x81\x30\x16\xe5\xa2\x89\xbe\xf8\5" NEWEST, "encoding version 5"),
        ROW(MODULE NEWEST "\0", "the value ends before the dump"),
        ROW(MODULE, "the data ends within size"),
        ROW("\7", "the data ends within the module type"),
    };
    unsigned char dump[256];
    struct errbuf err;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        size_t len = seal(dump, table[i].bytes, table[i].len);
        int rc = open_dump(dump, len, &err);
        cr_assert_eq(rc, table[i].reason ? RDB_BAD : RDB_OK, "row %zu: %s", i, err.text);
        cr_assert(!table[i].reason || strstr(err.text, table[i].reason), "row %zu: '%s'", i, err.text);
        cr_assert(rdb_is_dump(dump, len));
        for (size_t at = 0; at < len; at++) {
            dump[at] ^= 4;
            cr_assert_not(rdb_is_dump(dump, len), "row %zu, byte %zu", i, at);
            dump[at] ^= 4;
            cr_assert_not(rdb_is_dump(dump, at));
        }
    }
    cr_assert_eq(open_dump(dump, 10, &err), RDB_BAD);
    cr_assert(strstr(err.text, "10 bytes are too few"), "%s", err.text);
}

Test(redisbloom_format, a_made_up_header_is_refused_by_the_name_of_its_field)
{
    static const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
        const char *reason;
    } table[] = {
        {0, 999, 8, "size: 999 items, but those of the layers add up to 1000"},
        {8, 0, 4, "nfilters: 0 layers"},
        {8, UINT32_MAX, 4, "nfilters: 4294967295 layers"},
        {8, 2, 4, "nfilters: a header with 2 layers has 126 bytes, not 73"},
        {20, 1383, 8, "layer 0: bytes: 1383, expected those of 11072 bits"},
        {20, UINT64_MAX, 8, "layer 0: bytes: 18446744073709551615, expected those of 11072 bits"},
        {28, 0, 8, "layer 0: bits: 0 is not a whole number of bytes"},
        {28, 11071, 8, "layer 0: bits: 11071 is not a whole number of bytes"},
        {36, 1001, 8, "size: 1000 items, but those of the layers add up to 1001"},
    };
    size_t scan_len;
    char *scan = (char *)golden_file(&scan_len, "%s/n1000_p0.01/scandump.json", REDISBLOOM_GOLDEN);
    const char *rest = scan;
    unsigned char header[4096], damaged[sizeof(header)];
    uint64_t iterator;
    size_t len = next_chunk(&rest, header, &iterator);
    cr_assert_eq(len, 73);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        static struct redisbloom_filter value;
        struct errbuf err = {""};
        memcpy(damaged, header, len);
        memcpy(damaged + table[i].at, &table[i].value, table[i].bytes);
        cr_assert_eq(redisbloom_read_header(damaged, len, &value, &err), RDB_BAD, "row %zu", i);
        cr_assert(strstr(err.text, table[i].reason), "row %zu: '%s'", i, err.text);
    }
    for (size_t cut = 0; cut < len; cut++) {
        static struct redisbloom_filter value;
        struct errbuf err = {""};
        cr_assert_eq(redisbloom_read_header(header, cut, &value, &err), RDB_BAD);
    }
    free(scan);
}
