/* commands: makes the commands known to the engine, with all that COMMAND says of them.
 *
 * Thread: the engine's main thread, while the module is being loaded. */
#ifndef BLOOMERY_MODULE_COMMANDS_H
#define BLOOMERY_MODULE_COMMANDS_H

#include <stdbool.h>

#include "engine.h"
#include "errbuf.h"

/* All of them, under names that begin with the prefix. False with a text: a name is taken. */
bool commands_register(struct engine_ctx *ctx, const char *prefix, struct errbuf *err);

#endif
