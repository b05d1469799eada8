/* cql_key: partition keys as Cassandra and ScyllaDB serialise them, from a text of the form "<type>:<value>". A table's
 * Bloom filters have hashed these bytes (docs/FORMAT.md section 17).
 *
 *     text:any bytes of UTF-8       ascii:bytes below 128      varchar: the same as text
 *     int:-5  bigint:7  smallint:1  tinyint:1
 *     uuid:123e4567-e89b-12d3-a456-426614174000                timeuuid: the same, of version 1
 *     blob:0x0aff                   boolean:true               inet:10.0.0.1  inet:2001:db8::1
 *     timestamp:1700000000000 (milliseconds) or 2023-11-14T22:13:20.000Z (a time zone is needed)
 *     date:2023-11-14 or 2147503321 (days; 1970-01-01 is 2^31)
 *     time:12:30:00.5 or 45000500000000 (nanoseconds)
 *     composite(int:5,text:x)       the columns of a partition key of several columns, in the table's order
 *
 * Outside composite() the value is everything after the colon, as it is. Inside it ends at a comma or ')'; a text with
 * one of , ( ) ' in it, or with a space at its beginning, is written between single quotes, a quote in it twice, as in
 * CQL. Names of types are compared without regard to case.
 *
 * A key without bytes is refused, as by both databases (a column of a composite may be empty: text, ascii, blob). So is
 * a key of more than CQL_KEY_MAX bytes. Ambiguous values are refused, too: a timestamp without a time zone, and an IPv4
 * address in IPv6 form. Types without a row above (varint, decimal, float, double,
 * tuples, user-defined types, frozen collections) are written as blob.
 *
 * Pure functions. Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "slice.h"

#define CQL_KEY_MAX        65535 /* both databases keep a partition key's length in 16 bits */
#define CQL_KEY_COMPONENTS 64    /* of a composite */

enum cql_key_status {
    CQL_KEY_OK = 0,
    CQL_KEY_REFUSED = 1, /* the errbuf says why */
};

/* Writes the key's bytes to `key_out` and their number, 1..CQL_KEY_MAX, to `len_out`. CQL_KEY_OK, or CQL_KEY_REFUSED:
 * then *len_out is untouched and the bytes are undefined. `text` needs no NUL after it. */
int cql_key_parse(const char *text, size_t len, unsigned char key_out[CQL_KEY_MAX], size_t *len_out,
                  struct errbuf *err);

/* ---- values (cql_value.c) ---- */

/* The key so far; `ptr` has room for CQL_KEY_MAX bytes. */
struct cql_bytes {
    unsigned char *ptr;
    size_t len;
};

int cql_put(struct cql_bytes *out, const void *bytes, size_t len, struct errbuf *err);

/* The types. Each appends the bytes of a value, or refuses its text with a reason. Internal to cql_key. */
struct cql_type {
    const char *name; /* NULL: the end of the list */
    int (*read)(const struct slice *text, struct cql_bytes *out, struct errbuf *err);
    bool may_be_empty; /* as a column of a composite */
};

extern const struct cql_type cql_types[];
