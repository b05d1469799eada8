/* item_input: items from a file or the standard input, in batches: lines, items with their length before them, or items
 * that end with NUL.
 *
 * The forms: a line is an item without its newline, an empty one too; the last may lack the newline. With `nul` NULs
 * take the place of newlines. With `prefixed` each item follows its length, four bytes, big-endian. With `field` the
 * item is a field of the line; with `keys` it is the text of a partition key (cql_key.h), and becomes its bytes; a line
 * that ends with a carriage return is an error then, as no key would be found. Of other items it is a part;
 * item_input_close() warns of it with their number.
 *
 * Lifetime: caller's storage, open to close. Thread: one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_batch.h"
#include "tool.h"

#define ITEM_INPUT_MAX (512u << 20) /* bytes of a line or an item, as many as a server takes of one argument */

/* Zeroed: lines. */
struct item_form {
    bool nul, prefixed, keys;
    uint64_t field; /* 1, 2, ...; 0: the whole line */
    char separator;
};

struct item_input {
    int fd;
    struct item_form form;
    const char *command, *path; /* for messages */
    uint64_t size;              /* bytes of a regular file from where it stands; 0: unknown */
    bool can_rewind;
    int64_t start;
    uint64_t done, items; /* bytes and items so far */
    uint64_t returns;     /* lines that end with a carriage return */

    /* internal */
    char *buf;
    size_t buf_size, begin, end;
    bool at_end;
    unsigned char *key_bytes;   /* BLOOM_BATCH keys */
    struct bloom_secret secret; /* of --key-file; id 0: none */
    unsigned char keyed[BLOOM_BATCH][SIPHASH_BYTES];
};

struct item_batch {
    size_t n; /* 0: the end */
    struct bloom_item items[BLOOM_BATCH];
    struct bloom_item lines[BLOOM_BATCH]; /* the line, or the item with its length: as it was read */
};

typedef int item_take_fn(void *ctx, const struct item_batch *batch);

/* The options of all subcommands with items. */
#define ITEM_INPUT_OPTIONS                                                                                            \
    KEY_OPTIONS("The keys of a KEYED filter: items are hashed under one of them."),                                   \
        {.name = "-0", .doc = "Items end with a NUL, as from find -print0: they may contain newlines."},              \
        {.name = "--length-prefixed",                                                                                 \
         .doc = "Items are not lines: each follows its length, four bytes, big-endian. For items with newlines in "   \
                "them."},                                                                                             \
    {                                                                                                                 \
        .name = "--keys",                                                                                             \
        .doc = "Items are partition keys of CQL, as text:abc, int:5 or composite(int:5,text:abc); see bloomery find." \
    }

/* `path` NULL or "-": the standard input. The options are those of the row, and --field and --separator if it has them.
 * TOOL_OK, TOOL_USAGE or TOOL_FAILED after a message. */
int item_input_open(struct item_input *input, const char *path, const struct tool_args *args, bool has_field);

/* The same, with the form in place of options. */
int item_input_open_as(struct item_input *input, const char *path, const struct tool_args *args,
                       const struct item_form *form);
void item_input_close(struct item_input *input);

/* The next items; they live until the next call. TOOL_OK, or TOOL_FAILED after a message. */
int item_input_next(struct item_input *input, struct item_batch *batch);

/* Passes all items to `take`, NULL: they are only counted, with a line of progress for `what` is done. TOOL_OK, the
 * first other status that `take` returns, or TOOL_FAILED after a message. */
int item_input_each(struct item_input *input, const char *what, item_take_fn *take, void *ctx);

/* Whether the next call would wait for a pipe or a terminal; right after a batch that is not full. */
bool item_input_pauses(const struct item_input *input);

/* Goes back to where it was opened; only where can_rewind. */
int item_input_rewind(struct item_input *input);
