/* The rounds are written once, for one number and for a vector of eight: a lane is an input of its own. */
#include "siphash.h"

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

static void one_by_one(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                       unsigned char (*out)[SIPHASH_BYTES])
{
    for (size_t i = 0; i < n; i++)
        siphash(key, data[i], len[i], out[i]);
}

#if defined(__x86_64__)

#define LANES 8
#define FEW   3 /* fewer are as quick one by one */

typedef uint64_t lanes __attribute__((vector_size(8 * LANES)));

/* Word `i` of each input; 0 behind its end. */
static inline __attribute__((always_inline)) void words_of(const unsigned char *const data[LANES],
                                                           const size_t len[LANES], size_t i, uint64_t out[LANES])
{
    for (unsigned j = 0; j < LANES; j++)
        out[j] = i < len[j] / 8 ? load64(data[j] + 8 * i) : i == len[j] / 8 ? last_word(data[j], len[j]) : 0;
}

/* A shorter input ends before the others: its lane stays as it is. The lengths decide, never the key. */
static inline __attribute__((always_inline)) void all_lanes(const struct siphash_key *key,
                                                            const unsigned char *const data[LANES],
                                                            const size_t len[LANES], uint64_t out[2][LANES])
{
    const lanes zero = {0};
    lanes v0 = zero + (key->k[0] ^ INIT0), v1 = zero + (key->k[1] ^ INIT1 ^ MARK_START);
    lanes v2 = zero + (key->k[0] ^ INIT2), v3 = zero + (key->k[1] ^ INIT3), last, word;
    size_t least = len[0] / 8, most = least;

    for (unsigned j = 0; j < LANES; j++) {
        last[j] = len[j] / 8;
        least = last[j] < least ? last[j] : least;
        most = last[j] > most ? last[j] : most;
    }
    for (size_t i = 0; i < least; i++) {
        for (unsigned j = 0; j < LANES; j++)
            word[j] = load64(data[j] + 8 * i);
        TAKE(word);
    }
    for (size_t i = least; i <= most; i++) {
        uint64_t words[LANES];
        lanes w0 = v0, w1 = v1, w2 = v2, w3 = v3, alive = (lanes)(last >= i);

        words_of(data, len, i, words);
        memcpy(&word, words, sizeof(word));
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
    memcpy(out[0], &first, sizeof(first));
    memcpy(out[1], &second, sizeof(second));
}

__attribute__((target("avx2"))) static void by_avx2(const struct siphash_key *key,
                                                    const unsigned char *const data[LANES], const size_t len[LANES],
                                                    uint64_t out[2][LANES])
{
    all_lanes(key, data, len, out);
}

/* It rotates in one instruction. */
__attribute__((target("avx512f"))) static void by_avx512(const struct siphash_key *key,
                                                         const unsigned char *const data[LANES],
                                                         const size_t len[LANES], uint64_t out[2][LANES])
{
    all_lanes(key, data, len, out);
}

static void (*vectors)(const struct siphash_key *key, const unsigned char *const data[LANES], const size_t len[LANES],
                       uint64_t out[2][LANES]);

__attribute__((constructor(101))) static void choose(void)
{
    __builtin_cpu_init(); /* may run before the compiler's own constructor */
    vectors = __builtin_cpu_supports("avx512f") ? by_avx512 : __builtin_cpu_supports("avx2") ? by_avx2 : NULL;
}

/* The last lanes repeat an input where there are fewer. */
static void some(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                 unsigned char (*out)[SIPHASH_BYTES])
{
    const unsigned char *inputs[LANES];
    size_t lens[LANES];
    uint64_t results[2][LANES];

    for (size_t j = 0; j < LANES; j++) {
        inputs[j] = data[j < n ? j : 0];
        lens[j] = len[j < n ? j : 0];
    }
    vectors(key, inputs, lens, results);
    for (size_t j = 0; j < n; j++) {
        const uint64_t result[2] = {results[0][j], results[1][j]};
        memcpy(out[j], result, sizeof(result));
    }
}

void siphash_many(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                  unsigned char (*out)[SIPHASH_BYTES])
{
    size_t i = 0;

    for (; vectors && n - i >= FEW; i += n - i < LANES ? n - i : LANES)
        some(key, data + i, len + i, n - i < LANES ? n - i : LANES, out + i);
    one_by_one(key, data + i, len + i, n - i, out + i);
}

#else

void siphash_many(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                  unsigned char (*out)[SIPHASH_BYTES])
{
    one_by_one(key, data, len, n, out);
}

#endif
