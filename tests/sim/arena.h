/* arena: memory that a process and its children share, at one address: the disk and the model live there, and outlast
 * the killed daemon. Allocations as of the C library; a child that is killed within one leaves the arena unusable, so
 * it is killed only at points of the schedule. Ends the process when it is full.
 *
 * Thread: one at a time. */
#ifndef BLOOMERY_SIM_ARENA_H
#define BLOOMERY_SIM_ARENA_H

#include <stddef.h>

void arena_create(void);
void arena_empty(void); /* all of it is free again */

void *arena_malloc(size_t size);
void *arena_calloc(size_t n, size_t size);
void *arena_realloc(void *old, size_t size);
void arena_free(void *memory);
char *arena_strdup(const char *text);

#endif
