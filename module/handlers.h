/* handlers: the commands, as the table of bf_commands.def names them. Each gets its words from the engine and replies.
 */
#ifndef BLOOMERY_MODULE_HANDLERS_H
#define BLOOMERY_MODULE_HANDLERS_H

#include "call.h"
#include "engine.h"

#define HANDLER(name) int name(struct engine_ctx *ctx, struct engine_string **argv, int argc)

HANDLER(cmd_bf_reserve);
HANDLER(cmd_bf_add);
HANDLER(cmd_bf_madd);
HANDLER(cmd_bf_exists);
HANDLER(cmd_bf_mexists);
HANDLER(cmd_bf_insert);
HANDLER(cmd_bf_query);
HANDLER(cmd_bf_info);
HANDLER(cmd_bf_card);
HANDLER(cmd_bf_debug);
HANDLER(cmd_bf_plan);
HANDLER(cmd_bf_falsepositive);
HANDLER(cmd_bf_scandump);
HANDLER(cmd_bf_loadchunk);
HANDLER(cmd_bf_merge);
HANDLER(cmd_bf_clear);
HANDLER(cmd_bf_apply);

#endif
