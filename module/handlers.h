/* handlers: the commands, as the rows of bf_commands.def and cf_commands.def name them.
 *
 * HANDLER(cmd_bf_x) { ... } is given a call with a valid number of words, and replies. It opens the key with
 * call_open(); the key is closed after it. */
#pragma once

#include "call.h"
#include "commands.h"
#include "engine.h"

#define HANDLER_DECLARED(function) int function(struct engine_ctx *ctx, struct engine_string **argv, int argc)

#define BF(name, ...) HANDLER_DECLARED(cmd_bf_##name);
#include "bf_commands.def"
#undef BF
#define CF(name, ...) HANDLER_DECLARED(cmd_cf_##name);
#include "cf_commands.def"
#undef CF
HANDLER_DECLARED(cmd_bf_apply);

/* BF.APPLY of a cuckoo filter's hashes (effects.h). False with the reason. */
bool cf_apply(struct call *call, struct errbuf *err);

#define HANDLER(function)                                                                \
    static inline __attribute__((always_inline)) void function##_run(struct call *call); \
    HANDLER_DECLARED(function)                                                           \
    {                                                                                    \
        static const struct command *row;                                                \
        if (!row)                                                                        \
            row = command_of(function);                                                  \
        return call_run(row, function##_run, ctx, argv, argc);                           \
    }                                                                                    \
    static inline void function##_run(struct call *call)

static inline __attribute__((always_inline)) int call_run(const struct command *row, void (*run)(struct call *call),
                                                          struct engine_ctx *ctx, struct engine_string **argv, int argc)
{
    struct call call = {ctx, argv, argc, row->name, row->flags & CMD_WRITE, NULL, NULL};
    if (row->arity >= 0 ? argc != row->arity : argc < -row->arity)
        return engine.WrongArity(ctx);
    run(&call);
    call_close(&call);
    return ENGINE_OK;
}
