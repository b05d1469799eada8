/* Redis's encodings: checksum, compression, lengths, values, whole files. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crc64.h"
#include "golden.h"
#include "lzf.h"
#include "lzf_pack.h"
#include "rdb_file.h"
#include "rdb_reader.h"
#include "rng.h"

#define GOLDEN BLOOMERY_GOLDEN_DIR "/redisbloom"

/* ---- crc64 ---- */

Test(crc64, has_the_check_value_of_jones)
{
    cr_assert_eq(crc64(0, "123456789", 9), UINT64_C(0xe9c6d914c4b8d9ca));
    cr_assert_eq(crc64(0, "", 0), 0);
}

/* Single bytes take another code path than many at once. */
Test(crc64, is_the_same_for_every_cut)
{
    unsigned char bytes[200];
    struct rng rng;
    rng_init(&rng, 7);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)rng_next(&rng);
    uint64_t one_by_one = 0;
    for (size_t i = 0; i < sizeof(bytes); i++)
        one_by_one = crc64(one_by_one, bytes + i, 1);
    for (size_t cut = 0; cut <= sizeof(bytes); cut++)
        cr_assert_eq(crc64(crc64(0, bytes, cut), bytes + cut, sizeof(bytes) - cut), one_by_one, "cut at %zu", cut);
}

/* ---- lzf ---- */

struct collected {
    unsigned char *bytes;
    size_t len;
    size_t room;
    int status; /* the result of the sink */
};

static int collect(void *ctx, const unsigned char *bytes, size_t len)
{
    struct collected *to = ctx;
    cr_assert(len <= to->room - to->len, "more output than was announced");
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
    return to->status;
}

static int decompress(const unsigned char *in, size_t len, size_t piece, struct collected *out)
{
    struct lzf_decoder decoder;
    int rc = LZF_OK;
    out->len = 0;
    lzf_decoder_init(&decoder, out->room);
    for (size_t at = 0; at < len && rc == LZF_OK; at += piece)
        rc = lzf_decoder_feed(&decoder, in + at, len - at < piece ? len - at : piece, collect, out);
    return rc == LZF_OK ? lzf_decoder_end(&decoder, collect, out) : rc;
}

/* Bytes with a share of non-zero ones, and runs of equal bytes now and then. */
static void fill(unsigned char *bytes, size_t len, unsigned of_256, uint64_t seed)
{
    struct rng rng;
    rng_init(&rng, seed);
    for (size_t i = 0; i < len; i++)
        bytes[i] = rng_next(&rng) % 256 < of_256 ? (unsigned char)rng_next(&rng) : 0;
}

Test(lzf, what_is_compressed_comes_back_in_every_cut)
{
    static const size_t lengths[] = {1, 2, 3, 4, 31, 32, 33, 34, 264, 265, 1000, 8192, 8193, 8195, 70000};
    static const unsigned shares[] = {0, 1, 8, 60, 256};
    static const size_t pieces[] = {1, 2, 7, 1000, 1 << 20};
    unsigned char *in = malloc(70000), *out = malloc(80000), *back = malloc(70000);
    for (size_t l = 0; l < sizeof(lengths) / sizeof(*lengths); l++) {
        for (size_t s = 0; s < sizeof(shares) / sizeof(*shares); s++) {
            fill(in, lengths[l], shares[s], l * 8 + s);
            size_t packed = lzf_pack(in, lengths[l], out);
            if (shares[s] <= 1 && lengths[l] >= 1000)
                cr_assert_lt(packed, lengths[l] / 8, "%zu bytes, mostly zeros, became %zu", lengths[l], packed);
            for (size_t p = 0; p < sizeof(pieces) / sizeof(*pieces); p++) {
                struct collected to = {back, 0, lengths[l], 0};
                cr_assert_eq(decompress(out, packed, pieces[p], &to), LZF_OK);
                cr_assert_eq(to.len, lengths[l]);
                cr_assert_eq(memcmp(in, back, lengths[l]), 0, "%zu bytes, share %u", lengths[l], shares[s]);
            }
        }
    }
    free(in);
    free(out);
    free(back);
}

