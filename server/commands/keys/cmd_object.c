/* OBJECT: the answers of Redis for the value of a module. */
#include "clock.h"
#include "command.h"
#include "handlers.h"
#include "server.h"

/* Whether the filter exists; false after a null reply. */
static bool object_is_there(struct command_ctx *ctx)
{
    bool there = registry_lookup(ctx->server->registry, command_arg(ctx, 2)) != NULL;
    if (!there)
        reply_null(ctx->reply);
    return there;
}

void cmd_object_encoding(struct command_ctx *ctx)
{
    if (object_is_there(ctx))
        reply_bulk(ctx->reply, "raw", 3);
}

void cmd_object_refcount(struct command_ctx *ctx)
{
    if (object_is_there(ctx))
        reply_integer(ctx->reply, 1);
}

/* In steps of 65 s, as time of use is noted. */
void cmd_object_idletime(struct command_ctx *ctx)
{
    struct entry *entry = registry_lookup(ctx->server->registry, command_arg(ctx, 2));
    if (entry)
        reply_integer(ctx->reply, entry_idle_ms(entry, clock_ms()) / 1000);
    else
        reply_null(ctx->reply);
}

/* Redis replies this under every policy of maxmemory but its LFU ones, which do not exist here. */
void cmd_object_freq(struct command_ctx *ctx)
{
    if (object_is_there(ctx))
        reply_error(ctx->reply,
                    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that "
                    "when switching between policies at runtime LRU and LFU data will take some time to adjust.");
}

void cmd_memory_usage(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 2);
    int64_t samples;

    for (size_t i = 3; i < command_argc(ctx); i += 2) { /* accepted without effect: no samples are taken */
        if (!slice_is(command_arg(ctx, i), "SAMPLES") || i + 1 == command_argc(ctx)) {
            reply_error(ctx->reply, "ERR syntax error");
            return;
        }
        if (!slice_to_int64(command_arg(ctx, i + 1), &samples)) {
            reply_error(ctx->reply, "ERR value is not an integer or out of range");
            return;
        }
        if (samples < 0) {
            reply_error(ctx->reply, "ERR syntax error");
            return;
        }
    }
    struct entry *entry = registry_lookup(ctx->server->registry, name);
    if (entry == NULL) {
        reply_null(ctx->reply);
        return;
    }
    const struct bloom_filter *filter = entry_shape(entry);
    uint64_t bytes = sizeof(*entry) + ((name.len + 7) & ~(uint64_t)7) + sizeof(uint64_t) +
                     REGISTRY_NAME_BYTES; /* its slot in the table and its node in the index */
    reply_integer(ctx->reply, (int64_t)(bytes + (filter == NULL ? 0 : bloom_filter_memory(filter))));
}
