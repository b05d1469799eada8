#include "bloom_key.h"

#include <string.h>

#include "murmur_load.h"
#include "siphash_round.h"

/* The labels differ between the halves: equal halves do not cancel out. */
static void combine(const unsigned char secret[BLOOM_SECRET_BYTES], const char *label, uint64_t out[2])
{
    out[0] = out[1] = 0;
    for (unsigned half = 0; half < 2; half++) {
        char text[32] = {(char)('a' + half)};
        struct siphash_key key;
        uint64_t result[2];

        strcpy(text + 1, label);
        memcpy(&key, secret + half * SIPHASH_BYTES, sizeof(key));
        siphash(&key, text, strlen(text), (unsigned char *)result);
        out[0] ^= result[0];
        out[1] ^= result[1];
        explicit_bzero(&key, sizeof(key));
        explicit_bzero(result, sizeof(result));
    }
}

void bloom_secret_derive(const unsigned char secret[BLOOM_SECRET_BYTES], struct bloom_secret *out)
{
    uint64_t id[2];

    combine(secret, " bloomery items 1", out->items.k);
    combine(secret, " bloomery id 1", id);
    out->id = id[0] ? id[0] : 1;
}

/* ---- SipHash ---- */

/* The marks of the 128-bit form. */
#define MARK_START  0xee
#define MARK_SECOND 0xdd

#define TWO_ROUNDS             \
    do {                       \
        ROUND(v0, v1, v2, v3); \
        ROUND(v0, v1, v2, v3); \
    } while (0)

#define TAKE(word)    \
    do {              \
        v3 ^= (word); \
        TWO_ROUNDS;   \
        v0 ^= (word); \
    } while (0)

/* The last word: the bytes that are left, and the length in its highest byte. */
static inline uint64_t last_word(const unsigned char *data, size_t len)
{
    uint64_t left = len % 8 ? load_last(data + len, len % 8, len) : 0;

    return left | (uint64_t)len << 56;
}

void siphash(const struct siphash_key *key, const void *data, size_t len, unsigned char out[SIPHASH_BYTES])
{
    const unsigned char *bytes = data;
    uint64_t v0 = key->k[0] ^ INIT0, v1 = key->k[1] ^ INIT1 ^ MARK_START;
    uint64_t v2 = key->k[0] ^ INIT2, v3 = key->k[1] ^ INIT3;
    uint64_t result[2];

    for (size_t i = 0; i + 8 <= len; i += 8)
        TAKE(load64(bytes + i));
    TAKE(last_word(bytes, len));
    v2 ^= MARK_START;
    TWO_ROUNDS;
    TWO_ROUNDS;
    result[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= MARK_SECOND;
    TWO_ROUNDS;
    TWO_ROUNDS;
    result[1] = v0 ^ v1 ^ v2 ^ v3;
    memcpy(out, result, sizeof(result));
}

static void one_by_one(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                       unsigned char (*out)[SIPHASH_BYTES])
{
    for (size_t i = 0; i < n; i++)
        siphash(key, data[i], len[i], out[i]);
}

#if defined(__x86_64__)

#define LANES_MAX 8
#define FEW       3 /* fewer are as quick one by one */

/* Word `i` of an input; 0 behind its end. */
static inline uint64_t word_of(const unsigned char *data, size_t len, size_t i)
{
    return i < len / 8 ? load64(data + 8 * i) : i == len / 8 ? last_word(data, len) : 0;
}

#define LANES     4
#define ALL_LANES by_avx2
#define TARGET    "avx2"
#include "siphash_lanes.h"
#undef LANES
#undef ALL_LANES
#undef TARGET

/* It rotates in one instruction. */
#define LANES     8
#define ALL_LANES by_avx512
#define TARGET    "avx512f"
#include "siphash_lanes.h"
#undef LANES
#undef ALL_LANES
#undef TARGET

static struct {
    unsigned lanes; /* 0: none */
    void (*all)(const struct siphash_key *key, const unsigned char *const *data, const size_t *len,
                uint64_t out[2][LANES_MAX]);
} vectors;

__attribute__((constructor(101))) static void choose(void)
{
    __builtin_cpu_init(); /* may run before the compiler's own constructor */
    if (__builtin_cpu_supports("avx2")) {
        vectors.lanes = 4;
        vectors.all = by_avx2;
    }
    if (__builtin_cpu_supports("avx512f")) {
        vectors.lanes = 8;
        vectors.all = by_avx512;
    }
}

static void put(const uint64_t results[2][LANES_MAX], size_t n, unsigned char (*out)[SIPHASH_BYTES])
{
    for (size_t j = 0; j < n; j++) {
        memcpy(out[j], &results[0][j], 8);
        memcpy(out[j] + 8, &results[1][j], 8);
    }
}

/* Fewer inputs than lanes: the last lanes repeat the first one. */
static void rest(const struct siphash_key *key, const unsigned char *const *data, const size_t *len, size_t n,
                 unsigned char (*out)[SIPHASH_BYTES])
{
    const unsigned char *inputs[LANES_MAX];
    size_t lens[LANES_MAX];
    uint64_t results[2][LANES_MAX];

    for (size_t j = 0; j < vectors.lanes; j++) {
        inputs[j] = data[j < n ? j : 0];
        lens[j] = len[j < n ? j : 0];
    }
    vectors.all(key, inputs, lens, results);
    put(results, n, out);
}

void siphash_many(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                  unsigned char (*out)[SIPHASH_BYTES])
{
    const unsigned char *const *inputs = (const unsigned char *const *)data;
    size_t i = 0;

    for (size_t lanes = vectors.lanes; lanes && n - i >= lanes; i += lanes) {
        uint64_t results[2][LANES_MAX];

        vectors.all(key, inputs + i, len + i, results);
        put(results, lanes, out + i);
    }
    if (vectors.lanes && n - i >= FEW) {
        rest(key, inputs + i, len + i, n - i, out + i);
        return;
    }
    one_by_one(key, data + i, len + i, n - i, out + i);
}

#else

void siphash_many(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                  unsigned char (*out)[SIPHASH_BYTES])
{
    one_by_one(key, data, len, n, out);
}

#endif
