/* bloom_size: from (items, error rate) to (hash count, words), and back to the rate that is really to be expected.
 *
 * Two functions size a filter. bloom_size_cassandra() is Cassandra's own, quirks included (FORMAT.md section 5).
 * bloom_size_plan() is what the daemon uses on top of it, so that the real rate is never above the requested one.
 *
 * Pure functions. Thread: any. */
#ifndef BLOOMERY_BLOOM_SIZE_H
#define BLOOMERY_BLOOM_SIZE_H

#include <stdint.h>

#include "errbuf.h"

#define BLOOM_MAX_K     21                    /* Cassandra's reader has room for 21 indexes per lookup */
#define BLOOM_MAX_WORDS UINT64_C(0x7fffffff)  /* the word count in a Filter.db header is a signed 32-bit number */

struct bloom_size {
    unsigned k;          /* bits per item, 1..BLOOM_MAX_K */
    unsigned buckets;    /* Cassandra's "buckets per element", 0 when the table was not used */
    uint64_t nwords;     /* 64-bit words, 1..BLOOM_MAX_WORDS */
};

enum bloom_size_status {
    BLOOM_SIZE_OK = 0,
    BLOOM_SIZE_ALWAYS_PRESENT,      /* p == 1: Cassandra writes no filter at all */
    BLOOM_SIZE_UNSATISFIABLE,       /* p is below what the table (or k <= 21) reaches */
    BLOOM_SIZE_TOO_BIG,             /* more than BLOOM_MAX_WORDS words */
    BLOOM_SIZE_INVALID_PROBABILITY, /* p is not a number, p > 1 (plan: p >= 1), or, plan only, p <= 0 */
    BLOOM_SIZE_INVALID_CAPACITY,    /* plan only: n == 0 */
};

/* Cassandra's sizing for `n` expected items at rate `p`: the same (k, words) as its own code for every input. */
enum bloom_size_status bloom_size_cassandra(uint64_t n, double p, struct bloom_size *size_out);

/* Cassandra's sizing for an explicit number of buckets per element, 1..20 (its older versions used 15). */
enum bloom_size_status bloom_size_buckets(uint64_t n, unsigned buckets, struct bloom_size *size_out);

/* The daemon's sizing, for 0 < p < 1 and 1 <= n. On anything but BLOOM_SIZE_OK `size_out` is untouched and `err` (may
 * be NULL) says what was wrong and where the limit is: the largest n for this p, or the smallest p for this n. */
enum bloom_size_status bloom_size_plan(uint64_t n, double p, struct bloom_size *size_out, struct errbuf *err);

/* The largest n that bloom_size_plan() accepts for this p; 0 if there is none or p is out of range. */
uint64_t bloom_size_max_items(double p);

/* The false-positive rate to expect of a filter of `bits` bits and hash count `k` that has counted `n` items: those that did
 * not seem to be there before. With small rates that is the usual (1 - exp(-kn/bits))^k, with large ones more; plus
 * bloom_size_excess(). In 0..1; 1 for no bits at all. */
double bloom_size_rate(uint64_t n, unsigned k, uint64_t bits);

/* An upper bound of what double hashing adds to the usual formula in small filters, because the k bits of an item are
 * no independent choices: whole probe sequences coincide. Measured, it is reached to a third or better. */
double bloom_size_excess(double n, unsigned k, uint64_t bits);

#endif
