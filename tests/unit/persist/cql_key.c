/* Keys as Cassandra and ScyllaDB serialise them. The expected bytes follow from docs/FORMAT.md section 4 and from
 * java.math.BigInteger.toByteArray(), java.nio.ByteBuffer and java.util.UUID; those of real tables are compared in
 * tests/unit/persist/tool_find.c with the keys of real SSTables. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql_key.h"
#include "rng.h"

static unsigned char key[CQL_KEY_MAX];

static const char *hex_of(const unsigned char *bytes, size_t len)
{
    static char hex[2 * 256 + 1];

    hex[0] = '\0';
    for (size_t i = 0; i < len && i < 256; i++)
        sprintf(hex + 2 * i, "%02x", bytes[i]);
    return hex;
}

/* The key of a text, in hexadecimal; "!" and the reason if it is refused. */
static const char *parse(const char *text)
{
    static char reason[ERRBUF_SIZE + 1];
    struct errbuf err = {""};
    size_t len = 12345;

    if (cql_key_parse(text, strlen(text), key, &len, &err) == CQL_KEY_OK) {
        cr_assert_str_empty(err.text, "%s", text);
        return hex_of(key, len);
    }
    cr_assert_eq(len, 12345, "%s: the length was written", text);
    cr_assert(err.text[0], "%s: no reason", text);
    snprintf(reason, sizeof(reason), "!%.500s", err.text);
    return reason;
}

