/* filter_file: a Filter.db file of another program, opened for reading: its shape, its state, its words, or single
 * items without reading the rest.
 *
 * A file is refused unless its length is exactly what its header announces. It may be replaced, cut or deleted while it
 * is open: reads beyond its new end are errors (FS_ENDS), never a signal, since nothing is mapped.
 *
 * Lifetime: caller's storage, open to close. Thread: any, on distinct objects. */
#ifndef BLOOMERY_FILTER_FILE_H
#define BLOOMERY_FILTER_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "bloom_state.h"
#include "errbuf.h"
#include "fsops.h"

struct filter_file {
    const struct fsops *fs;
    int fd; /* -1: not open */
    struct bloom_shape shape;
    uint64_t key; /* id of the key of a KEYED filter, as its name says; 0: none. An adopted file has none */
};

/* Opens `path`. `variant_text` is "na", "me", "ka", or NULL: then the name of the file says it. 0; or
 * FILTERDB_MALFORMED or -errno, with the reason (without the path) in `err`: nothing is open then. */
int filter_file_open(struct filter_file *file, const struct fsops *fs, const char *path, const char *variant_text,
                     struct errbuf *err);

/* The same for a descriptor that is open already, and is the filter_file's from now on, after an error too. */
int filter_file_adopt(struct filter_file *file, const struct fsops *fs, int fd, enum bloom_variant variant,
                      struct errbuf *err);
void filter_file_close(struct filter_file *file); /* idempotent */

/* Whether the file may have the item: 1 or 0, or -errno. Reads a byte for each bit until one is not set. */
int filter_file_query(const struct filter_file *file, struct bloom_hash hash);

/* Reads words `from` to `from` + n - 1 into words[0..n-1], which are zero before. 0 or -errno. */
int filter_file_read(const struct filter_file *file, uint64_t from, uint64_t n, _Atomic uint64_t *words);

/* Counts the bits. `progress` (may be NULL) is told how many words are done. 0 or -errno. */
int filter_file_state(const struct filter_file *file, void (*progress)(void *ctx, uint64_t words), void *ctx,
                      struct bloom_state *state_out);

/* The parameters that the file lacks, for a filter of fixed size with these bits. The capacity is the number of items
 * estimated from its bits, or bits * ln 2 / k (the usual capacity) if that is more; the rate is the rate at its
 * capacity. */
void filter_file_params(const struct bloom_shape *shape, const struct bloom_state *state,
                        struct bloom_params *params_out);

/* Its rate with this capacity, in (0, 1). */
double filter_file_rate(const struct bloom_shape *shape, uint64_t capacity);

#endif
