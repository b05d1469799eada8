#include "cluster_slot.h"

#include <stdint.h>
#include <string.h>

static uint16_t crc16(const char *bytes, size_t len)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < len; i++) {
        crc = (uint16_t)(crc ^ (unsigned char)bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0));
    }
    return crc;
}

unsigned cluster_slot(const char *name, size_t len)
{
    const char *open = len ? memchr(name, '{', len) : NULL;
    const char *close = open ? memchr(open + 1, '}', (size_t)(name + len - open - 1)) : NULL;
    if (close && close > open + 1) {
        name = open + 1;
        len = (size_t)(close - name);
    }
    return crc16(name, len) % CLUSTER_SLOTS;
}
