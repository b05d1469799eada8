#include "sha256.h"

#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <nettle/version.h>

_Static_assert(SHA256_HEX_SIZE == BASE16_ENCODE_LENGTH(SHA256_DIGEST_SIZE) + 1, "two digits per byte, and the NUL");

void sha256_hex(const void *data, size_t len, char hex_out[SHA256_HEX_SIZE])
{
    struct sha256_ctx ctx;
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_init(&ctx);
    sha256_update(&ctx, len, data);
#if NETTLE_VERSION_MAJOR >= 4
    sha256_digest(&ctx, digest);
#else
    sha256_digest(&ctx, sizeof(digest), digest);
#endif
    base16_encode_update(hex_out, sizeof(digest), digest);
    hex_out[SHA256_HEX_SIZE - 1] = '\0';
}