Test(lzf, damaged_input_is_refused)
{
    static const struct {
        const char *claim;
        unsigned char in[8];
        size_t len;
        size_t out;
    } table[] = {
        {"a distance that leads before the beginning", {0, 'a', 0x20, 5}, 4, 10},
        {"a copy at the very beginning", {0x20, 0}, 2, 3},
        {"more literals than announced", {2, 'a', 'b', 'c'}, 4, 2},
        {"a copy longer than announced", {0, 'a', 0xe0, 255, 0}, 5, 20},
        {"too little output", {0, 'a'}, 2, 2},
        {"an end within literals", {5, 'a', 'b'}, 3, 2},
        {"an end within a copy", {0, 'a', 0x40}, 3, 1},
        {"no input for some output", {0}, 0, 1},
    };
    unsigned char back[64];
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct collected to = {back, 0, table[i].out, 0};
        cr_assert_eq(decompress(table[i].in, table[i].len, 64, &to), LZF_BAD, "%s", table[i].claim);
    }
}

Test(lzf, what_the_sink_says_is_passed_on)
{
    unsigned char in[4000] = {0}, out[4000], back[4000];
    size_t packed = lzf_pack(in, sizeof(in), out);
    struct collected to = {back, 0, sizeof(back), -5};
    cr_assert_eq(decompress(out, packed, 64, &to), -5);
}

/* ---- lengths and strings ---- */

Test(rdb_reader, lengths_of_all_forms_come_back)
{
    static const uint64_t values[] = {0, 1, 63, 64, 16383, 16384, UINT32_MAX, UINT64_C(1) << 32, UINT64_MAX};
    static const size_t bytes[] = {1, 1, 1, 2, 2, 5, 5, 9, 9};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        unsigned char buf[RDB_LENGTH_MAX_BYTES];
        struct rdb_reader reader;
        struct errbuf err = {""};
        uint64_t value;
        size_t len = (size_t)(rdb_put_length(buf, values[i]) - buf);
        cr_assert_eq(len, bytes[i]);
        rdb_reader_memory(&reader, buf, len, &err);
        cr_assert_eq(rdb_length(&reader, &value, "it"), RDB_OK);
        cr_assert_eq(value, values[i]);
        rdb_reader_memory(&reader, buf, len - 1, &err);
        cr_assert_eq(rdb_length(&reader, &value, "it"), RDB_BAD);
        cr_assert(strstr(err.text, "the data ends within it"), "%s", err.text);
    }
}

