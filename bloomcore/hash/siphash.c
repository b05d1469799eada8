/* The rounds are written once, for one number and for a vector of four: a lane is an input of its own. */
#include "siphash.h"

#include <stdbool.h>
#include <string.h>

#include "murmur_load.h"

#define INIT0 UINT64_C(0x736f6d6570736575)
#define INIT1 UINT64_C(0x646f72616e646f6d)
#define INIT2 UINT64_C(0x6c7967656e657261)
#define INIT3 UINT64_C(0x7465646279746573)

/* The marks of the 128-bit form. */
#define MARK_START  0xee
#define MARK_SECOND 0xdd

#define ROTATE(x, by) ((x) << (by) | (x) >> (64 - (by)))

#define ROUND(v0, v1, v2, v3)         \
    do {                              \
        (v0) += (v1);                 \
        (v2) += (v3);                 \
        (v1) = ROTATE(v1, 13) ^ (v0); \
        (v3) = ROTATE(v3, 16) ^ (v2); \
        (v0) = ROTATE(v0, 32);        \
        (v2) += (v1);                 \
        (v0) += (v3);                 \
        (v1) = ROTATE(v1, 17) ^ (v2); \
        (v3) = ROTATE(v3, 21) ^ (v0); \
        (v2) = ROTATE(v2, 32);        \
    } while (0)

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

static void one_by_one(const struct siphash_key *key, const void *const data[SIPHASH_LANES],
                       const size_t len[SIPHASH_LANES], unsigned char out[SIPHASH_LANES][SIPHASH_BYTES])
{
    for (unsigned i = 0; i < SIPHASH_LANES; i++)
        siphash(key, data[i], len[i], out[i]);
}

#if defined(__x86_64__)

typedef uint64_t lanes __attribute__((vector_size(8 * SIPHASH_LANES)));

#define TARGET __attribute__((target("avx2")))

/* The state after word `i` of each input. A shorter one has ended: its lane stays. The lengths decide, never the key.
 */
TARGET static void four(const struct siphash_key *key, const void *const data[SIPHASH_LANES],
                        const size_t len[SIPHASH_LANES], unsigned char out[SIPHASH_LANES][SIPHASH_BYTES])
{
    const unsigned char *const p[] = {data[0], data[1], data[2], data[3]};
    const lanes zero = {0}, last = {len[0] / 8, len[1] / 8, len[2] / 8, len[3] / 8};
    lanes v0 = zero + (key->k[0] ^ INIT0), v1 = zero + (key->k[1] ^ INIT1 ^ MARK_START);
    lanes v2 = zero + (key->k[0] ^ INIT2), v3 = zero + (key->k[1] ^ INIT3);
    size_t least = last[0], most = last[0];

    for (unsigned i = 1; i < SIPHASH_LANES; i++) {
        least = last[i] < least ? last[i] : least;
        most = last[i] > most ? last[i] : most;
    }
    for (size_t i = 0; i < least; i++) {
        const lanes word = {load64(p[0] + 8 * i), load64(p[1] + 8 * i), load64(p[2] + 8 * i), load64(p[3] + 8 * i)};
        TAKE(word);
    }
    for (size_t i = least; i <= most; i++) {
        lanes word = zero, w0 = v0, w1 = v1, w2 = v2, w3 = v3, alive = (lanes)(last >= i);

        for (unsigned j = 0; j < SIPHASH_LANES; j++)
            word[j] = i < last[j] ? load64(p[j] + 8 * i) : i == last[j] ? last_word(p[j], len[j]) : 0;
        TAKE(word);
        v0 = (v0 & alive) | (w0 & ~alive);
        v1 = (v1 & alive) | (w1 & ~alive);
        v2 = (v2 & alive) | (w2 & ~alive);
        v3 = (v3 & alive) | (w3 & ~alive);
    }
    v2 ^= zero + MARK_START;
    TWO_ROUNDS;
    TWO_ROUNDS;
    const lanes first = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= zero + MARK_SECOND;
    TWO_ROUNDS;
    TWO_ROUNDS;
    const lanes second = v0 ^ v1 ^ v2 ^ v3;
    for (unsigned j = 0; j < SIPHASH_LANES; j++) {
        const uint64_t result[2] = {first[j], second[j]};
        memcpy(out[j], result, sizeof(result));
    }
}

static bool has_vectors;

__attribute__((constructor(101))) static void choose(void)
{
    __builtin_cpu_init(); /* may run before the compiler's own constructor */
    has_vectors = __builtin_cpu_supports("avx2");
}

void siphash_four(const struct siphash_key *key, const void *const data[SIPHASH_LANES], const size_t len[SIPHASH_LANES],
                  unsigned char out[SIPHASH_LANES][SIPHASH_BYTES])
{
    (has_vectors ? four : one_by_one)(key, data, len, out);
}

#else

void siphash_four(const struct siphash_key *key, const void *const data[SIPHASH_LANES], const size_t len[SIPHASH_LANES],
                  unsigned char out[SIPHASH_LANES][SIPHASH_BYTES])
{
    one_by_one(key, data, len, out);
}

#endif
