/* Slicing by 16: tables[n][b] is the contribution of a byte b that n more bytes follow, so sixteen bytes are sixteen
 * independent look-ups. Byte by byte each look-up would wait for the one before it. */
#include "crc64.h"

#include <pthread.h>

#include "bytes.h"

#define SLICES     16
#define POLYNOMIAL UINT64_C(0x95ac9329ac4bc9b5) /* with its bits reversed */

static uint64_t tables[SLICES][256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (unsigned b = 0; b < 256; b++) {
        uint64_t crc = b;

        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) ? POLYNOMIAL : 0);
        tables[0][b] = crc;
    }
    for (unsigned n = 1; n < SLICES; n++)
        for (unsigned b = 0; b < 256; b++)
            tables[n][b] = tables[n - 1][b] >> 8 ^ tables[0][tables[n - 1][b] & 0xff];
}

/* The eight bytes of `word`, of which the first is followed by `behind` more bytes. */
static inline uint64_t slice(uint64_t word, unsigned behind)
{
    uint64_t crc = 0;

#pragma GCC unroll 8
    for (unsigned i = 0; i < 8; i++)
        crc ^= tables[behind - i][word >> (8 * i) & 0xff];
    return crc;
}

uint64_t crc64(uint64_t crc, const void *data, size_t len)
{
    const unsigned char *at = data;

    pthread_once(&tables_made, make_tables);
    for (; len >= 16; at += 16, len -= 16)
        crc = slice(le64_get(at) ^ crc, 15) ^ slice(le64_get(at + 8), 7);
    for (; len > 0; at++, len--)
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xff];
    return crc;
}
