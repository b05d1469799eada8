/* bloom_size: from (items, error rate) to (hash count, words), and back to the real expected rate.
 *
 * Two functions size a filter. bloom_size_cassandra() is Cassandra's own sizing, quirks included (FORMAT.md section 5).
 * The daemon uses bloom_size_plan(), which corrects it so that the real rate never exceeds the requested one.
 *
 * Pure functions. Thread: any. */
#pragma once

#include <stdint.h>

#include "bloom_params.h"
#include "errbuf.h"

#define BLOOM_MAX_K     21                   /* Cassandra's reader has room for 21 indexes per lookup */
#define BLOOM_MAX_WORDS UINT64_C(0x7fffffff) /* the word count in a Filter.db header is a signed 32-bit number */

struct bloom_size {
    unsigned k;       /* bits per item, 1..BLOOM_MAX_K */
    unsigned buckets; /* Cassandra's "buckets per element", 0 when the table was not used */
    uint64_t nwords;  /* 64-bit words, 1..BLOOM_MAX_WORDS */
};

enum bloom_size_status {
    BLOOM_SIZE_OK = 0,
    BLOOM_SIZE_ALWAYS_PRESENT,      /* p == 1: Cassandra writes no filter at all */
    BLOOM_SIZE_UNSATISFIABLE,       /* p is below the range of the table (or of k <= 21) */
    BLOOM_SIZE_TOO_BIG,             /* more than BLOOM_MAX_WORDS words */
    BLOOM_SIZE_INVALID_PROBABILITY, /* p is not a number, p > 1 (plan: p >= 1), or, plan only, p <= 0 */
    BLOOM_SIZE_INVALID_CAPACITY,    /* plan only: n == 0 */
};

/* Cassandra's sizing for `n` expected items at rate `p`: the same (k, words) as its own code for every input. */
enum bloom_size_status bloom_size_cassandra(uint64_t n, double p, struct bloom_size *size_out);

/* The daemon's sizing, for 0 < p < 1 and 1 <= n. On any status but BLOOM_SIZE_OK, `size_out` is untouched. `err` (may
 * be NULL: then TOO_BIG stands for UNSATISFIABLE, too) has the reason and the limit: the largest n for this p, or the
 * smallest p for this n. */
enum bloom_size_status bloom_size_plan(uint64_t n, double p, struct bloom_size *size_out, struct errbuf *err);

/* Of the layouts' rows (bloom_layout.h): bloom_size_plan() as a shape, the rate of a layer by bloom_size_share(), and
 * whether a shape has none of RedisBloom's numbers. */
int bloom_size_shape(unsigned options, uint64_t n, double p, struct bloom_shape *shape_out, struct errbuf *err);
double bloom_size_next_rate(const struct bloom_params *params, double newest, unsigned index);
bool bloom_shape_has_no_numbers(const struct bloom_shape *shape, struct errbuf *err);

/* The largest n that bloom_size_plan() accepts for this p; 0 if there is none or p is out of range. */
uint64_t bloom_size_max_items(double p);

/* The rate of layer 0, 1, 2, ... of a chain with the rate p as a whole: p/2, p/6, p/12, ... The shares of the first L
 * layers sum up to p L/(L+1), which is below p for any L.
 *
 * They fall so slowly that a chain stays small. A promise: bloom_size_plan() gives a layer of n items at rate q at most
 * 1/4 + 2 log2(1/q) + 2/sqrt(n q) + 64/n bits per item: two bits for each halving of the rate, bits that separate the
 * probe sequences of few items at a low rate, and one more word. The same bound holds for a chain of L layers, per item
 * of its capacity. Then n is the capacity of the first and smallest layer, and q the rate of the newest, p/(L(L+1)). */
double bloom_size_share(double p, unsigned layer);

/* The expected false-positive rate of a filter of `bits` bits and hash count `k` that has counted `n` items (items that
 * seemed present were not counted). For small rates that is the usual (1 - exp(-kn/bits))^k, for large ones more; plus
 * bloom_size_excess(). In 0..1; 1 for no bits at all. */
double bloom_size_rate(uint64_t n, unsigned k, uint64_t bits);

/* An upper bound of the rate that double hashing adds to the usual formula in small filters. There the k bits of an
 * item are not independent, and whole probe sequences coincide. Measured rates reach at least a third of this bound. */
double bloom_size_excess(double n, unsigned k, uint64_t bits);

/* The same two for positions that are sums of unsigned numbers, as in RedisBloom's layout (redisbloom.h): (a + i b mod
 * 2^64) mod bits. Estimates, not bounds: measured rates are 0.5 to 1.25 of them. */
double bloom_size_rate_unsigned(uint64_t n, unsigned k, uint64_t bits);
double bloom_size_excess_unsigned(double n, unsigned k, uint64_t bits);
