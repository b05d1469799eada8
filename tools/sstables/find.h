/* find_keys: the partition keys that `bloomery find` asks for, in blocks: those of the command line, or a file's lines,
 * of which there may be millions. Memory: some 100 MB.
 *
 * Lifetime: caller's storage, open to close. Thread: one. */
#pragma once

#include "buf.h"
#include "item_input.h"
#include "output.h"
#include "server_call.h"
#include "slice.h"
#include "table.h"

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

/* Reads the next block; n is 0 at the end and after an error. Returns as find_keys_open(). */
int find_keys_next(struct find_keys *keys);

/* find_report: the output of `bloomery find`: for each key of a block its possible places, or with --absent the keys
 * that are nowhere. Lifetime: caller's storage. Thread: one. */

#define FIND_COMMAND "find"

struct find_report {
    struct find_keys keys;
    bool *present;  /* of the block's keys; with --absent, otherwise NULL */
    bool name_keys; /* in lines */
    struct output out;
    uint64_t found;
    int status; /* TOOL_OK, or another one: some could not be asked, so no key is known to be absent */
};

/* Where a key may be: an SSTable of a directory, or a filter of a server. */
struct find_place {
    struct slice shown;
    const struct sstable_name *sstable; /* NULL: of a server */
};

/* A key of the block may be there; `filter` is the reason: "may hold it", "missing", "unreadable". */
void find_report_key(struct find_report *report, size_t key, const struct find_place *place, const char *filter);

/* All keys of the block may be there. */
void find_report_all(struct find_report *report, const struct find_place *place, const char *filter);

/* The end of a block, for --absent. */
void find_report_absent(struct find_report *report);

/* find_server: `bloomery find` against a daemon: BF.FIND with a few hundred keys at a time, some of them under way.
 * Lifetime: caller's storage, zeroed, to find_server_close(). Thread: one. */

struct find_server {
    struct server_call call;
    const char *names;   /* BF.FIND's pattern */
    struct buf reported; /* names of filters that cannot be asked and have been reported, each with a NUL */
    size_t nreported;
};

/* Reads the address, with the password hidden, and connects. These return TOOL_OK, or another code after a message. */
int find_server_open(struct find_server *server, const struct tool_args *args, char *url);

/* Asks for the keys of the report's block. Filters that cannot be asked become messages, and the report's status. */
int find_server_ask(struct find_server *server, struct find_report *report);

void find_server_close(struct find_server *server); /* idempotent */
