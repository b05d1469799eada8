/* The order of operations of sizes and rates is that of valkey-bloom and its crate bloomfilter, because results are
 * rounded. So a layer that grows here has the numbers that it would have there. */
#include "valkey.h"

#include <float.h>
#include <math.h>

#include "bloom_size.h"
#include "murmur_load.h"
#include "siphash_round.h"

/* ---- sizes ---- */

#define LN2       0.693147180559945309417232121458
#define MAX_BYTES (BLOOM_MAX_WORDS * 8)

const struct bloom_seed valkey_fixed_seed = {{0x59, 0x0f, 0xf5, 0x22, 0xea, 0x78, 0x11, 0xda, 0xa7, 0x14, 0xd8,
                                              0x09, 0x3b, 0x3e, 0x7b, 0xd9, 0x1d, 0x89, 0x8a, 0x73, 0x3e, 0x98,
                                              0x88, 0x87, 0x30, 0x7f, 0x97, 0xcd, 0x28, 0x07, 0x33, 0x83}};

static double bits_per_item(uint64_t bits, uint64_t capacity)
{
    return (double)bits / (double)capacity;
}

bool valkey_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    if (shape->spare_bytes > 7 || shape->n2)
        errbuf_set(err, "%u unused bytes in a word, n2 %u", shape->spare_bytes, shape->n2);
    else if (shape->capacity < 1 || shape->capacity > REDISBLOOM_MAX_ENTRIES)
        errbuf_set(err, "capacity %llu: must be in the range [1, %llu]", (unsigned long long)shape->capacity,
                   (unsigned long long)REDISBLOOM_MAX_ENTRIES);
    else if (!(shape->error_rate > 0 && shape->error_rate < 1))
        errbuf_set(err, "error rate %g: must be in the range (0, 1)", shape->error_rate);
    else if (shape->bpe != bits_per_item(bloom_shape_bits(shape), shape->capacity))
        errbuf_set(err, "%g bits per entry are not those of the layer", shape->bpe);
    else
        return true;
    return false;
}

int valkey_shape(uint64_t capacity, double rate, uint64_t bytes, uint64_t hashes, struct bloom_shape *shape_out,
                 struct errbuf *err)
{
    if (bytes < 1 || bytes > MAX_BYTES || hashes < 1 || hashes > BLOOM_MAX_HASHES || capacity < 1)
        return errbuf_fail(err, BLOOM_REFUSED,
                           "capacity %llu, %llu bytes, %llu hashes: a layer has from 1 to %llu bytes and %d hashes",
                           (unsigned long long)capacity, (unsigned long long)bytes, (unsigned long long)hashes,
                           (unsigned long long)MAX_BYTES, BLOOM_MAX_HASHES);
    uint64_t nwords = (bytes - 1) / 8 + 1;
    *shape_out = (struct bloom_shape){
        .nwords = nwords,
        .k = (uint8_t)hashes,
        .variant = BLOOM_VALKEY,
        .spare_bytes = (uint8_t)(nwords * 8 - bytes),
        .capacity = capacity,
        .error_rate = rate,
        .bpe = bits_per_item(bytes * 8, capacity),
    };
    return bloom_shape_valid(shape_out, err) ? BLOOM_OK : BLOOM_REFUSED;
}

int valkey_size(unsigned options, uint64_t capacity, double rate, struct bloom_shape *shape_out, struct errbuf *err)
{
    const double log2_squared = LN2 * LN2;
    double bytes = ceil((double)capacity * log(rate) / (-8.0 * log2_squared));

    (void)options;
    if (!(rate > DBL_MIN))
        return errbuf_fail(err, BLOOM_REFUSED, "false positive degrades to 0 on scale out");
    if (!(bytes >= 1 && bytes <= (double)MAX_BYTES))
        return errbuf_fail(err, BLOOM_REFUSED,
                           "capacity %llu at error rate %g takes more than the %llu bytes that a layer may have",
                           (unsigned long long)capacity, rate, (unsigned long long)MAX_BYTES);
    double hashes = fmax(1, round(bits_per_item((uint64_t)bytes * 8, capacity) * LN2));
    return valkey_shape(capacity, rate, (uint64_t)bytes, (uint64_t)hashes, shape_out, err);
}

