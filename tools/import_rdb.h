/* import_rdb: the form of `bloomery import` that takes the filters out of an RDB file. */
#ifndef BLOOMERY_TOOL_IMPORT_RDB_H
#define BLOOMERY_TOOL_IMPORT_RDB_H

#include "tool.h"

/* With the option --rdb. An exit code. */
int import_rdb(const struct tool_args *args);

#endif
