/* cuckoo_dump: conversions between cuckoo filters and RedisBloom's bytes: the value of DUMP and of RDB files (module
 * type MBbloomCF, encoding version 4), and the header of CF.SCANDUMP. Filters in our layout, which RedisBloom does not
 * know, have some more numbers in both, and their values have our own type. docs/DUMP.md describes the bytes.
 *
 * Every number is checked before memory is taken: the loader makes the filter that a plan asks for, and so decides
 * which sizes are too large.
 *
 * Thread: any, on distinct objects; a filter that is read must not change meanwhile (bloom_still_begin()). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dump.h"
#include "rdb_reader.h"

/* RedisBloom's module type; and that of Bloomery's module, for our layout, and for RedisBloom's beside RedisBloom. Its
 * values have four additional numbers: the bits of a slot, or 0 in RedisBloom's layout; the capacity; the bits of the
 * error rate as a double; the id of the key or 0. */
#define CUCKOO_TYPE_NAME     "MBbloomCF"
#define CUCKOO_TYPE_ID       UINT64_C(0x3016e5a289821400) /* without the encoding version */
#define CUCKOO_OWN_TYPE_NAME "bloomeryC"
#define CUCKOO_OWN_TYPE_ID   UINT64_C(0x6e5a2899eaf20800)
#define CUCKOO_ENCVER        4 /* those below are of RedisBloom before 2.2 */
#define CUCKOO_OWN_ENCVER    5 /* 4: RedisBloom's numbers alone, of this module before it had our layout */
#define CUCKOO_HEADER_BYTES  38
#define CUCKOO_RATE_BYTES    26 /* more, of our layout: u16 bits of a slot, u64 capacity, double rate, u64 key */
#define CUCKOO_HEADER_MAX    (CUCKOO_HEADER_BYTES + CUCKOO_RATE_BYTES)

/* ---- the header of a dump in chunks ---- */

/* The numbers of a filter. */
struct cuckoo_head {
    uint64_t items, buckets, deletes, nlayers;
    uint64_t bucket_size, iterations, expansion;

    /* Of our layout; otherwise 0. */
    uint64_t bits, capacity, key;
    double error_rate;
};

void cuckoo_head_of(const struct bloom_filter *filter, struct cuckoo_head *head_out);
size_t cuckoo_head_put(const struct cuckoo_head *head, unsigned char out[CUCKOO_HEADER_MAX]); /* its length */
bool cuckoo_head_get(const unsigned char *bytes, size_t len, struct cuckoo_head *head_out);   /* false: no header */

/* The plan of a filter with these numbers. DUMP_OK, or DUMP_BAD with the number that is not possible. */
int cuckoo_head_plan(const struct cuckoo_head *head, struct dump_plan *plan_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* ---- values ---- */

/* The dump of a filter, malloc'ed. DUMP_OK, -ENOMEM, or REDISBLOOM_LARGE, with its bytes in *len_out, above `max`. */
int cuckoo_dump(const struct bloom_filter *filter, uint64_t max, unsigned char **dump_out, uint64_t *len_out)
    __attribute__((warn_unused_result));

/* Whether this is a dump (of any encoding version), by its type, of which there are two. */
bool cuckoo_is_dump(const void *data, size_t len);

/* Verifies all of a dump. DUMP_OK, or DUMP_BAD with the reason. */
int cuckoo_restore_plan(const void *data, size_t len, struct dump_plan *plan_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Takes the slots of a verified dump into a filter made after its plan, and counts its items. */
void cuckoo_restore(const void *data, size_t len, struct bloom_filter *filter);

/* Gives the filter that has a sub-filter of the plan, when the first slots of that have come: before, numbers alone
 * take no memory. 0 or a status for the caller. */
typedef int cuckoo_make_fn(void *ctx, const struct dump_plan *plan, unsigned layer, struct bloom_filter **filter_out);

/* Reads a value of an RDB file after its type, which has the version of the encoding: the numbers, and the slots.
 * `make` NULL: `ctx` is the filter; if that is NULL, too, the slots are skipped. */
int cuckoo_read_value(struct rdb_reader *reader, uint64_t type, cuckoo_make_fn *make, void *ctx,
                      struct dump_plan *plan_out) __attribute__((warn_unused_result));
