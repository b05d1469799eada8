/* bti_files: writes Partitions.db, Rows.db, Data.db and CompressionInfo.db of an SSTable whose index is a trie
 * (docs/FORMAT.md, section 20). The trie's shape and the forms of its nodes are random. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rng.h"

struct bti_bytes {
    unsigned char *bytes; /* to be freed */
    size_t len, size;
};

struct bti_files {
    struct bti_bytes partitions, rows, data, info; /* data: as stored. No info: it is not compressed */
};

struct bti_key {
    const unsigned char *bytes;
    size_t len;
    int hash; /* the lowest byte of the second half of its hash; -1: it is not in the trie */
};

/* `compressor`: as in CompressionInfo.db, or NULL. Chunks of the data have `chunk_length` bytes before compression. */
void bti_files_make(struct bti_files *out, struct rng *rng, const struct bti_key *keys, size_t n,
                    const char *compressor, size_t chunk_length);
void bti_files_free(struct bti_files *files);