/* A key and its bytes. */
static const char *const serialized[][2] = {
    {"text:abc", "616263"},
    {"TEXT:abc", "616263"},
    {"varchar:a b:c,'(d)", "6120623a632c27286429"},
    {"text:'quoted'", "2771756f74656427"}, /* outside composite() no quotes are removed */
    {"text:\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "c3a4e282acf09f9880"},
    {"ascii:~", "7e"},
    {"blob:0x00FFa0", "00ffa0"},
    {"blob:0X01", "01"},
    {"int:0", "00000000"},
    {"int:-1", "ffffffff"},
    {"int:2147483647", "7fffffff"},
    {"int:-2147483648", "80000000"},
    {"bigint:1", "0000000000000001"},
    {"bigint:-9223372036854775808", "8000000000000000"},
    {"bigint:9223372036854775807", "7fffffffffffffff"},
    {"smallint:-2", "fffe"},
    {"tinyint:-128", "80"},
    {"uuid:123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"},
    {"uuid:FFFFFFFF-ffff-4fff-bfff-ffffffffffff", "ffffffffffff4fffbfffffffffffffff"},
    {"timeuuid:123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"},
    {"boolean:true", "01"},
    {"boolean:FALSE", "00"},
    {"inet:10.0.0.1", "0a000001"},
    {"inet:2001:db8::1", "20010db8000000000000000000000001"},
    {"timestamp:0", "0000000000000000"},
    {"timestamp:-1", "ffffffffffffffff"},
    {"timestamp:2023-11-14T22:13:20Z", "0000018bcfe56800"},
    {"timestamp:2023-11-14T22:13:20.001Z", "0000018bcfe56801"},
    {"timestamp:2023-11-14 23:13:20+0100", "0000018bcfe56800"},
    {"timestamp:2023-11-14T17:43-04:30", "0000018bcfe519e0"},
    {"timestamp:1970-01-01Z", "0000000000000000"},
    {"date:1970-01-01", "80000000"},
    {"date:1969-12-31", "7fffffff"},
    {"date:2000-02-29", "80002b08"},
    {"date:2147483648", "80000000"},
    {"time:00:00:00", "0000000000000000"},
    {"time:12:30:00.5", "000028ed7ed13500"},
    {"time:1", "0000000000000001"},
    {"composite(int:5,text:x)", "00040000000500"
                                "00017800"},
    {"composite(int:5, text:x y)", "00040000000500"
                                   "000378207900"},
    {"Composite(text:'it''s, (here)',blob:0x)", "000c697427732c2028686572652900"
                                                "000000"},
    {"composite(text:,text:)", "000000000000"},
    {"composite(uuid:123e4567-e89b-12d3-a456-426614174000)", "0010123e4567e89b12d3a45642661417400000"},
    {"composite(inet:::1,boolean:true)", "00100000000000000000000000000000000100"
                                         "00010100"},
};

Test(cql_key, each_type_has_its_bytes)
{
    for (size_t i = 0; i < sizeof(serialized) / sizeof(serialized[0]); i++) {
        const char *answer = parse(serialized[i][0]);
        cr_expect_str_eq(answer, serialized[i][1], "%s: %s", serialized[i][0], answer);
    }
}

/* A text that is no key, and a part of the reason. */
static const char *const refused[][2] = {
    {"", "<type>:<value>"},
    {"abc", "<type>:<value>"},
    {":", "unknown type of a key: ''"},
    {"int", "<type>:<value>"},
    {"list:1", "unknown type of a key: 'list'"},
    {"double:1.5", "others are blob:0x"},
    {"text:", "never empty"},
    {"int:", "never empty"},
    {"blob:0x", "never empty"},
    {"text:\xff", "byte 1 of the text is not UTF-8"},
    {"text:a\xc0\xaf", "byte 2"},      /* not the shortest form */
    {"text:\xed\xa0\x80", "byte 1"},   /* a surrogate */
    {"text:\xf4\x90\x80\x80", "byte"}, /* above U+10FFFF */
    {"text:\xe2\x82", "byte 1"},
    {"ascii:\xc3\xa4", "not ASCII"},
    {"blob:00", "0x and two"},
    {"blob:0x0", "0x and two"},
    {"blob:0xgg", "0x and two"},
    {"int:2147483648", "32 bits"},
    {"int:-2147483649", "32 bits"},
    {"int:+1", "32 bits"},
    {"int: 1", "32 bits"},
    {"int:1 ", "32 bits"},
    {"int:0x10", "32 bits"},
    {"int:-", "32 bits"},
    {"bigint:9223372036854775808", "64 bits"},
    {"tinyint:128", "8 bits"},
    {"smallint:40000", "16 bits"},
    {"uuid:123e4567e89b12d3a456426614174000", "UUID"},
    {"uuid:123e4567-e89b-12d3-a456-42661417400g", "UUID"},
    {"timeuuid:123e4567-e89b-42d3-a456-426614174000", "version 1"},
    {"boolean:yes", "true or false"},
    {"inet:10.0.0", "IPv4"},
    {"inet:::ffff:10.1.2.3", "write inet:10.1.2.3"},
    {"timestamp:2023-11-14T22:13:20", "time zone"},
    {"timestamp:2023-11-14", "time zone"},
    {"timestamp:2023-02-29Z", "not a timestamp"},
    {"timestamp:2023-11-14T22:13:20.0001Z", "milliseconds"},
    {"timestamp:2023-11-14T24:00Z", "not a timestamp"},
    {"date:2023-13-01", "not a date"},
    {"date:4294967296", "not a date"},
    {"date:1900-02-29", "not a date"},
    {"time:24:00:00", "time of the day"},
    {"time:86400000000000", "time of the day"},
    {"time:12:30", "time of the day"},
    {"composite(", "column 1: write a key as"},
    {"composite()", "column 1: write a key as"},
    {"composite(int:1", "')' of composite(...) is missing"},
    {"composite(int:1,", "column 2: write a key as"},
    {"composite(int:1)x", "last ')'"},
    {"composite(int:1,int:x)", "column 2: 'x' is not"},
    {"composite(int:)", "column 1: '' is not"},
    {"composite(text:'a)", "not closed"},
    {"composite(text:a'b)", "needs quotes"},
    {"composite(text:'a'b)", "column 1 must be followed by a comma"},
    {"composite(composite(int:1))", "column 1: unknown type of a key: 'composite(int'"},
};

Test(cql_key, what_is_no_key_is_refused_with_the_reason)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const char *answer = parse(refused[i][0]);
        cr_expect(answer[0] == '!' && strstr(answer, refused[i][1]), "%s: %s", refused[i][0], answer);
    }
}

/* Exactly 65,535 bytes are a key; one more is not, in a composite either. */
Test(cql_key, the_longest_key)
{
    static char text[2 * CQL_KEY_MAX + 64];
    struct errbuf err = {""};
    size_t len = 0;

    memset(text, 'x', sizeof(text));
    memcpy(text, "text:", 5);
    cr_assert_eq(cql_key_parse(text, 5 + CQL_KEY_MAX, key, &len, &err), CQL_KEY_OK, "%s", err.text);
    cr_assert_eq(len, CQL_KEY_MAX);
    cr_assert_eq(cql_key_parse(text, 6 + CQL_KEY_MAX, key, &len, &err), CQL_KEY_REFUSED);
    cr_assert(strstr(err.text, "more than 65535 bytes"), "%s", err.text);

    memcpy(text, "composite(text:", 15);
    text[15 + CQL_KEY_MAX - 3] = ')';
    cr_assert_eq(cql_key_parse(text, 16 + CQL_KEY_MAX - 3, key, &len, &err), CQL_KEY_OK, "%s", err.text);
    cr_assert(len == CQL_KEY_MAX && key[0] == 0xff && key[1] == 0xfc && key[CQL_KEY_MAX - 1] == 0);
    text[15 + CQL_KEY_MAX - 3] = 'x';
    text[16 + CQL_KEY_MAX - 3] = ')';
    cr_assert_eq(cql_key_parse(text, 17 + CQL_KEY_MAX - 3, key, &len, &err), CQL_KEY_REFUSED);
}

