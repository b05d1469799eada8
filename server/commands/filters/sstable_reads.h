/* sstable_reads: has the filter of an SSTable (sstables.h) read before a query, and refuses changes to it.
 *
 * Thread: the worker's, in an RCU read section. */
#ifndef BLOOMERY_SSTABLE_READS_H
#define BLOOMERY_SSTABLE_READS_H

#include <stdbool.h>

#include "command.h"

/* Makes the connection wait until the filter's file has been read; then the handler is called again. After an error
 * reply it does not. `ctx` NULL: it cannot wait, which is an error. */
void sstable_read_first(struct command_ctx *ctx, struct reply *reply, struct slice name);

/* Whether a word of the command that it would change names an SSTable's filter; *name_out is that word. */
bool sstable_is_changed(const struct server *server, const struct command *command, const struct resp_command *args,
                        struct slice *name_out);

/* Whether a new filter with this key in the registry would hide an SSTable's. */
bool sstable_is_hidden_by(const struct server *server, struct slice key);

/* Replies that argument 1 has no dump, if it is an SSTable's filter. */
bool sstable_has_no_dump(struct command_ctx *ctx);

void reply_read_only(struct reply *reply, struct slice name);

#endif
