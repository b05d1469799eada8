/* Text, integers, identifiers, addresses, dates and times. Integers are big-endian two's complement. */
#include "cql_key.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "bytes.h"
#include "slice.h"

#define SHOWN 60 /* characters of a wrong value in a message */

int cql_put(struct cql_bytes *out, const void *bytes, size_t len, struct errbuf *err)
{
    if (len > CQL_KEY_MAX - out->len)
        return errbuf_fail(err, CQL_KEY_REFUSED, "the key has more than %d bytes", CQL_KEY_MAX);
    memcpy(out->ptr + out->len, bytes, len);
    out->len += len;
    return CQL_KEY_OK;
}

/* Refuses: "'<text>' is not <right>". Returns CQL_KEY_REFUSED. */
static int cql_wrong(const struct slice *text, const char *right, struct errbuf *err)
{
    return errbuf_fail(err, CQL_KEY_REFUSED, "'%.*s%s' is not %s", (int)(text->len < SHOWN ? text->len : SHOWN),
                       text->ptr, text->len > SHOWN ? "..." : "", right);
}

/* Appends the lowest `nbytes` (at most 8) of the value, big-endian. */
static int cql_put_be(struct cql_bytes *out, uint64_t value, unsigned nbytes, struct errbuf *err)
{
    unsigned char bytes[8];

    for (unsigned i = 0; i < nbytes; i++)
        bytes[i] = (unsigned char)(value >> (8 * (nbytes - 1 - i)));
    return cql_put(out, bytes, nbytes, err);
}

/* ---- bytes ---- */

static int read_text(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    for (size_t i = 0, n; i < text->len; i += n) {
        n = utf8_char(text->ptr + i, text->len - i);
        if (n == 0)
            return errbuf_fail(
                err, CQL_KEY_REFUSED,
                "byte %zu of the text is not UTF-8, which a text column cannot hold; give bytes as blob:0x...", i + 1);
    }
    return cql_put(out, text->ptr, text->len, err);
}

static int read_ascii(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    for (size_t i = 0; i < text->len; i++)
        if ((unsigned char)text->ptr[i] > 127)
            return errbuf_fail(err, CQL_KEY_REFUSED, "byte %zu of the text is not ASCII", i + 1);
    return cql_put(out, text->ptr, text->len, err);
}

static int read_blob(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    bool good = text->len >= 2 && text->len % 2 == 0 && text->ptr[0] == '0' && (text->ptr[1] | 0x20) == 'x';

    for (size_t i = 2; good && i < text->len; i += 2) {
        int high = hex_value(text->ptr[i]), low = hex_value(text->ptr[i + 1]);
        good = high >= 0 && low >= 0;
        unsigned char byte = (unsigned char)(16 * (high & 15) + (low & 15));
        if (good && cql_put(out, &byte, 1, err) != CQL_KEY_OK)
            return CQL_KEY_REFUSED;
    }
    return good ? CQL_KEY_OK : cql_wrong(text, "a blob: 0x and two hexadecimal digits for each byte", err);
}

/* ---- identifiers, addresses, booleans ---- */

static int parse_uuid(const struct slice *text, unsigned char uuid[16])
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    unsigned n = 0;

    if (text->len != sizeof(form) - 1)
        return CQL_KEY_REFUSED;
    for (size_t i = 0; i < text->len; i++) {
        int digit = hex_value(text->ptr[i]);
        if (form[i] == '-' ? text->ptr[i] != '-' : digit < 0)
            return CQL_KEY_REFUSED;
        if (form[i] == '-')
            continue;
        uuid[n / 2] = (unsigned char)(n % 2 ? uuid[n / 2] | digit : digit << 4);
        n++;
    }
    return CQL_KEY_OK;
}

static int read_uuid(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    unsigned char uuid[16];

    if (parse_uuid(text, uuid) != CQL_KEY_OK)
        return cql_wrong(text, "a UUID, as 123e4567-e89b-12d3-a456-426614174000", err);
    return cql_put(out, uuid, sizeof(uuid), err);
}

static int read_timeuuid(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    unsigned char uuid[16];

    if (parse_uuid(text, uuid) != CQL_KEY_OK || uuid[6] >> 4 != 1)
        return cql_wrong(text, "a UUID of version 1, as 123e4567-e89b-12d3-a456-426614174000", err);
    return cql_put(out, uuid, sizeof(uuid), err);
}

static bool text_is(const struct slice *text, const char *word)
{
    return text->len == strlen(word) && strncasecmp(text->ptr, word, text->len) == 0;
}

static int read_boolean(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    if (!text_is(text, "true") && !text_is(text, "false"))
        return cql_wrong(text, "true or false", err);
    return cql_put(out, text_is(text, "true") ? "\1" : "\0", 1, err);
}

