/* filter_load: reads a Filter.db into memory, and writes one. Thread: one. */
#pragma once

#include <stdbool.h>

#include "bloom_filter.h"
#include "bloom_size.h"
#include "filterdb.h"
#include "tool.h"

/* --variant: the layout of a file. */
#define FILTER_VARIANT_OPTION(text)                      \
    {                                                    \
        .name = "--variant", .value = "V", .doc = (text) \
    }

/* Checks --variant: TOOL_OK, also without the option, or TOOL_USAGE after a message. */
int filter_check_variant(const struct tool_args *args);

/* Opens a file named by the user; `variant` is --variant, or NULL. If the file's name has no layout either, the reason
 * mentions --variant. Returns as filter_file_open(). */
int filter_open(struct filter_file *file, const char *path, const char *variant, struct errbuf *err);

/* Reads an open file into memory. `params` NULL: the filter takes any number of items. 0 or -errno with the reason. */
int loaded_filter_read(struct bloom_alone *loaded, const struct filter_file *file, const struct bloom_params *params,
                       struct errbuf *err);

/* Loads a file with the options FILTER_PARAMS_OPTIONS: its parameters are derived from its bits, unless --capacity and
 * --error set them. TOOL_OK; or TOOL_FAILED or TOOL_USAGE after a message: unreadable, every bit is set, wrong
 * options. */
int loaded_filter_open(struct bloom_alone *loaded, const struct tool_args *args, const char *path,
                       struct bloom_params *params_out, struct bloom_shape *shape_out);

#define FILTER_PARAMS_OPTIONS                                                                                     \
    FILTER_VARIANT_OPTION(                                                                                        \
        "The layout of FILE: na (Cassandra 4.0 and later), me (Cassandra 3.x, ScyllaDB mc to mt) or ka (before "  \
        "Cassandra 3.0, ScyllaDB ka and la). The default is that of the SSTable version in FILE's name, as in "   \
        "nb-1-big-Filter.db or ks-cf-ka-1-Filter.db. A file of the layout blocked says so itself."),              \
        {.name = "--capacity",                                                                                    \
         .value = "N",                                                                                            \
         .doc = "The number of items after which adds are refused. By default the number of items that the bits " \
                "suggest, or bits * ln 2 / k (the number it would be made for) if that is more."},                \
    {                                                                                                             \
        .name = "--error", .value = "P",                                                                          \
        .doc = "The stated false-positive rate of the filter, 0 < P < 1. By default the rate at its capacity."    \
    }

/* Writes words as a Filter.db, which appears when it is whole (new_file.h). `next` yields words from..from+n-1 in
 * memory order. `items`: those in the filter, which the file of LAYOUT blocked states. 0 or -errno with the reason. */
typedef int filter_words_fn(void *ctx, uint64_t from, uint64_t n, _Atomic uint64_t *words);
int filter_write(const char *path, const struct bloom_shape *shape, uint64_t items, bool replace, filter_words_fn *next,
                 void *ctx, struct errbuf *err);

/* The same to an open file, without its end. 0 or -errno. */
int filter_write_words(int fd, const struct bloom_shape *shape, uint64_t items, filter_words_fn *next, void *ctx);

int filter_next_words(void *filter, uint64_t from, uint64_t n, _Atomic uint64_t *words); /* `next` of a filter */

/* bloom_size_cassandra(), with the reason when it is not BLOOM_SIZE_OK. */
enum bloom_size_status filter_size_cassandra(uint64_t keys, double rate, struct bloom_size *size_out,
                                             struct errbuf *err);

/* A warning for a bloom_filter_fp_chance at which ScyllaDB ends when it flushes a table (scylladb#31207, seen in
 * November 2026); NULL: the rate is none. */
const char *filter_rate_warning(double rate);
