/* bf_host: connects the library bf/, the meaning of BF.*, to this daemon's arguments, settings and replies.
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>

#include "bf_out.h"
#include "bf_request.h"
#include "bloom_filter.h"
#include "command.h"
#include "reply.h"
#include "server.h"
#include "slice.h"

struct server;

/* Whether BF.* answers as valkey-bloom does (bf-compatibility). */
static inline bool bf_is_valkey(const struct server *server)
{
    return server_config(server)->filters.compatibility == BF_CONTRACT_VALKEY;
}

/* The words of a call; valid as long as its arguments. Those of a job are under RedisBloom's contract. */
struct bf_args bf_args_of(const struct command_ctx *ctx);
struct bf_args bf_args_of_job(const struct job_args *args, const char *name);

/* TYPE's answer for an entry, or, if it is NULL, for an SSTable's filter. */
const char *bf_type_name(struct entry *entry);

/* The settings bf-initial-size, bf-error-rate and bf-expansion-factor, and the time. */
struct bf_defaults bf_defaults_of(const struct server *server);

/* Writes into `reply`, which must outlive it. */
struct bf_out bf_out_of(struct reply *reply);

/* ---- filters of SSTables: read before a query, never changed ---- */

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

/* ---- dead parts of windows ---- */

/* After a use of the window `filter`, which had this name: has its dead parts emptied, if there are large ones that no
 * thread empties yet. Small ones are emptied by the add that needs their place. */
void forget_tidy(struct server *server, struct slice name, struct bloom_filter *filter);
