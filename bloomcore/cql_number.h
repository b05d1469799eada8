/* cql_number: what the readers of values share. Internal to cql_value.c and cql_time.c. */
#ifndef BLOOMERY_CQL_NUMBER_H
#define BLOOMERY_CQL_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "cql_value.h"

/* Refuses: "'<text>' is not <right>". Returns CQL_KEY_REFUSED. */
int cql_wrong(const struct cql_text *text, const char *right, struct errbuf *err);

/* Appends the lowest `nbytes` (at most 8) of the value, big-endian. */
int cql_put_be(struct cql_bytes *out, uint64_t value, unsigned nbytes, struct errbuf *err);

/* Whether the whole text is a number of decimal digits up to `max`; or one with an optional '-' that fits into `nbytes`
 * of two's complement. */
bool cql_digits(const struct cql_text *text, uint64_t max, uint64_t *value_out);
bool cql_signed(const struct cql_text *text, unsigned nbytes, uint64_t *value_out);

#endif
