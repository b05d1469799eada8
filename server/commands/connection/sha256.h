/* sha256: the hash in which passwords are shown (ACL LIST, ACL GETUSER), FIPS 180-4; by nettle. Pure function. Thread:
 * any. */
#ifndef BLOOMERY_SHA256_H
#define BLOOMERY_SHA256_H

#include <stddef.h>

#define SHA256_HEX_SIZE 65 /* with the NUL */

/* The hash of `len` bytes as lower-case hexadecimal digits. */
void sha256_hex(const void *data, size_t len, char hex_out[SHA256_HEX_SIZE]);

#endif
