/* machine: the memory limit of the process: the machine's memory, or the smaller limit of a control group (a container,
 * a service with MemoryMax).
 *
 * Limits of a version 2 hierarchy are in memory.max, of version 1 in memory.limit_in_bytes (cgroups(7)); those of
 * parents hold as well. */
#pragma once

#include <stdint.h>

/* Bytes, more than 0. Reads some small files of the kernel: not on a loop. Thread: any. */
uint64_t machine_memory(void);

/* Reads other files instead of /proc/self/cgroup and /sys/fs/cgroup, for a machine of this size. */
uint64_t machine_memory_of(const char *groups, const char *root, uint64_t physical);

/* descriptors: the number of clients that the limit of open files (ulimit -n) allows.
 *
 * Clients must never take the last descriptor: saves, segments of the log and filter files need some. And a client
 * above the limit must get an error instead of waiting to be accepted. */

/* The descriptors reserved for files, listening sockets and the loops of `nworkers` workers. */
int64_t descriptors_reserved(unsigned nworkers);

/* Raises the limit of the process to fit `clients` clients, if that is permitted; never lowers it. Returns the number
 * of clients that fit: `clients`, fewer, or 0. Thread: any. */
int64_t descriptors_for_clients(int64_t clients, unsigned nworkers);
