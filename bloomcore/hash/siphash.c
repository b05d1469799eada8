/* The two forms are one code, in which the form is a constant; it is written for one item and for a lane each of
 * eight. */
#include "siphash.h"

#include <string.h>

#include "murmur_load.h"

enum form {
    LONG,  /* SipHash-2-4 with 128 bits */
    SHORT, /* SipHash-1-3 with 64, of the length and the item */
};

#define INLINE static inline __attribute__((always_inline))

#define INIT0 UINT64_C(0x736f6d6570736575)
#define INIT1 UINT64_C(0x646f72616e646f6d)
#define INIT2 UINT64_C(0x6c7967656e657261)
#define INIT3 UINT64_C(0x7465646279746573)

/* The marks of the 128-bit form, and that of the other one. */
#define MARK_START  0xee
#define MARK_SECOND 0xdd
#define MARK_SHORT  0xff

/* Of numbers and of vectors. */
#define ROTATE(x, by) ((x) << (by) | (x) >> (64 - (by)))

#define ROUND                     \
    do {                          \
        v0 += v1;                 \
        v2 += v3;                 \
        v1 = ROTATE(v1, 13) ^ v0; \
        v3 = ROTATE(v3, 16) ^ v2; \
        v0 = ROTATE(v0, 32);      \
        v2 += v1;                 \
        v0 += v3;                 \
        v1 = ROTATE(v1, 17) ^ v2; \
        v3 = ROTATE(v3, 21) ^ v0; \
        v2 = ROTATE(v2, 32);      \
    } while (0)

#define TAKE(word)        \
    do {                  \
        v3 ^= (word);     \
        ROUND;            \
        if (form == LONG) \
            ROUND;        \
        v0 ^= (word);     \
    } while (0)

#define FINISH            \
    do {                  \
        ROUND;            \
        ROUND;            \
        ROUND;            \
        if (form == LONG) \
            ROUND;        \
    } while (0)

/* The last word: the bytes that are left, and the length of all in its highest byte. */
INLINE uint64_t last_word(enum form form, const unsigned char *data, size_t len)
{
    uint64_t left = len % 8 ? load_last(data + len, len % 8, len) : 0;

    return left | (uint64_t)(len + (form == SHORT ? 8 : 0)) << 56;
}

INLINE uint64_t hash_one(enum form form, const struct siphash_key *key, const void *data, size_t len,
                         uint64_t *second_out)
{
    const unsigned char *bytes = data;
    uint64_t v0 = key->k[0] ^ INIT0, v1 = key->k[1] ^ INIT1 ^ (form == LONG ? MARK_START : 0);
    uint64_t v2 = key->k[0] ^ INIT2, v3 = key->k[1] ^ INIT3;

    if (form == SHORT)
        TAKE(len);
    for (size_t i = 0; i + 8 <= len; i += 8)
        TAKE(load64(bytes + i));
    TAKE(last_word(form, bytes, len));
    v2 ^= form == LONG ? MARK_START : MARK_SHORT;
    FINISH;
    uint64_t first = v0 ^ v1 ^ v2 ^ v3;
    if (form == LONG) {
        v1 ^= MARK_SECOND;
        FINISH;
        *second_out = v0 ^ v1 ^ v2 ^ v3;
    }
    return first;
}

void siphash(const struct siphash_key *key, const void *data, size_t len, unsigned char out[SIPHASH_BYTES])
{
    uint64_t result[2];

    result[0] = hash_one(LONG, key, data, len, &result[1]);
    memcpy(out, result, sizeof(result));
}

uint64_t siphash_short(const struct siphash_key *key, const void *data, size_t len)
{
    return hash_one(SHORT, key, data, len, NULL);
}

/* ---- many items ---- */

#define LANES 8
#define FEW   3 /* fewer are as quick one by one */

static void (*lanes_fn)(enum form form, const struct siphash_key *key, const struct bloom_item items[LANES],
                        uint64_t *first, uint64_t *second); /* NULL: no wide vectors */

#if defined(__x86_64__)

typedef uint64_t lanes __attribute__((vector_size(8 * LANES))); /* with AVX2 a pair of registers */

/* Word `i` of an item; 0 behind its end. */
INLINE uint64_t word_of(enum form form, const struct bloom_item *item, size_t i)
{
    const unsigned char *data = (const unsigned char *)item->ptr;

    return i < item->len / 8 ? load64(data + 8 * i) : i == item->len / 8 ? last_word(form, data, item->len) : 0;
}

