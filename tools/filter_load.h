/* filter_load: a whole Filter.db in memory, and back to a file. Thread: one. */
#ifndef BLOOMERY_TOOL_FILTER_LOAD_H
#define BLOOMERY_TOOL_FILTER_LOAD_H

#include <stdbool.h>

#include "bloom_filter.h"
#include "filter_file.h"
#include "tool.h"

/* A filter of fixed size on its own. */
struct loaded_filter {
    struct bloom_pool *pool;
    struct bloom_class *class;
    struct bloom_filter *filter;
};

/* --variant: the layout of a file. */
#define FILTER_VARIANT_OPTION(text)                                           \
    {                                                                         \
        .name = "--variant", .value = "V", .words = "na me ka", .doc = (text) \
    }

/* Whether there is such a layout: TOOL_OK, also where --variant is not given; or TOOL_USAGE after a message. */
int filter_check_variant(const struct tool_args *args);

/* filter_file_open() of a file that the user names; `variant` is --variant, NULL where it was not given. Where the name
 * does not say the layout either, the reason says that --variant does. 0; otherwise as filter_file_open(). */
int filter_open(struct filter_file *file, const char *path, const char *variant, struct errbuf *err);

/* An empty one. `params` NULL: it takes any number of items. 0 or -errno with the reason; nothing to undo then. */
int loaded_filter_init(struct loaded_filter *loaded, const struct bloom_shape *shape, const struct bloom_params *params,
                       struct errbuf *err);
int loaded_filter_read(struct loaded_filter *loaded, const struct filter_file *file, const struct bloom_params *params,
                       struct errbuf *err);
void loaded_filter_deinit(struct loaded_filter *loaded); /* idempotent, of a zeroed one too */

/* The parameters that a file lacks: those that its bits suggest, and what --capacity and --error say instead. TOOL_OK;
 * or TOOL_FAILED or TOOL_USAGE after a message: unreadable, every bit is set, wrong options. */
int filter_decide_params(const struct tool_args *args, const char *path, const struct filter_file *file,
                         struct bloom_params *params_out, uint64_t *items_out);

/* The options for it. */
#define FILTER_PARAMS_OPTIONS                                                                                          \
    FILTER_VARIANT_OPTION(                                                                                             \
        "The layout of FILE: na (Cassandra 4.0 and later), me (Cassandra 3.x, ScyllaDB mc to mt) or ka (before "       \
        "Cassandra 3.0, ScyllaDB ka and la). By default it is taken from the SSTable version in FILE's name, as in "   \
        "nb-1-big-Filter.db or ks-cf-ka-1-Filter.db."),                                                                \
        {.name = "--capacity",                                                                                         \
         .value = "N",                                                                                                 \
         .doc = "How many items the filter may hold before adds are refused. By default the number of items its bits " \
                "suggest, or bits * ln 2 / k (the number it would be made for) if that is more."},                     \
    {                                                                                                                  \
        .name = "--error", .value = "P",                                                                               \
        .doc = "The false-positive rate to state for it, 0 < P < 1. By default the rate at its capacity."              \
    }

/* Writes words as a Filter.db, which appears when it is whole (new_file.h). `next` yields words from..from+n-1 in
 * memory order. 0 or -errno with the reason. */
typedef int filter_words_fn(void *ctx, uint64_t from, uint64_t n, _Atomic uint64_t *words);
int filter_write(const char *path, const struct bloom_shape *shape, bool replace, filter_words_fn *next, void *ctx,
                 struct errbuf *err);

#endif
