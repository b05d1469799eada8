/* cluster_slot: the slot of a name in a Redis cluster: CRC-16/XMODEM modulo 16384 of the name, or of the bytes between
 * its first '{' and the next '}' unless they are empty (Redis cluster specification).
 *
 * Thread: any. */
#ifndef BLOOMERY_CLUSTER_SLOT_H
#define BLOOMERY_CLUSTER_SLOT_H

#include <stddef.h>

#define CLUSTER_SLOTS 16384

unsigned cluster_slot(const char *name, size_t len);

#endif