/* A shorter item ends before the others: its lane stays as it is. */
INLINE void hash_lanes(enum form form, const struct siphash_key *key, const struct bloom_item items[LANES],
                       uint64_t *first_out, uint64_t *second_out)
{
    const lanes zero = {0};
    lanes v0 = zero + (key->k[0] ^ INIT0), v1 = zero + (key->k[1] ^ INIT1 ^ (form == LONG ? MARK_START : 0));
    lanes v2 = zero + (key->k[0] ^ INIT2), v3 = zero + (key->k[1] ^ INIT3), word = zero;
    size_t least = SIZE_MAX, most = 0;

#pragma GCC unroll 8
    for (unsigned j = 0; j < LANES; j++) {
        size_t words = items[j].len / 8;
        least = words < least ? words : least;
        most = words > most ? words : most;
        word[j] = items[j].len;
    }
    const lanes last = word >> 3;
    if (form == SHORT)
        TAKE(word);
    for (size_t i = 0; i < least; i++) {
#pragma GCC unroll 8
        for (unsigned j = 0; j < LANES; j++)
            word[j] = load64((const unsigned char *)items[j].ptr + 8 * i);
        TAKE(word);
    }
    for (size_t i = least; i <= most; i++) {
        const lanes w0 = v0, w1 = v1, w2 = v2, w3 = v3;
#pragma GCC unroll 8
        for (unsigned j = 0; j < LANES; j++)
            word[j] = least == most ? last_word(form, (const unsigned char *)items[j].ptr, items[j].len)
                                    : word_of(form, &items[j], i);
        TAKE(word);
        if (i == least)
            continue;
        const lanes alive = (lanes)(last >= i);
        v0 = (v0 & alive) | (w0 & ~alive);
        v1 = (v1 & alive) | (w1 & ~alive);
        v2 = (v2 & alive) | (w2 & ~alive);
        v3 = (v3 & alive) | (w3 & ~alive);
    }
    v2 ^= zero + (form == LONG ? MARK_START : MARK_SHORT);
    FINISH;
    const lanes first = v0 ^ v1 ^ v2 ^ v3;
    memcpy(first_out, &first, sizeof(first));
    if (form == SHORT)
        return;
    v1 ^= zero + MARK_SECOND;
    FINISH;
    const lanes second = v0 ^ v1 ^ v2 ^ v3;
    memcpy(second_out, &second, sizeof(second));
}

#define LANES_FOR(name, processor)                                                                             \
    __attribute__((target(processor))) static void name(enum form form, const struct siphash_key *key,         \
                                                        const struct bloom_item items[LANES], uint64_t *first, \
                                                        uint64_t *second)                                      \
    {                                                                                                          \
        if (form == LONG)                                                                                      \
            hash_lanes(LONG, key, items, first, second);                                                       \
        else                                                                                                   \
            hash_lanes(SHORT, key, items, first, second);                                                      \
    }
LANES_FOR(by_avx512, "avx512f") /* which rotates in one instruction */
LANES_FOR(by_avx2, "avx2")

__attribute__((constructor(101))) static void choose(void)
{
    __builtin_cpu_init(); /* may run before the compiler's own constructor */
    if (__builtin_cpu_supports("avx512f"))
        lanes_fn = by_avx512;
    else if (__builtin_cpu_supports("avx2"))
        lanes_fn = by_avx2;
}

#endif

/* The items from `i` on, as many as there are lanes; of fewer the last lanes repeat the first one. False: too few. */
static bool hash_eight(enum form form, const struct siphash_key *key, const struct bloom_item *items, size_t i,
                       size_t n, uint64_t *first, uint64_t *second)
{
    struct bloom_item eight[LANES];

    if (!lanes_fn || i + FEW > n)
        return false;
    for (size_t j = 0; j < LANES && i + LANES > n; j++)
        eight[j] = items[i + j < n ? i + j : i];
    lanes_fn(form, key, i + LANES > n ? eight : items + i, first, second);
    return true;
}

void siphash_many(const struct siphash_key *key, const struct bloom_item *items, size_t n,
                  unsigned char (*out)[SIPHASH_BYTES])
{
    uint64_t first[LANES], second[LANES];
    size_t i = 0;

    for (; hash_eight(LONG, key, items, i, n, first, second); i += LANES) {
        for (size_t j = 0; j < LANES && i + j < n; j++) {
            memcpy(out[i + j], &first[j], 8);
            memcpy(out[i + j] + 8, &second[j], 8);
        }
    }
    for (; i < n; i++)
        siphash(key, items[i].ptr, items[i].len, out[i]);
}

void siphash_short_many(const struct siphash_key *key, const struct bloom_item *items, size_t n, uint64_t *out)
{
    size_t i = 0;

    while (hash_eight(SHORT, key, items, i, n, out + i, NULL))
        i += LANES;
    for (; i < n; i++)
        out[i] = siphash_short(key, items[i].ptr, items[i].len);
}
