#include "attacks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define C1 UINT64_C(0x87c37b91114253d5)
#define C2 UINT64_C(0x4cf5ad432745937f)
#define M1 UINT64_C(0xff51afd7ed558ccd)
#define M2 UINT64_C(0xc4ceb9fe1a85ec53)

struct hash {
    uint64_t h1, h2;
};

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

/* ---- MurmurHash3 x64 128 of texts, and its inverse ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * M1;
    x = (x ^ x >> 33) * M2;
    return x ^ x >> 33;
}

static struct hash hash_text(const char *text)
{
    size_t len = strlen(text), i = 0;
    struct hash h = {0, 0};
    uint64_t k[2];

    for (; i + 16 <= len; i += 16) {
        memcpy(k, text + i, 16);
        h.h1 = (rotate(h.h1 ^ rotate(k[0] * C1, 31) * C2, 27) + h.h2) * 5 + 0x52dce729;
        h.h2 = (rotate(h.h2 ^ rotate(k[1] * C2, 33) * C1, 31) + h.h1) * 5 + 0x38495ab5;
    }
    k[0] = k[1] = 0;
    memcpy(k, text + i, len - i);
    h.h1 ^= rotate(k[0] * C1, 31) * C2 ^ len;
    h.h2 ^= rotate(k[1] * C2, 33) * C1 ^ len;
    h.h1 += h.h2;
    h.h2 = mix(h.h2 + h.h1);
    h.h1 = mix(h.h1) + h.h2;
    h.h2 += h.h1;
    return h;
}

/* The inverse of an odd number modulo 2^64. */
static uint64_t inverse(uint64_t x)
{
    uint64_t y = x;

    for (int i = 0; i < 6; i++)
        y *= 2 - x * y;
    return y;
}

static uint64_t unmix(uint64_t x)
{
    x = (x ^ x >> 33) * inverse(M2);
    x = (x ^ x >> 33) * inverse(M1);
    return x ^ x >> 33;
}

/* The end of the hash is a bijection, and so is a block with a known state before it: 0 before the first block. */
void attack_twin(const char *victim, unsigned char twin_out[16])
{
    struct hash h = hash_text(victim);
    uint64_t k[2];

    h.h2 -= h.h1;
    h.h1 = unmix(h.h1 - h.h2);
    h.h2 = unmix(h.h2) - h.h1;
    h.h1 = (h.h1 - h.h2) ^ 16;
    h.h2 ^= 16;
    k[1] = rotate((h.h2 - 0x38495ab5) * inverse(5) - h.h1, 64 - 31);
    k[0] = rotate((h.h1 - 0x52dce729) * inverse(5), 64 - 27);
    k[0] = rotate(k[0] * inverse(C2), 64 - 31) * inverse(C1);
    k[1] = rotate(k[1] * inverse(C1), 64 - 33) * inverse(C2);
    memcpy(twin_out, k, 16);
}

/* ---- a plain filter of one layer ---- */

static void bits_of(const struct attack_filter *filter, const char *item, uint64_t bit[ATTACK_MAX_K])
{
    struct hash h = hash_text(item);

    for (unsigned i = 0; i < filter->k; i++) {
        int64_t rest = (int64_t)(h.h2 + i * h.h1) % (int64_t)filter->bits;
        bit[i] = (uint64_t)(rest < 0 ? -rest : rest);
    }
}

struct attack_filter attack_begin(uint64_t bits, unsigned k)
{
    struct attack_filter filter = {bits, k, calloc(bits, 1)};

    cr_assert(filter.set && k >= 1 && k <= ATTACK_MAX_K);
    return filter;
}

void attack_free(struct attack_filter *filter)
{
    free(filter->set);
}

void attack_note(struct attack_filter *filter, const char *item)
{
    uint64_t bit[ATTACK_MAX_K];

    bits_of(filter, item, bit);
    for (unsigned i = 0; i < filter->k; i++)
        filter->set[bit[i]] = 1;
}

/* ---- choices ---- */

static void text_of(char out[ATTACK_ITEM], unsigned number)
{
    snprintf(out, ATTACK_ITEM, "https://attacker.example/page/%u", number);
}

size_t attack_cover(const struct attack_filter *filter, const char *victim, char items_out[][ATTACK_ITEM])
{
    uint64_t wanted[ATTACK_MAX_K], bit[ATTACK_MAX_K];
    unsigned left = filter->k;
    size_t n = 0;

    bits_of(filter, victim, wanted);
    for (unsigned number = 0; left > 0; number++) {
        unsigned before = left;

        text_of(items_out[n], number);
        bits_of(filter, items_out[n], bit);
        for (unsigned i = 0; i < filter->k; i++)
            for (unsigned j = 0; j < left; j++)
                if (wanted[j] == bit[i])
                    wanted[j--] = wanted[--left];
        n += left < before;
    }
    return n;
}

void attack_saturate(struct attack_filter *filter, unsigned *at, char item_out[ATTACK_ITEM])
{
    uint64_t bit[ATTACK_MAX_K];

    for (bool good = false; !good;) {
        text_of(item_out, (*at)++);
        bits_of(filter, item_out, bit);
        good = true;
        for (unsigned i = 0; i < filter->k; i++) {
            good &= !filter->set[bit[i]];
            for (unsigned j = 0; j < i; j++)
                good &= bit[i] != bit[j];
        }
    }
    attack_note(filter, item_out);
}

void attack_pass(const struct attack_filter *filter, unsigned *at, char item_out[ATTACK_ITEM])
{
    uint64_t bit[ATTACK_MAX_K];

    for (bool passes = false; !passes;) {
        text_of(item_out, (*at)++);
        bits_of(filter, item_out, bit);
        passes = true;
        for (unsigned i = 0; i < filter->k; i++)
            passes &= filter->set[bit[i]];
    }
}
