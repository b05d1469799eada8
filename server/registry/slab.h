/* slab: memory for very many small objects of few sizes, as the entries of a million filters are: no header and no rounding
 * per object beyond multiples of 8 bytes, where malloc takes 8 to 24 bytes.
 *
 * Objects of one size share pages of 64 KiB. A page of which all objects have been freed gives its memory back to the system
 * (but for 4 KiB), and serves any size afterwards.
 *
 * Lifetime: slab_destroy() after all objects have been freed. Thread: any. */
#ifndef BLOOMERY_SLAB_H
#define BLOOMERY_SLAB_H

#include <stddef.h>
#include <stdint.h>

#define SLAB_MAX_SIZE 512 /* bytes of an object; of larger ones malloc's header is a small part */

struct slab;

struct slab *slab_create(void); /* NULL: no memory */
void slab_destroy(struct slab *slab);

/* Zeroed, aligned to 8 bytes; 1..SLAB_MAX_SIZE bytes. NULL: no memory. */
void *slab_alloc(struct slab *slab, size_t size);

/* Any object of any slab. */
void slab_free(void *object);

/* Bytes of the pages that are in use. */
uint64_t slab_bytes(struct slab *slab);

#endif