double valkey_layer_rate(double rate, double tightening, unsigned index)
{
    double power = 1; /* by repeated squaring, as the compiler of valkey-bloom does it */

    for (; index; index /= 2) {
        power = index & 1 ? power * tightening : power;
        tightening *= tightening;
    }
    return rate * power;
}

double valkey_next_rate(const struct bloom_params *params, double newest, unsigned index)
{
    (void)newest;
    return valkey_layer_rate(params->error_rate, params->tightening, index);
}

/* ---- hashes ---- */

#define LENGTH_BYTES 8 /* in front of the item */

/* Both hashes take a word: one has its state in v0..v3, the other one in w0..w3. */
#define TAKE(word)             \
    do {                       \
        v3 ^= (word);          \
        w3 ^= (word);          \
        ROUND(v0, v1, v2, v3); \
        ROUND(w0, w1, w2, w3); \
        v0 ^= (word);          \
        w0 ^= (word);          \
    } while (0)

#define FINISH                        \
    do {                              \
        v2 ^= 0xff;                   \
        w2 ^= 0xff;                   \
        for (int r = 0; r < 3; r++) { \
            ROUND(v0, v1, v2, v3);    \
            ROUND(w0, w1, w2, w3);    \
        }                             \
    } while (0)

/* The bytes that are left, and the length of all in the highest byte. */
static inline uint64_t last_word(const unsigned char *data, size_t len)
{
    uint64_t left = len % 8 ? load_last(data + len, len % 8, len) : 0;

    return left | (uint64_t)(len + LENGTH_BYTES) << 56;
}

struct bloom_hash valkey_hash(const struct bloom_seed *seed, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    uint64_t v0 = load64(seed->bytes), v1 = load64(seed->bytes + 8), v2 = v0 ^ INIT2, v3 = v1 ^ INIT3;
    uint64_t w0 = load64(seed->bytes + 16), w1 = load64(seed->bytes + 24), w2 = w0 ^ INIT2, w3 = w1 ^ INIT3;

    v0 ^= INIT0;
    v1 ^= INIT1;
    w0 ^= INIT0;
    w1 ^= INIT1;
    TAKE(len);
    for (size_t i = 0; i + 8 <= len; i += 8)
        TAKE(load64(bytes + i));
    TAKE(last_word(bytes, len));
    FINISH;
    return (struct bloom_hash){v0 ^ v1 ^ v2 ^ v3, w0 ^ w1 ^ w2 ^ w3};
}

#if defined(__x86_64__)

#define LANES 8
#define FEW   3 /* fewer are as quick one by one */

typedef uint64_t lanes __attribute__((vector_size(8 * LANES))); /* with AVX2 a pair of registers */

/* Word `i` of an item; 0 behind its end. */
static inline uint64_t word_of(const struct bloom_item *item, size_t i)
{
    const unsigned char *data = (const unsigned char *)item->ptr;

    return i < item->len / 8 ? load64(data + 8 * i) : i == item->len / 8 ? last_word(data, item->len) : 0;
}

