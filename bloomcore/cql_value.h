/* cql_value: the value of each CQL type, from its text to its bytes. Internal to cql_key.
 *
 * Each function appends the bytes of the value, or refuses the text with a reason. */
#ifndef BLOOMERY_CQL_VALUE_H
#define BLOOMERY_CQL_VALUE_H

#include <stddef.h>

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

#endif
