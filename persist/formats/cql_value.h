/* cql_value: the value of each CQL type, from its text to its bytes. Internal to cql_key.
 *
 * Each function appends the bytes of the value, or refuses the text with a reason. */
#ifndef BLOOMERY_CQL_VALUE_H
#define BLOOMERY_CQL_VALUE_H

#include <stddef.h>

#include <stdbool.h>
#include <stdint.h>

#include "cql_key.h"

struct cql_text {
    const char *ptr;
    size_t len;
};

/* The key so far; `ptr` has room for CQL_KEY_MAX bytes. */
struct cql_bytes {
    unsigned char *ptr;
    size_t len;
};

int cql_put(struct cql_bytes *out, const void *bytes, size_t len, struct errbuf *err);

int cql_read_text(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_ascii(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_blob(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_int(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_bigint(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_smallint(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_tinyint(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_varint(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_decimal(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_uuid(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_timeuuid(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_boolean(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_inet(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_float(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_double(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_timestamp(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_date(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);
int cql_read_time(const struct cql_text *text, struct cql_bytes *out, struct errbuf *err);

/* ---- dates and times ---- */

/* Refuses: "'<text>' is not <right>". Returns CQL_KEY_REFUSED. */
int cql_wrong(const struct cql_text *text, const char *right, struct errbuf *err);

/* Appends the lowest `nbytes` (at most 8) of the value, big-endian. */
int cql_put_be(struct cql_bytes *out, uint64_t value, unsigned nbytes, struct errbuf *err);

/* Whether the whole text is a number of decimal digits up to `max`; or one with an optional '-' that fits into `nbytes`
 * of two's complement. */
bool cql_digits(const struct cql_text *text, uint64_t max, uint64_t *value_out);
bool cql_signed(const struct cql_text *text, unsigned nbytes, uint64_t *value_out);

#endif
