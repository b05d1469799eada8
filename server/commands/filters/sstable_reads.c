#include "sstable_reads.h"

#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "server.h"
#include "sstables.h"

#define SHOWN 128 /* bytes of a name that an error repeats */

struct reading {
    size_t len;
    char name[];
};

static void read_file(struct command_job *job)
{
    const struct reading *reading = job->data;
    sstables_read(job->server->sstables, (struct slice){reading->name, reading->len});
}

void sstable_read_first(struct command_ctx *ctx, struct reply *reply, struct slice name)
{
    if (!ctx) { /* in the window, which the name entered before the file was there */
        reply_error(reply, "TRYAGAIN the SSTable's filter has not been read yet");
        return;
    }
    struct reading *reading = malloc(sizeof(*reading) + name.len);
    if (!reading) {
        reply_error(reply, "ERR out of memory");
        return;
    }
    reading->len = name.len;
    if (name.len)
        memcpy(reading->name, name.ptr, name.len);
    (void)command_do_first(ctx, read_file, reading);
}

bool sstable_is_hidden_by(const struct server *server, struct slice key)
{
    return server->sstables && !registry_lookup(server->registry, key) && sstables_find(server->sstables, key);
}

bool sstable_is_changed(const struct server *server, const struct command *command, const struct resp_command *args,
                        struct slice *name_out)
{
    if (!server->sstables || !(command->flags & CMD_WRITE))
        return false;
    struct command_keys keys = command_keys(command, args->argc);
    for (size_t i = keys.first; i < keys.end; i += keys.step) {
        *name_out = resp_arg(args, i);
        if (sstable_is_hidden_by(server, *name_out))
            return true;
    }
    return false;
}

bool sstable_has_no_dump(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 1);
    if (!sstable_is_hidden_by(ctx->server, name))
        return false;
    reply_errorf(ctx->reply,
                 "ERR '%.*s' is the filter of an SSTable, which has no dump: import its file with "
                 "BF.IMPORT",
                 (int)(name.len < SHOWN ? name.len : SHOWN), name.ptr);
    return true;
}

void reply_read_only(struct reply *reply, struct slice name)
{
    reply_errorf(reply, "READONLY '%.*s' is the filter of an SSTable, which is read-only",
                 (int)(name.len < SHOWN ? name.len : SHOWN), name.ptr);
}
