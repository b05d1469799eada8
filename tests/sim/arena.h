/* arena: memory at one address that a process and its children share. The disk and the model live there and outlast a
 * killed daemon. The functions are as the C library's. A child that is killed within one leaves the arena unusable, so
 * children are killed only at points of the schedule. A full arena ends the process.
 *
 * Thread: one at a time. */
#pragma once

#include <stddef.h>

void arena_create(void);
void arena_empty(void); /* frees all memory */

void *arena_malloc(size_t size);
void *arena_calloc(size_t n, size_t size);
void *arena_realloc(void *old, size_t size);
void arena_free(void *memory);
char *arena_strdup(const char *text);
