/* valkey_dump: a filter in valkey-bloom's layout as the bytes that valkey-bloom has for it, and back: the result of
 * DUMP, and the payload of BF.LOAD. valkey_format.h reads the fields, this file makes a filter of them. The statuses
 * are those of dump.h.
 *
 * As with dump.h, the loader makes the filter that a plan asks for, and so decides which sizes are too large. A dump
 * taken while adds continue holds every item whose add had returned when it began.
 *
 * Thread: any, on distinct objects; the filter that is read may be added to. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dump.h"
#include "valkey_format.h"

bool valkey_is_layout(const struct bloom_filter *filter);

/* The numbers of a filter in this layout. */
void valkey_describe(const struct bloom_filter *filter, struct valkey_filter *value_out);

/* Turns the numbers of a value, of which the first `nlayers` layers have been read, into the plan of a filter with
 * these layers. Sizes are not compared with those of a new layer, since logarithms of two machines may differ; but a
 * full layer must have its error rate. DUMP_OK, or DUMP_BAD with the reason. */
int valkey_plan(const struct valkey_filter *value, unsigned nlayers, struct dump_plan *plan_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* The dump of a filter, malloc'ed. DUMP_OK, -ENOMEM, or REDISBLOOM_LARGE (redisbloom_dump.h) with the number of bytes
 * in *len_out when it may be above `max`. */
int valkey_dump(const struct bloom_filter *filter, uint64_t max, unsigned char **dump_out, uint64_t *len_out)
    __attribute__((warn_unused_result));

/* Writes the payload of a BF.LOAD to memory for valkey_load_bytes(), and returns its end. `value` describes it. */
unsigned char *valkey_write_load(const struct bloom_filter *filter, const struct valkey_filter *value,
                                 unsigned char *out);

/* The two forms. */
enum valkey_form {
    VALKEY_DUMP, /* the result of a DUMP */
    VALKEY_LOAD, /* the payload of a BF.LOAD */
};

/* Whether this is a dump of this type, of any encoding version. */
bool valkey_is_dump(const void *data, size_t len);

/* Verifies all of a value. DUMP_OK, or DUMP_BAD with the reason. */
int valkey_restore_plan(enum valkey_form form, const void *data, size_t len, struct dump_plan *plan_out,
                        struct errbuf *err) __attribute__((warn_unused_result));

/* Takes the bits and counts of a verified value into a filter made after its plan. */
void valkey_restore(enum valkey_form form, const void *data, size_t len, struct bloom_filter *filter);
