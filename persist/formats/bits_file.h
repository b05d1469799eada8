/* bits_file: a layer in RedisBloom's layout as a self-contained file: a header and the bits (docs/FORMAT.md, section
 * 15). It opens no file. The bits are the first bytes of the layer's words as they are in memory.
 *
 * Thread: any. */
#ifndef BLOOMERY_BITS_FILE_H
#define BLOOMERY_BITS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "bloom_params.h"
#include "errbuf.h"

#define BITS_FILE_HEADER_BYTES 72

/* A layer in the form for other programs: such a file, or a Filter.db for a layout of Cassandra's. Its size; its
 * header, whose length is returned. The words, or the beginning of them, follow the header. `items` is the number of
 * items in the layer. */
uint64_t export_file_bytes(const struct bloom_shape *shape);
size_t export_file_header(const struct bloom_params *params, const struct bloom_shape *shape, uint64_t items,
                          unsigned char out[BITS_FILE_HEADER_BYTES]);

/* Reads the header of a file at `bytes`, which has `size` bytes or more files behind it. Verifies every number;
 * the parameters are those of a filter whose first layer this is, and export_file_bytes() of the shape is not above
 * `size`. 0, or BLOOM_REFUSED with the reason. */
int bits_file_decode_header(const unsigned char *bytes, uint64_t size, struct bloom_params *params_out,
                            struct bloom_shape *shape_out, uint64_t *items_out, struct errbuf *err);

#endif
