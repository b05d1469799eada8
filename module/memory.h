/* memory: the engine's memory for filters, so that its maxmemory, INFO and MEMORY USAGE include them. Without memory
 * the engine's own calloc ends the process; here NULL is returned wherever the engine has the functions to find out.
 *
 * Thread: any. */
#pragma once

#include "bloom_filter.h"
#include "engine.h"

extern const struct bloom_memory engine_memory;

void *memory_zeroed(size_t bytes);
void memory_release(void *memory); /* NULL is fine */

/* Whether the engine carries out what a primary or its own log has accepted, which no limit may refuse. */
bool memory_obeys(void);

/* Whether a client may make a filter whose words have this many bytes, of which `more_bytes` are new: the limits of
 * bf-max-filter-bytes and maxmemory. False with the numbers. */
bool memory_allowed(uint64_t filter_bytes, uint64_t more_bytes, struct errbuf *err);

/* Whether this machine could hold this many bytes at all: a bound for announced sizes. */
bool memory_possible(uint64_t bytes, struct errbuf *err);

/* Whether a value with this many bytes of words, of which `more_bytes` are new, may be read: within the limits from a
 * client's RESTORE; from a file, a log or a primary, if this machine could hold it, with a warning above
 * bf-max-filter-bytes. False with the numbers. */
bool memory_may_load(uint64_t filter_bytes, uint64_t more_bytes, struct errbuf *err);
