/* Dates and times: ISO 8601, or the number that is stored. Days are counted by the proleptic Gregorian calendar from
 * 1970-01-01, as both databases do. */
#include <string.h>

#include "cql_value.h"

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
    const struct cql_text digits = {cursor->at, n};
    uint64_t value;

    if ((size_t)(cursor->end - cursor->at) < n || !cql_digits(&digits, max, &value) || value < min)
        return false;
    cursor->at += n;
    *value_out = (unsigned)value;
    return true;
}

/* Days from 1970-01-01 to a date. The year begins in March here, so that the leap day is its last. */
static int64_t days_from_civil(int64_t year, unsigned month, unsigned day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (int64_t)(month + (month > 2 ? -3u : 9u)) + 2) / 5 + day - 1;

    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

static unsigned days_of_month(unsigned year, unsigned month)
{
    static const unsigned char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month - 1] + (unsigned)(month == 2 && leap);
}

static bool take_date(struct cursor *cursor, int64_t *days_out)
{
    unsigned year, month, day;

    if (!take(cursor, 4, 0, 9999, &year) || !skip(cursor, '-') || !take(cursor, 2, 1, 12, &month) ||
        !skip(cursor, '-') || !take(cursor, 2, 1, days_of_month(year, month), &day))
        return false;
    *days_out = days_from_civil(year, month, day);
    return true;
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

int cql_read_timestamp(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err)
{
    struct cursor cursor = {text->ptr, text->ptr + text->len};
    int64_t days, zone;
    uint64_t number, ns = 0;

    if (cql_signed(text, 8, &number))
        return cql_put_be(out, number, 8, err);
    if (take_date(&cursor, &days)) {
        bool good = (!skip(&cursor, 'T') && !skip(&cursor, ' ')) || take_time(&cursor, false, &ns);
        if (good && cursor.at == cursor.end) {
            errbuf_set(err, "a timestamp needs a time zone, as in 2023-11-14T22:13:20Z: without it Cassandra uses the "
                            "server's");
            return CQL_KEY_REFUSED;
        }
        if (good && ns % 1000000 != 0)
            return cql_wrong(text, "a timestamp has a precision of milliseconds", err);
        if (good && take_zone(&cursor, &zone) && cursor.at == cursor.end)
            return cql_put_be(out, (uint64_t)(days * DAY_MS + (int64_t)(ns / 1000000) - zone * 60000), 8, err);
    }
    return cql_wrong(text, "a timestamp: milliseconds since 1970, or as 2023-11-14T22:13:20.000Z", err);
}

int cql_read_date(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err)
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

int cql_read_time(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err)
{
    struct cursor cursor = {text->ptr, text->ptr + text->len};
    uint64_t ns;

    if (!cql_digits(text, DAY_NS - 1, &ns) && (!take_time(&cursor, true, &ns) || cursor.at != cursor.end))
        return cql_wrong(text, "a time of the day, as 12:30:00.5, or its nanoseconds", err);
    return cql_put_be(out, ns, 8, err);
}