/* An IPv4 address within IPv6 (::ffff:1.2.3.4) is four bytes to Java and sixteen to others. */
static int read_inet(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    char address[INET6_ADDRSTRLEN];
    unsigned char bytes[16];

    if (text->len < sizeof(address) && !memchr(text->ptr, '\0', text->len)) {
        memcpy(address, text->ptr, text->len);
        address[text->len] = '\0';
        if (inet_pton(AF_INET, address, bytes) == 1)
            return cql_put(out, bytes, 4, err);
        if (inet_pton(AF_INET6, address, bytes) == 1) {
            if (memcmp(bytes, mapped, sizeof(mapped)) != 0)
                return cql_put(out, bytes, 16, err);
            return errbuf_fail(
                err, CQL_KEY_REFUSED,
                "an IPv4 address within IPv6 has 4 bytes in Cassandra, 16 elsewhere: write inet:%u.%u.%u.%u, or the "
                "16 bytes as blob:0x...",
                bytes[12], bytes[13], bytes[14], bytes[15]);
        }
    }
    return cql_wrong(text, "an address of IPv4 or IPv6", err);
}

/* ---- integers ---- */

/* Whether the whole text is a number of decimal digits up to `max`. */
static bool cql_digits(const struct slice *text, uint64_t max, uint64_t *value_out)
{
    uint64_t value = 0;

    if (text->len == 0)
        return false;
    for (size_t i = 0; i < text->len; i++) {
        unsigned digit = (unsigned char)text->ptr[i] - (unsigned)'0';
        if (digit > 9 || value > (max - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    *value_out = value;
    return true;
}

/* Or one with an optional '-' that fits into `nbytes` of two's complement. */
static bool cql_signed(const struct slice *text, unsigned nbytes, uint64_t *value_out)
{
    bool negative = text->len > 0 && text->ptr[0] == '-';
    const struct slice digits = {text->ptr + negative, text->len - negative};
    uint64_t limit = UINT64_C(1) << (8 * nbytes - 1), value;

    if (!cql_digits(&digits, negative ? limit : limit - 1, &value))
        return false;
    *value_out = negative ? 0 - value : value;
    return true;
}

#define INTEGER(type, nbytes, right)                                                                                 \
    static int read_##type(const struct slice *text, struct cql_bytes *out, struct errbuf *err)                      \
    {                                                                                                                \
        uint64_t value;                                                                                              \
        return cql_signed(text, nbytes, &value) ? cql_put_be(out, value, nbytes, err) : cql_wrong(text, right, err); \
    }
INTEGER(int, 4, "an integer of 32 bits")
INTEGER(bigint, 8, "an integer of 64 bits")
INTEGER(smallint, 2, "an integer of 16 bits")
INTEGER(tinyint, 1, "an integer of 8 bits")

/* ---- dates and times ---- */

/* Dates and times: ISO 8601, or the number that is stored. Days are counted by the proleptic Gregorian calendar from
 * 1970-01-01, as both databases do. */

#define DAY_MS        INT64_C(86400000)
#define DAY_NS        UINT64_C(86400000000000)
#define FRACTION_SIZE 9 /* digits after the second */

struct cursor {
    const char *at, *end;
};

static bool skip(struct cursor *cursor, char c)
{
    if (cursor->at == cursor->end || *cursor->at != c)
        return false;
    cursor->at++;
    return true;
}

/* Exactly n digits, a number from min to max. */
static bool take(struct cursor *cursor, unsigned n, unsigned min, unsigned max, unsigned *value_out)
{
    const struct slice digits = {cursor->at, n};
    uint64_t value;

    if ((size_t)(cursor->end - cursor->at) < n || !cql_digits(&digits, max, &value) || value < min)
        return false;
    cursor->at += n;
    *value_out = (unsigned)value;
    return true;
}

/* The days from 1970-01-01. timegm() makes another date of one that does not exist. */
static bool take_date(struct cursor *cursor, int64_t *days_out)
{
    unsigned year, month, day;

    if (!take(cursor, 4, 0, 9999, &year) || !skip(cursor, '-') || !take(cursor, 2, 1, 12, &month) ||
        !skip(cursor, '-') || !take(cursor, 2, 1, 31, &day))
        return false;
    struct tm date = {.tm_year = (int)year - 1900, .tm_mon = (int)month - 1, .tm_mday = (int)day};
    *days_out = timegm(&date) / (DAY_MS / 1000);
    return date.tm_mday == (int)day;
}

/* A fraction of a second in units of 10^-9, from "." and 1..9 digits. */
static bool take_fraction(struct cursor *cursor, unsigned *ns_out)
{
    unsigned n = 0, digit;

    *ns_out = 0;
    if (!skip(cursor, '.'))
        return true;
    while (n < FRACTION_SIZE && take(cursor, 1, 0, 9, &digit)) {
        *ns_out = 10 * *ns_out + digit;
        n++;
    }
    bool good = n > 0;
    for (; n < FRACTION_SIZE; n++)
        *ns_out *= 10;
    return good;
}

static bool take_time(struct cursor *cursor, bool seconds_needed, uint64_t *ns_out)
{
    unsigned hour, minute, second = 0, fraction = 0;

    if (!take(cursor, 2, 0, 23, &hour) || !skip(cursor, ':') || !take(cursor, 2, 0, 59, &minute))
        return false;
    if (skip(cursor, ':')) {
        if (!take(cursor, 2, 0, 59, &second) || !take_fraction(cursor, &fraction))
            return false;
    } else if (seconds_needed) {
        return false;
    }
    *ns_out = ((UINT64_C(60) * hour + minute) * 60 + second) * UINT64_C(1000000000) + fraction;
    return true;
}

/* "Z", "+02:00" or "+0200". */
static bool take_zone(struct cursor *cursor, int64_t *minutes_out)
{
    unsigned hours, minutes;
    bool west;

    *minutes_out = 0;
    if (skip(cursor, 'Z') || skip(cursor, 'z'))
        return true;
    west = skip(cursor, '-');
    if (!west && !skip(cursor, '+'))
        return false;
    if (!take(cursor, 2, 0, 18, &hours))
        return false;
    (void)skip(cursor, ':');
    if (!take(cursor, 2, 0, 59, &minutes))
        return false;
    *minutes_out = (int64_t)(60 * hours + minutes) * (west ? -1 : 1);
    return true;
}

static int read_timestamp(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    struct cursor cursor = {text->ptr, text->ptr + text->len};
    int64_t days, zone;
    uint64_t number, ns = 0;

    if (cql_signed(text, 8, &number))
        return cql_put_be(out, number, 8, err);
    if (take_date(&cursor, &days)) {
        bool good = (!skip(&cursor, 'T') && !skip(&cursor, ' ')) || take_time(&cursor, false, &ns);
        if (good && cursor.at == cursor.end)
            return errbuf_fail(
                err, CQL_KEY_REFUSED,
                "a timestamp needs a time zone, as in 2023-11-14T22:13:20Z: without it Cassandra uses the "
                "server's");
        if (good && ns % 1000000 != 0)
            return cql_wrong(text, "a timestamp has a precision of milliseconds", err);
        if (good && take_zone(&cursor, &zone) && cursor.at == cursor.end)
            return cql_put_be(out, (uint64_t)(days * DAY_MS + (int64_t)(ns / 1000000) - zone * 60000), 8, err);
    }
    return cql_wrong(text, "a timestamp: milliseconds since 1970, or as 2023-11-14T22:13:20.000Z", err);
}

static int read_date(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    struct cursor cursor = {text->ptr, text->ptr + text->len};
    uint64_t number;
    int64_t days;

    if (cql_digits(text, UINT32_MAX, &number))
        return cql_put_be(out, number, 4, err);
    if (!take_date(&cursor, &days) || cursor.at != cursor.end)
        return cql_wrong(text, "a date, as 2023-11-14, or its days with 1970-01-01 as 2147483648", err);
    return cql_put_be(out, (uint64_t)(days + (INT64_C(1) << 31)), 4, err);
}

static int read_time(const struct slice *text, struct cql_bytes *out, struct errbuf *err)
{
    struct cursor cursor = {text->ptr, text->ptr + text->len};
    uint64_t ns;

    if (!cql_digits(text, DAY_NS - 1, &ns) && (!take_time(&cursor, true, &ns) || cursor.at != cursor.end))
        return cql_wrong(text, "a time of the day, as 12:30:00.5, or its nanoseconds", err);
    return cql_put_be(out, ns, 8, err);
}

const struct cql_type cql_types[] = {
    {"text", read_text, true},
    {"varchar", read_text, true},
    {"ascii", read_ascii, true},
    {"blob", read_blob, true},
    {"int", read_int, false},
    {"bigint", read_bigint, false},
    {"smallint", read_smallint, false},
    {"tinyint", read_tinyint, false},
    {"uuid", read_uuid, false},
    {"timeuuid", read_timeuuid, false},
    {"boolean", read_boolean, false},
    {"inet", read_inet, false},
    {"timestamp", read_timestamp, false},
    {"date", read_date, false},
    {"time", read_time, false},
    {NULL, NULL, false},
};
