/* slab: memory for very many small objects of few sizes, as the entries of a million filters. An object has no header
 * and is rounded up to 8 bytes only; malloc takes 8 to 24 bytes more.
 *
 * Objects of one size share pages of 64 KiB. A page without objects returns its memory to the system (except 4 KiB),
 * and serves any size afterwards.
 *
 * Lifetime: slab_destroy() after all objects have been freed. Thread: any. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SLAB_MAX_SIZE 512 /* bytes of an object; for larger ones malloc's header is a small part */

struct slab;

struct slab *slab_create(void); /* NULL: no memory */
void slab_destroy(struct slab *slab);

/* Zeroed, aligned to 8 bytes; 1..SLAB_MAX_SIZE bytes. NULL: no memory. */
void *slab_alloc(struct slab *slab, size_t size);

/* Frees any object of any slab. */
void slab_free(void *object);

/* Larger objects: malloc() with a header; the slab counts the bytes. */
void *slab_alloc_large(struct slab *slab, size_t size);
void slab_free_large(void *object);

/* Bytes of the pages that are in use and of large objects. */
uint64_t slab_bytes(const struct slab *slab);
