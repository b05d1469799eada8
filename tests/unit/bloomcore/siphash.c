/* SipHash-2-4 with 128 bits against the first reference vectors and OpenSSL, and four inputs at once against one. */
#include "bloom_key.h"

#include <criterion/criterion.h>
#include <openssl/evp.h>
#include <string.h>

#include "rng.h"

#define MOST 200

static void reference(const struct siphash_key *key, const void *data, size_t len, unsigned char out[SIPHASH_BYTES])
{
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    size_t n = 0;

    cr_assert(EVP_MAC_init(ctx, (const unsigned char *)key->k, sizeof(key->k), NULL));
    cr_assert(EVP_MAC_update(ctx, data, len));
    cr_assert(EVP_MAC_final(ctx, out, &n, SIPHASH_BYTES));
    cr_assert_eq(n, SIPHASH_BYTES);
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
}

Test(siphash, reference_vectors)
{
    static const unsigned char expected[2][SIPHASH_BYTES] = {
        {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93},
        {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45},
    };
    const struct siphash_key key = {{UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}};
    unsigned char out[SIPHASH_BYTES];

    siphash(&key, NULL, 0, out);
    cr_assert_arr_eq(out, expected[0], SIPHASH_BYTES);
    siphash(&key, "\0", 1, out);
    cr_assert_arr_eq(out, expected[1], SIPHASH_BYTES);
}

Test(siphash, openssl_agrees_for_every_length)
{
    unsigned char data[MOST], out[SIPHASH_BYTES], expected[SIPHASH_BYTES];
    struct siphash_key key;
    struct rng rng;

    rng_init(&rng, 23);
    for (size_t len = 0; len <= MOST; len++) {
        rng_fill(&rng, &key, sizeof(key));
        rng_fill(&rng, data, len);
        reference(&key, data, len, expected);
        siphash(&key, data, len, out);
        cr_assert_arr_eq(out, expected, SIPHASH_BYTES, "%zu bytes", len);
    }
}

/* Any number of inputs of any lengths, most of them equal in every fifth round. */
Test(siphash, many_inputs_are_as_one_by_one)
{
    enum { INPUTS = 20 };
    unsigned char data[INPUTS][MOST], out[INPUTS + 1][SIPHASH_BYTES], expected[SIPHASH_BYTES];
    struct siphash_key key;
    struct rng rng;

    rng_init(&rng, 24);
    for (int round = 0; round < 20000; round++) {
        const void *items[INPUTS];
        size_t len[INPUTS], most = round % 3 == 0 ? 10 : MOST, n = rng_below(&rng, INPUTS + 1);

        rng_fill(&rng, &key, sizeof(key));
        rng_fill(&rng, data, sizeof(data));
        memset(out, 0x5a, sizeof(out));
        for (size_t i = 0; i < n; i++) {
            len[i] = round % 5 == 0 && i ? len[0] : rng_below(&rng, most);
            items[i] = len[i] ? data[i] + most - len[i] : NULL;
        }
        siphash_many(&key, items, len, n, out);
        for (size_t i = 0; i < n; i++) {
            siphash(&key, items[i], len[i], expected);
            cr_assert_arr_eq(out[i], expected, SIPHASH_BYTES, "round %d, input %zu, %zu bytes", round, i, len[i]);
        }
        for (size_t i = 0; i < SIPHASH_BYTES; i++)
            cr_assert_eq(out[n][i], 0x5a, "round %d: beyond input %zu", round, n);
    }
}
