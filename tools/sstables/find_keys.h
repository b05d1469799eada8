/* find_keys: the partition keys that `bloomery find` asks for, in blocks: those of the command line, or a file's lines,
 * of which there may be millions. Memory: some 100 MB.
 *
 * Lifetime: caller's storage, open to close. Thread: one. */
#ifndef BLOOMERY_TOOL_FIND_KEYS_H
#define BLOOMERY_TOOL_FIND_KEYS_H

#include "buf.h"
#include "item_input.h"
#include "slice.h"

struct find_keys {
    size_t n;          /* of the block */
    uint64_t *h1, *h2; /* the halves of their hashes */
    /* internal */
    char **arguments; /* that have not been taken yet */
    unsigned narguments;
    bool from_file;
    struct item_input input;
    struct buf text; /* of the block's keys */
    size_t *ends;    /* of each key's text */
};

/* Of the option --keys-from if it is given, or else the positional arguments from 1 on. TOOL_OK, TOOL_USAGE or
 * TOOL_FAILED after a message; nothing to close then. */
int find_keys_open(struct find_keys *keys, const struct tool_args *args);
void find_keys_close(struct find_keys *keys);

/* The next block; n 0: the end. As find_keys_open(); after an error there is no block. */
int find_keys_next(struct find_keys *keys);

/* As it was given; valid until the next block. */
struct slice find_keys_text(const struct find_keys *keys, size_t i);

#endif