/* A shorter item ends before the others: its lane stays as it is. The lengths decide, never the seed. */
static inline __attribute__((always_inline)) void
hash_lanes(const struct bloom_seed *seed, const struct bloom_item *const items[LANES], uint64_t *h1, uint64_t *h2)
{
    const lanes zero = {0};
    uint64_t k0 = load64(seed->bytes), k1 = load64(seed->bytes + 8);
    lanes v0 = zero + (k0 ^ INIT0), v1 = zero + (k1 ^ INIT1), v2 = zero + (k0 ^ INIT2), v3 = zero + (k1 ^ INIT3);
    uint64_t k2 = load64(seed->bytes + 16), k3 = load64(seed->bytes + 24);
    lanes w0 = zero + (k2 ^ INIT0), w1 = zero + (k3 ^ INIT1), w2 = zero + (k2 ^ INIT2), w3 = zero + (k3 ^ INIT3);
    size_t least = SIZE_MAX, most = 0;
    lanes word = zero;

#pragma GCC unroll 8
    for (unsigned j = 0; j < LANES; j++) {
        size_t words = items[j]->len / 8;
        least = words < least ? words : least;
        most = words > most ? words : most;
        word[j] = items[j]->len;
    }
    const lanes last = word >> 3;
    TAKE(word);
    for (size_t i = 0; i <= least; i++) {
#pragma GCC unroll 8
        for (unsigned j = 0; j < LANES; j++)
            word[j] = word_of(items[j], i);
        TAKE(word);
    }
    for (size_t i = least + 1; i <= most; i++) {
        const lanes a0 = v0, a1 = v1, a2 = v2, a3 = v3, b0 = w0, b1 = w1, b2 = w2, b3 = w3;

        for (unsigned j = 0; j < LANES; j++)
            word[j] = word_of(items[j], i);
        TAKE(word);
        const lanes alive = (lanes)(last >= i);
        v0 = (v0 & alive) | (a0 & ~alive);
        v1 = (v1 & alive) | (a1 & ~alive);
        v2 = (v2 & alive) | (a2 & ~alive);
        v3 = (v3 & alive) | (a3 & ~alive);
        w0 = (w0 & alive) | (b0 & ~alive);
        w1 = (w1 & alive) | (b1 & ~alive);
        w2 = (w2 & alive) | (b2 & ~alive);
        w3 = (w3 & alive) | (b3 & ~alive);
    }
    FINISH;
    const lanes first = v0 ^ v1 ^ v2 ^ v3, second = w0 ^ w1 ^ w2 ^ w3;
    memcpy(h1, &first, sizeof(first));
    memcpy(h2, &second, sizeof(second));
}

#define LANES_FOR(name, processor)                                                                              \
    __attribute__((target(processor))) static void name(                                                        \
        const struct bloom_seed *seed, const struct bloom_item *const items[LANES], uint64_t *h1, uint64_t *h2) \
    {                                                                                                           \
        hash_lanes(seed, items, h1, h2);                                                                        \
    }
LANES_FOR(by_avx512, "avx512f")
LANES_FOR(by_avx2, "avx2")

static void (*lanes_fn)(const struct bloom_seed *seed, const struct bloom_item *const items[LANES], uint64_t *h1,
                        uint64_t *h2);

__attribute__((constructor(101))) static void choose(void)
{
    __builtin_cpu_init(); /* may run before the compiler's own constructor */
    if (__builtin_cpu_supports("avx512f"))
        lanes_fn = by_avx512;
    else if (__builtin_cpu_supports("avx2"))
        lanes_fn = by_avx2;
}

/* Fewer items than lanes: the last lanes repeat the first one. */
static size_t hash_vectors(const struct bloom_seed *seed, const struct bloom_item *items, size_t n, uint64_t *h1,
                           uint64_t *h2)
{
    size_t i = 0;

    for (; lanes_fn && i < n && n - i >= FEW; i += LANES) {
        const struct bloom_item *eight[LANES];
        for (size_t j = 0; j < LANES; j++)
            eight[j] = &items[i + j < n ? i + j : i];
        lanes_fn(seed, eight, h1 + i, h2 + i);
    }
    return i;
}

#else

static size_t hash_vectors(const struct bloom_seed *seed, const struct bloom_item *items, size_t n, uint64_t *h1,
                           uint64_t *h2)
{
    (void)seed, (void)items, (void)n, (void)h1, (void)h2;
    return 0;
}

#endif

void valkey_hashes(const struct bloom_seed *seed, const struct bloom_item *items, size_t n, uint64_t *h1, uint64_t *h2)
{
    for (size_t i = hash_vectors(seed, items, n, h1, h2); i < n; i++) {
        struct bloom_hash hash = valkey_hash(seed, items[i].ptr, items[i].len);
        h1[i] = hash.h1;
        h2[i] = hash.h2;
    }
}
