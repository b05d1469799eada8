/* descriptors: for how many clients the process may have sockets (ulimit -n).
 *
 * Clients must never take the last descriptor: a save, a segment of the log and a file of filters need some, too, and who
 * is one too many is to be told so instead of waiting to be accepted. */
#ifndef BLOOMERY_DESCRIPTORS_H
#define BLOOMERY_DESCRIPTORS_H

#include <stdint.h>

/* Beside those of clients, with so many workers: files, listening sockets, each loop's own. */
int64_t descriptors_reserved(unsigned nworkers);

/* Raises the limit of the process so that there are enough for so many clients, if it may be raised. Returns how many
 * clients there can be: `clients`, or fewer, or none. Never lowers it. Thread: any. */
int64_t descriptors_for_clients(int64_t clients, unsigned nworkers);

#endif
