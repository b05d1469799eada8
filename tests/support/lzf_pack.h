/* lzf_pack: compresses as engines do (lzf.h): input for the decoder. Thread: any. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Writes at most 32 bytes as they are. Returns where to continue. */
static inline unsigned char *lzf_put_literals(unsigned char *at, const unsigned char *from, size_t len)
{
    for (size_t n; len > 0; len -= n, from += n) {
        n = len < 32 ? len : 32;
        *at++ = (unsigned char)(n - 1);
        memcpy(at, from, n);
        at += n;
    }
    return at;
}

static inline unsigned char *lzf_put_copy(unsigned char *at, size_t distance, size_t len)
{
    size_t high = (distance - 1) >> 8;
    if (len - 2 < 7) {
        *at++ = (unsigned char)((len - 2) << 5 | high);
    } else {
        *at++ = (unsigned char)(7 << 5 | high);
        *at++ = (unsigned char)(len - 2 - 7);
    }
    *at++ = (unsigned char)(distance - 1);
    return at;
}

/* Returns the number of bytes written, at most a thirtieth more than `len`, and one. */
static inline size_t lzf_pack(const unsigned char *in, size_t len, unsigned char *out)
{
    size_t seen[1 << 12] = {0}; /* the last position of three bytes, plus one */
    size_t at = 0, literals = 0;
    unsigned char *to = out;
    while (at + 3 <= len) {
        size_t *slot = &seen[(in[at] * 31u + in[at + 1] * 1021u + in[at + 2] * 65599u) % (1 << 12)];
        size_t before = *slot - 1, most = len - at < 264 ? len - at : 264, n = 0;
        while (*slot && at - before <= 8192 && n < most && in[before + n] == in[at + n])
            n++;
        *slot = at + 1;
        if (n < 3) {
            at++;
            literals++;
            continue;
        }
        to = lzf_put_literals(to, in + at - literals, literals);
        to = lzf_put_copy(to, at - before, n);
        literals = 0;
        at += n;
    }
    literals += len - at;
    return (size_t)(lzf_put_literals(to, in + len - literals, literals) - out);
}
