/* handlers: the functions of the rows of the command table. Each runs one call: it reads the arguments, whose number
 * fits the row's arity, and writes one reply, or defers (command_defer()). Thread: the worker's, an online reader. */
#pragma once

struct command_ctx;
struct reply;

#define HANDLER(name)                         void name(struct command_ctx *ctx);
#define COMMAND(name, ...)                    HANDLER(cmd_##name)
#define COMMAND_BY(name, handler, ...)        HANDLER(handler)
#define BF(name, ...)                         HANDLER(cmd_bf_##name)
#define CF(name, ...)                         HANDLER(cmd_cf_##name)
#define SUB(container, name, ...)             HANDLER(cmd_##container##_##name)
#define SUB_BY(container, name, handler, ...) HANDLER(handler)
#define CONTAINER(...)
#define ROWS_OF(container)
#define END_OF_ROWS
#define HELP(...)

#include "commands.def"
#include "subcommands.def"
HANDLER(cmd_help) /* of a command with subcommands, out of their rows */

#undef HANDLER
#undef COMMAND
#undef COMMAND_BY
#undef BF
#undef CF
#undef SUB
#undef SUB_BY
#undef CONTAINER
#undef ROWS_OF
#undef END_OF_ROWS
#undef HELP

/* The reply of MODULE LIST; also a part of HELLO. */
void reply_modules(struct reply *reply);