Test(rdb_reader, strings_of_all_forms_are_read)
{
    static const struct {
        unsigned char in[16];
        size_t len;
        const char *text; /* NULL: refused */
        const char *reason;
    } table[] = {
        {{3, 'a', 'b', 'c'}, 4, "abc", NULL},
        {{0}, 1, "", NULL},
        {{0x40, 2, 'a', 'b'}, 4, "ab", NULL},
        {{0x80, 0, 0, 0, 1, 'a'}, 6, "a", NULL},
        {{0x81, 0, 0, 0, 0, 0, 0, 0, 1, 'a'}, 10, "a", NULL},
        {{0xc0, 0x80}, 2, "-128", NULL},
        {{0xc1, 0x00, 0x80}, 3, "-32768", NULL},
        {{0xc2, 0x00, 0x00, 0x00, 0x80}, 5, "-2147483648", NULL},
        {{0xc2, 0xff, 0xff, 0xff, 0x7f}, 5, "2147483647", NULL},
        {{0xc3, 5, 10, 0, 'a', 0xe0, 0, 0}, 8, "aaaaaaaaaa", NULL},
        {{0xc3, 5, 9, 0, 'a', 0xe0, 0, 0}, 8, NULL, "the compressed string is damaged"},
        {{0xc3, 5, 11, 0, 'a', 0xe0, 0, 0}, 8, NULL, "the compressed string is damaged"},
        {{0xc4, 0}, 2, NULL, "strings of form 4 are not known"},
        {{0x82, 0}, 2, NULL, "0x82 begins no length"},
        {{0xc3, 0xc0, 1}, 3, NULL, "a specially encoded string is no number"},
        {{0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 'a'}, 10, NULL, "the data ends within it"},
        {{5, 'a'}, 2, NULL, "the data ends within it"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct rdb_reader reader;
        struct errbuf err = {""};
        char text[16] = "";
        uint64_t len = 0;
        rdb_reader_memory(&reader, table[i].in, table[i].len, &err);
        int rc = rdb_string_copy(&reader, text, sizeof(text), &len, "it");
        cr_assert_eq(rc, table[i].text ? RDB_OK : RDB_BAD, "row %zu: %s", i, err.text);
        if (!table[i].text) {
            cr_assert(strstr(err.text, table[i].reason), "row %zu: '%s'", i, err.text);
            continue;
        }
        cr_assert_eq(len, strlen(table[i].text));
        cr_assert_arr_eq(text, table[i].text, len);

        rdb_reader_memory(&reader, table[i].in, table[i].len, &err);
        cr_assert_eq(rdb_string_skip(&reader, "it"), RDB_OK);
        cr_assert_eq(rdb_reader_offset(&reader), table[i].len);
    }
}

/* A string that is too long for the buffer is cut to its beginning. */
Test(rdb_reader, a_long_string_is_cut)
{
    struct rdb_reader reader;
    char text[2];
    uint64_t len;
    rdb_reader_memory(&reader, "\5abcde", 6, NULL);
    cr_assert_eq(rdb_string_copy(&reader, text, sizeof(text), &len, "it"), RDB_OK);
    cr_assert_eq(len, 5);
    cr_assert_arr_eq(text, "ab", 2);
    cr_assert_eq(rdb_reader_offset(&reader), 6);
}

static unsigned char *put_string(unsigned char *at, const unsigned char *bytes, size_t len, bool compress)
{
    unsigned char *packed = malloc(len + len / 30 + 1);
    size_t n = compress ? lzf_pack(bytes, len, packed) : len;
    if (compress) {
        *at++ = 0xc3;
        at = rdb_put_length(at, n);
    }
    at = rdb_put_length(at, len);
    memcpy(at, compress ? packed : bytes, n);
    free(packed);
    return at + n;
}

Test(rdb_reader, a_written_string_comes_back)
{
    static const size_t lengths[] = {0, 1, 20, 38, 39, 100, 5000, 70000};
    for (size_t l = 0; l < sizeof(lengths) / sizeof(*lengths); l++) {
        for (unsigned share = 0; share <= 256; share += 64) {
            for (int compress = 0; compress <= 1; compress++) {
                unsigned char *in = malloc(lengths[l] + 1), *out = malloc(lengths[l] + lengths[l] / 30 + 32),
                              *back = malloc(lengths[l] + 1);
                struct collected to = {back, 0, lengths[l], 0};
                struct rdb_reader reader;
                struct errbuf err = {""};
                uint64_t len = share ? lengths[l] : RDB_ANY_LENGTH, more = lengths[l] + 1;
                fill(in, lengths[l], share, l);
                unsigned char *end = put_string(out, in, lengths[l], compress);
                rdb_reader_memory(&reader, out, (size_t)(end - out), &err);
                cr_assert_eq(rdb_string_pieces(&reader, &len, collect, &to, "it"), RDB_OK, "%s", err.text);
                cr_assert_eq(len, lengths[l]);
                cr_assert_eq(to.len, lengths[l]);
                cr_assert_eq(memcmp(in, back, lengths[l]), 0);
                cr_assert_eq(rdb_reader_offset(&reader), (uint64_t)(end - out));
                rdb_reader_memory(&reader, out, (size_t)(end - out), &err);
                cr_assert_eq(rdb_string_pieces(&reader, &more, collect, &to, "it"), RDB_BAD);
                free(in);
                free(out);
                free(back);
            }
        }
    }
}

/* ---- files ---- */

/* Hands out a file in pieces. */
struct source {
    const unsigned char *bytes;
    size_t len;
    size_t at;
    int status;
};

static int hand_out(void *ctx, void *buf, size_t len, size_t *n_out)
{
    struct source *source = ctx;
    size_t n = source->len - source->at < len ? source->len - source->at : len;
    memcpy(buf, source->bytes + source->at, n);
    source->at += n;
    *n_out = n;
    return n == 0 ? source->status : 0;
}

struct seen {
    char text[8192]; /* a line for each key */
    size_t len;
};

static int see(void *ctx, const struct rdb_key *key)
{
    struct seen *seen = ctx;
    int n = snprintf(seen->text + seen->len, sizeof(seen->text) - seen->len, "%u %.*s %s%s\n", (unsigned)key->db,
                     (int)key->name_len, key->name, key->kind, key->expires_ms ? " ttl" : "");
    cr_assert((size_t)n < sizeof(seen->text) - seen->len);
    seen->len += (size_t)n;
    return 0;
}

static int walk(const unsigned char *bytes, size_t len, size_t piece, struct seen *seen, struct rdb_summary *summary,
                struct errbuf *err)
{
    struct source source = {bytes, len, 0, 0};
    struct rdb_reader reader;
    unsigned char *buffer = malloc(piece);
    *seen = (struct seen){"", 0};
    *err = (struct errbuf){""};
    rdb_reader_stream(&reader, hand_out, &source, buffer, piece, 0, err);
    int rc = rdb_file_walk(&reader, see, seen, summary);
    cr_assert_eq(rc == RDB_BAD, err->text[0] != '\0');
    free(buffer);
    return rc;
}

static const char *const files[] = {GOLDEN "/mixed.rdb", GOLDEN "/v2.8.20/mixed.rdb"};
static const char *const keys_of[] = {
    "0 list list\n"
    "0 g:default_by_add MBbloom--\n"
    "0 g:expansion4 MBbloom--\n"
    "0 g:n1000_p0.001_nonscaling MBbloom--\n"
    "0 g:expansion1_9_layers MBbloom--\n"
    "0 str string\n"
    "0 hll string\n"
    "0 g:full_nonscaling MBbloom--\n"
    "0 sset set\n"
    "0 g:n20000_p0.0001 MBbloom--\n"
    "0 hash hash\n"
    "0 cuckoo MBbloomCF\n"
    "0 g:scaled_6_layers MBbloom--\n"
    "0 g:n1000_p0.01 MBbloom--\n"
    "0 topk TopK-TYPE\n"
    "0 cms CMSk-TYPE\n"
    "0 stream stream\n"
    "0 num string ttl\n"
    "0 db1 string\n"
    "0 g:one_item MBbloom-- ttl\n"
    "0 bighash hash\n"
    "0 g:p1e-9_k30 MBbloom--\n"
    "0 g:p0.5 MBbloom--\n"
    "0 z sorted set\n"
    "0 iset set\n"
    "0 td TDIS-TYPE\n"
    "0 g:empty MBbloom--\n"
    "1 other-db:filter MBbloom--\n",
    "0 g:n1000_p0.01 MBbloom--\n"
    "0 g:scaled_6_layers MBbloom--\n"
    "0 g:full_nonscaling MBbloom--\n",
};

/* Reads and checks the whole file, with any size of the buffer. */
Test(rdb_file, the_recorded_files_are_read_to_their_end)
{
    static const size_t pieces[] = {1, 7, 4096, 1 << 20};
    for (size_t f = 0; f < sizeof(files) / sizeof(*files); f++) {
        size_t len;
        unsigned char *bytes = golden_file(&len, "%s", files[f]);
        for (size_t p = 0; p < sizeof(pieces) / sizeof(*pieces); p++) {
            struct seen seen;
            struct rdb_summary summary;
            struct errbuf err;
            cr_assert_eq(walk(bytes, len, pieces[p], &seen, &summary, &err), RDB_OK, "%s: %s", files[f], err.text);
            cr_assert(summary.checked);
            cr_assert_eq(summary.end, len);
            cr_assert_eq(summary.version, f == 0 ? 13 : 10);
            cr_assert_str_eq(summary.engine, f == 0 ? "8.6.3" : "7.0.15");
            cr_assert_str_eq(seen.text, keys_of[f]);
        }
        free(bytes);
    }
}

/* A file that ends early is refused, at any length. */
Test(rdb_file, a_file_that_is_cut_is_refused)
{
    size_t len;
    unsigned char *bytes = golden_file(&len, "%s", files[1]);
    for (size_t cut = 0; cut < len; cut += cut < 2000 || cut > len - 2000 ? 1 : 97) {
        struct seen seen;
        struct rdb_summary summary;
        struct errbuf err;
        cr_assert_eq(walk(bytes, cut, 4096, &seen, &summary, &err), RDB_BAD, "cut at %zu", cut);
    }
    free(bytes);
}

/* The checksum detects changes that the structure does not show. */
Test(rdb_file, a_flipped_bit_is_noticed)
{
    size_t len;
    unsigned char *bytes = golden_file(&len, "%s", files[0]);
    struct rng rng;
    rng_init(&rng, 3);
    for (int i = 0; i < 1000; i++) {
        size_t at = 9 + (size_t)rng_below(&rng, len - 9);
        unsigned char bit = (unsigned char)(1u << rng_below(&rng, 8));
        struct seen seen;
        struct rdb_summary summary;
        struct errbuf err;
        bytes[at] ^= bit;
        int rc = walk(bytes, len, 4096, &seen, &summary, &err);
        cr_assert(rc == RDB_BAD || !summary.checked, "byte %zu, bit %u", at, bit);
        bytes[at] ^= bit;
    }
    free(bytes);
}

Test(rdb_file, what_the_source_says_is_passed_on)
{
    struct source source = {(const unsigned char *)"REDIS0011", 9, 0, -5};
    struct rdb_reader reader;
    struct rdb_summary summary;
    struct errbuf err = {""};
    unsigned char buffer[64];
    rdb_reader_stream(&reader, hand_out, &source, buffer, sizeof(buffer), 0, &err);
    cr_assert_eq(rdb_file_walk(&reader, see, NULL, &summary), -5);
}

/* ---- types without recordings, put together by hand from their description ---- */

/* Every row is the data between the name of a key and the next key. */
struct value {
    const char *engine; /* of the header */
    unsigned type;
    const char *bytes;
    size_t len;
    const char *kind;
};

#define VALUE(engine, type, bytes, kind)             \
    {                                                \
        engine, type, bytes, sizeof(bytes) - 1, kind \
    }
#define ID16 "0123456789abcdef"
#define ID8  "01234567"

static const struct value values[] = {
    VALUE("REDIS0001", 0, "\3abc", "string"),
    VALUE("REDIS0001", 0, "\xc3\5\n\0a\xe0\0\0", "string"),
    VALUE("REDIS0001", 1, "\2\1a\1b", "list"),
    VALUE("REDIS0001", 2, "\2\1a\1b", "set"),
    VALUE("REDIS0001", 3, "\4\1a\0031.5\1b\xfd\1c\xfe\1d\xff", "sorted set"),
    VALUE("REDIS0001", 4, "\1\1a\1b", "hash"),
    VALUE("REDIS0008", 5, "\1\1a" ID8, "sorted set"),
    VALUE("REDIS0002", 9, "\6\1\1a\1\0b", "hash"),
    VALUE("REDIS0003", 10, "\3abc", "list"),
    VALUE("REDIS0003", 11, "\3abc", "set"),
    VALUE("REDIS0003", 12, "\3abc", "sorted set"),
    VALUE("REDIS0003", 13, "\3abc", "hash"),
    VALUE("REDIS0007", 14, "\2\3abc\3abc", "list"),
    /* one listpack; 1 entry, last id; one group (name, id), a pending entry, a consumer with it */
    VALUE("REDIS0009", 15, "\1\20" ID16 "\3lp!\1\1\0\1\1g\1\0\1" ID16 ID8 "\1\1\1c" ID8 "\1" ID16, "stream"),
    VALUE("REDIS0010", 16, "\3abc", "hash"),
    VALUE("REDIS0010", 17, "\3abc", "sorted set"),
    VALUE("REDIS0010", 18, "\2\1\3abc\2\3abc", "list"),
    /* and first id, largest deleted id, entries ever; entries read by the group */
    VALUE("REDIS0010", 19, "\1\20" ID16 "\3lp!\1\1\0\1\0\0\0\1\1\1g\1\0\1\1" ID16 ID8 "\1\1\1c" ID8 "\1" ID16,
          "stream"),
    VALUE("REDIS0011", 20, "\3abc", "set"),
    /* and the consumer's second time */
    VALUE("REDIS0011", 21, "\0\0\0\0\0\0\0\0\0\1\1g\1\0\1\0\1\1c" ID8 ID8 "\1" ID16, "stream"),
    VALUE("REDIS0012", 22, "\1\5\1f\1v", "hash"),
    VALUE("REDIS0012", 23, "\3abc", "hash"),
    VALUE("REDIS0012", 24, ID8 "\1\5\1f\1v", "hash"),
    VALUE("REDIS0012", 25, ID8 "\3abc", "hash"),
    /* and duration, number, a producer with an id, counters */
    VALUE("REDIS0013", 26, "\0\0\0\0\0\0\0\0\0\0\60\60\1\1p\1\2id\1\2\1\0", "stream"),
    /* and the entries that a group has refused */
    VALUE("REDIS0014", 27, "\0\0\0\0\0\0\0\0\0\1\1g\1\0\1\0\0\1" ID16 "\60\60\0\1\0", "stream"),
    VALUE("REDIS0014", 28, "\4\1\7\0\0\2ab\1\1" ID8 "\2\2" ID8 "\3\3\1c", "array"),
    VALUE("REDIS0014", 28, "\0\0", "array"),
    VALUE("REDIS0015", 30, "\3abc", "hash"),
    VALUE("REDIS0015", 32, "\5\1a\1b", "hash"), /* of the template below */
    VALUE("REDIS0015", 33, "\5", "rate limiter"),
    VALUE("REDIS0009", 7,
          "\x81\x30\x16\xe5\xa2\x89\xbe\xf8\x04\1\5\2\5\3"
          "0123"
          "\4" ID8 "\5\3abc\0",
          "MBbloom--"),
    VALUE("VALKEY080", 22, "\1\1f\1v" ID8, "hash"),
    VALUE("VALKEY080", 0, "\3abc", "string"),
};

/* Everything that is allowed between two keys. */
static const char between_redis[] = "\xf2\5\2\1f\1g"            /* a template of hashes: number 5, two fields */
                                    "\xf4\1\2\3"                /* sizes of a slot */
                                    "\xf5\3lib"                 /* functions */
                                    "\xf7\x81" ID8 "\2\2\2\1\0" /* data of a module */
                                    "\xf8\5\xf9\7\xfa\1a\1b\xfb\1\1"
                                    "\xfd\1\2\3\4\xfc" ID8 "\xf3\1"
                                    "spec"
                                    "\2\7\0"; /* notes of a key */
static const char between_valkey[] = "\xf3\3job\1\0\5\xf4\1\2\3\xfd\1\2\3\4";

static size_t put(unsigned char *file, size_t at, const char *bytes, size_t len)
{
    memcpy(file + at, bytes, len);
    return at + len;
}

/* A file with a value between two strings: if the second string is found, the value was read to its end. */
static size_t make_file(unsigned char *file, const struct value *value)
{
    size_t at = put(file, 0, value->engine, 9);
    if (value->engine[0] == 'V')
        at = put(file, at, between_valkey, sizeof(between_valkey) - 1);
    else
        at = put(file, at, between_redis, sizeof(between_redis) - 1);
    at = put(file, at, "\0\5first\1x\xfe\3", 11);
    file[at++] = (unsigned char)value->type;
    at = put(file, at, "\1k", 2);
    at = put(file, at, value->bytes, value->len);
    at = put(file, at, "\0\4last\1x\xff", 9);
    memset(file + at, 0, 8); /* no checksum */
    return value->engine[8] < '5' && value->engine[7] == '0' ? at : at + 8;
}

Test(rdb_file, every_type_is_read_to_its_end)
{
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        unsigned char file[1024];
        char expected[128];
        struct seen seen;
        struct rdb_summary summary;
        struct errbuf err;
        size_t len = make_file(file, &values[i]);
        cr_assert_eq(walk(file, len, 1, &seen, &summary, &err), RDB_OK, "row %zu, type %u: %s", i, values[i].type,
                     err.text);
        snprintf(expected, sizeof(expected), "0 first string ttl\n3 k %s\n3 last string\n", values[i].kind);
        cr_assert_str_eq(seen.text, expected, "row %zu, type %u: %s", i, values[i].type, seen.text);
        cr_assert(!summary.checked);
        cr_assert_eq(summary.keys, 3);
        cr_assert_eq(summary.end, len);
        for (size_t cut = 0; cut < len; cut++)
            cr_assert_eq(walk(file, cut, 16, &seen, &summary, &err), RDB_BAD, "row %zu, cut at %zu", i, cut);
    }
}

