/* pieces: reads a file from its beginning to its end, a piece at a time, and hashes it. Thread: one. */
#ifndef BLOOMERY_TOOL_PIECES_H
#define BLOOMERY_TOOL_PIECES_H

#include <stddef.h>
#include <stdint.h>

/* Takes the `n` bytes at offset `at`. 0, or -errno, which ends the reading. */
typedef int piece_fn(void *ctx, const unsigned char *bytes, size_t n, uint64_t at);

/* `size_out` and `xxh3_out` get the size and the XXH3 hash of the whole file. 0, or -errno of the file or of `take`. */
int file_pieces(const char *path, piece_fn *take, void *ctx, uint64_t *size_out, uint64_t *xxh3_out);

#endif
