/* memory: the engine's memory for filters, so that its maxmemory, INFO and MEMORY USAGE include them. Without memory
 * the engine's own calloc ends the process; here NULL is returned wherever the engine has the functions to find out.
 *
 * Thread: any. */
#ifndef BLOOMERY_MODULE_MEMORY_H
#define BLOOMERY_MODULE_MEMORY_H

#include "bloom_filter.h"
#include "engine.h"

extern const struct bloom_memory engine_memory;

void *memory_zeroed(size_t bytes);
void memory_release(void *memory); /* NULL is fine */

/* Whether the engine is within its maxmemory now that this many bytes have been allocated. The engine checks that only
 * before a command, and a filter may be larger than the remaining memory. For small amounts the engine's check is
 * enough. */
bool memory_within(struct engine_ctx *ctx, uint64_t bytes, struct errbuf *err);

/* Whether the words of a filter may have this many bytes (bf-max-filter-bytes). False with the numbers. */
bool memory_allowed(uint64_t bytes, struct errbuf *err);

/* Whether this machine could hold this many bytes at all: a bound for announced sizes. */
bool memory_possible(uint64_t bytes, struct errbuf *err);

#endif