Test(rdb_file, what_is_not_known_is_named)
{
    static const struct {
        const char *file;
        size_t len;
        const char *reason;
    } table[] = {
#define FILE_ROW(bytes, reason) {bytes, sizeof(bytes) - 1, reason}
        FILE_ROW("RDIS00011", "not an RDB file"),
        FILE_ROW("REDIS00x1", "not an RDB file"),
        FILE_ROW("VALKEY08x", "not an RDB file"),
        FILE_ROW("REDIS0011\6\1k\1a", "values of type 6 are not known"),
        FILE_ROW("REDIS0099\x40\1k\1a", "values of type 64 are not known"),
        FILE_ROW("VALKEY081\x17\1k\1a", "values of type 23 are not known"),
        FILE_ROW("REDIS0011\xf6\1k\1a", "unknown opcode 246"),
        FILE_ROW("VALKEY081\xf2\1k\1a", "unknown opcode 242"),
        FILE_ROW("REDIS0015\x20\1k\1a", "there is none with the number 1"),
        FILE_ROW("REDIS0014\x1c\1k\1\2", "neither 0 nor 1"),
        FILE_ROW("REDIS0014\x1c\1k\1\0\0\5", "tag 5 is not known"),
        FILE_ROW("REDIS0009\7\1k\1\6", "opcode 6 is not known"),
        FILE_ROW("REDIS0009\xff"
                 "12345678",
                 "the checksum of the file is wrong"),
        FILE_ROW("REDIS0009\1\1k\x81\xff\xff\xff\xff\xff\xff\xff\xff\1a", "the data ends within"),
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct seen seen;
        struct rdb_summary summary;
        struct errbuf err;
        cr_assert_eq(walk((const unsigned char *)table[i].file, table[i].len, 64, &seen, &summary, &err), RDB_BAD);
        cr_assert(strstr(err.text, table[i].reason), "row %zu: '%s'", i, err.text);
    }
}

static int refuse(void *ctx, const struct rdb_key *key)
{
    (void)ctx, (void)key;
    return 77;
}

Test(rdb_file, a_visitor_ends_the_walk)
{
    unsigned char file[1024];
    struct rdb_reader reader;
    struct rdb_summary summary;
    struct errbuf err = {""};
    rdb_reader_memory(&reader, file, make_file(file, &values[0]), &err);
    cr_assert_eq(rdb_file_walk(&reader, refuse, NULL, &summary), 77);
}
