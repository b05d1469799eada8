/* key_option: --key-file and --key-id, by which a subcommand hashes items as a KEYED filter does (bloom_key.h). Thread:
 * one. */
#ifndef BLOOMERY_TOOL_KEY_OPTION_H
#define BLOOMERY_TOOL_KEY_OPTION_H

#include "bloom_key.h"
#include "tool.h"

#define KEY_OPTIONS(of_filter)                                                                                  \
    {.name = "--key-file", .value = "FILE", .doc = (of_filter)},                                                \
    {                                                                                                           \
        .name = "--key-id", .value = "ID", .doc = "The key of --key-file, by its id; the default is the first." \
    }

/* The key that the options choose; id 0: none. `needed`: the id that the name of `file` requires; 0: none. TOOL_OK, or
 * TOOL_USAGE or TOOL_FAILED after a message. The caller erases it. */
int key_option_read(const struct tool_args *args, uint64_t needed, const char *file, struct bloom_secret *out);

#endif
