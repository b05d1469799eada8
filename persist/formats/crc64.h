/* crc64: the CRC-64 that Redis puts behind RDB files and the results of DUMP (Jones's polynomial 0xad93d23594c935a9,
 * reflected, beginning with 0, nothing added at the end).
 *
 * Thread: any. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Goes on with `crc`, 0 at the beginning: crc64(crc64(0, a), b) is that of a and b together. */
uint64_t crc64(uint64_t crc, const void *data, size_t len);
