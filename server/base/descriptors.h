/* descriptors: the number of clients that the limit of open files (ulimit -n) allows.
 *
 * Clients must never take the last descriptor: saves, segments of the log and filter files need some. And a client
 * above the limit must get an error instead of waiting to be accepted. */
#ifndef BLOOMERY_DESCRIPTORS_H
#define BLOOMERY_DESCRIPTORS_H

#include <stdint.h>

/* The descriptors reserved for files, listening sockets and the loops of `nworkers` workers. */
int64_t descriptors_reserved(unsigned nworkers);

/* Raises the limit of the process to fit `clients` clients, if that is permitted; never lowers it. Returns the number
 * of clients that fit: `clients`, fewer, or 0. Thread: any. */
int64_t descriptors_for_clients(int64_t clients, unsigned nworkers);

#endif
