/* commands: the table of commands, and making them known to the engine, with all that COMMAND says of them.
 *
 * Thread: the engine's main thread, while the module is being loaded. */
#pragma once

#include <stdbool.h>

#include "engine.h"
#include "errbuf.h"

enum {
    CMD_WRITE = 1 << 0,
    CMD_READONLY = 1 << 1,
    CMD_DENYOOM = 1 << 2,
    CMD_FAST = 1 << 3,
    CAT_FAST = 1 << 4, /* its category in rights, which RedisBloom gives it whether it is fast or not */
    CAT_SLOW = 1 << 5,
    /* for the daemon */
    CMD_LARGE = 0,
    CMD_DEFERS = 0,
    CMD_BITS = 0,
    CMD_TURNS = 0,
};

struct command_arg; /* command_arg.h */

/* A row of bf_commands.def or cf_commands.def. */
struct command {
    const char *name; /* "bf.add" */
    engine_command_fn handler;
    int arity;
    unsigned flags;
    int first_key, last_key, key_step;
    const char *key_flags, *tips, *summary, *since;
    const char *complexity; /* NULL: O(1) */
    const struct command_arg *args;
    size_t nargs;
};

/* That of a handler. */
const struct command *command_of(engine_command_fn handler);

/* Registers all, under names that begin with the prefix of their kind of filter. False with a text: a name is taken. */
bool commands_register(struct engine_ctx *ctx, const char *prefix, const char *cuckoo_prefix, struct errbuf *err);
