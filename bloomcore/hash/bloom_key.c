#include "bloom_key.h"

#include <string.h>

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