Test(cql_key, the_most_columns)
{
    static char text[1024];
    struct errbuf err = {""};
    size_t len, n;

    n = (size_t)sprintf(text, "composite(tinyint:1");
    for (int i = 1; i < CQL_KEY_COMPONENTS; i++)
        n += (size_t)sprintf(text + n, ",tinyint:1");
    text[n] = ')';
    cr_assert_eq(cql_key_parse(text, n + 1, key, &len, &err), CQL_KEY_OK, "%s", err.text);
    cr_assert_eq(len, 4 * CQL_KEY_COMPONENTS);
    n += (size_t)sprintf(text + n, ",tinyint:1)");
    cr_assert_eq(cql_key_parse(text, n, key, &len, &err), CQL_KEY_REFUSED);
}

static uint64_t number_of(const unsigned char *bytes, size_t len)
{
    uint64_t value = bytes[0] & 0x80 ? UINT64_MAX : 0;

    for (size_t i = 0; i < len; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* Random numbers of every length are restored from their bytes. */
Test(cql_key, numbers_come_back_from_their_bytes)
{
    static const struct {
        const char *type;
        unsigned bits;
    } types[] = {{"tinyint", 8}, {"smallint", 16}, {"int", 32}, {"bigint", 64}, {"timestamp", 64}};
    struct rng rng;

    rng_init(&rng, 14);
    for (int i = 0; i < 200000; i++) {
        unsigned type = (unsigned)rng_below(&rng, 5), bits = types[type].bits;
        int64_t value = (int64_t)rng_next(&rng) >> (63 - rng_below(&rng, bits));
        char text[64];
        size_t len;
        snprintf(text, sizeof(text), "%s:%" PRId64, types[type].type, value);
        cr_assert_eq(cql_key_parse(text, strlen(text), key, &len, NULL), CQL_KEY_OK, "%s", text);
        cr_assert_eq((int64_t)number_of(key, len), value, "%s: %s", text, hex_of(key, len));
        cr_assert_eq(len, bits / 8);
    }
}

/* Each day of 10,000 years follows the one before. */
Test(cql_key, dates_count_up_by_one)
{
    static const unsigned char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint64_t before = 0;

    for (unsigned year = 0; year <= 9999; year++) {
        for (unsigned month = 1; month <= 12; month++) {
            bool leap = month == 2 && ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0);
            for (unsigned day = 1; day <= days[month - 1] + (unsigned)leap; day++) {
                char text[32];
                size_t len;
                snprintf(text, sizeof(text), "date:%04u-%02u-%02u", year, month, day);
                cr_assert_eq(cql_key_parse(text, strlen(text), key, &len, NULL), CQL_KEY_OK, "%s", text);
                uint64_t number = number_of(key, 4) & UINT32_MAX;
                cr_assert(before == 0 || number == before + 1, "%s", text);
                before = number;
            }
        }
    }
}

/* Columns with any bytes: the frame can be read back. */
Test(cql_key, columns_of_any_text_come_back_from_a_composite)
{
    struct rng rng;

    rng_init(&rng, 15);
    for (int round = 0; round < 20000; round++) {
        static const char alphabet[] = "ab ',()\\:\"";
        char text[1024] = "composite(", columns[4][24] = {"", "", "", ""};
        size_t ncolumns = 1 + rng_below(&rng, 4), at = 10, len, read = 0;
        for (size_t c = 0; c < ncolumns; c++) {
            at += (size_t)sprintf(text + at, "%stext:'", c ? ", " : "");
            for (size_t i = 0, n = rng_below(&rng, 20); i < n; i++) {
                columns[c][i] = alphabet[rng_below(&rng, sizeof(alphabet) - 1)];
                at += (size_t)sprintf(text + at, columns[c][i] == '\'' ? "''" : "%c", columns[c][i]);
            }
            text[at++] = '\'';
        }
        text[at++] = ')';
        cr_assert_eq(cql_key_parse(text, at, key, &len, NULL), CQL_KEY_OK, "%.*s", (int)at, text);
        for (size_t c = 0; c < ncolumns; c++) {
            size_t n = (size_t)key[read] << 8 | key[read + 1];
            cr_assert(n == strlen(columns[c]) && memcmp(key + read + 2, columns[c], n) == 0 && key[read + 2 + n] == 0);
            read += n + 3;
        }
        cr_assert_eq(read, len);
    }
}
