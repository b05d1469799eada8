/* call: one command on one filter, as the engine hands it over.
 *
 * Thread: the engine's main thread. Lifetime: one call; the words are borrowed. */
#pragma once

#include <stdbool.h>

#include "bf_out.h"
#include "bf_request.h"
#include "engine.h"
#include "errbuf.h"
#include "slice.h"
#include "value.h"

struct call {
    struct engine_ctx *ctx;
    struct engine_string **argv;
    int argc;
    const char *name; /* "bf.insert", in errors about the number of words */
    bool writes;
    struct engine_key *key; /* argument 1, opened; NULL: not opened, or there is none */
    struct value *value;    /* NULL: none */
};

static inline struct slice call_arg(const struct call *call, size_t i)
{
    struct slice arg;
    arg.ptr = engine.StringPtrLen(call->argv[i], &arg.len);
    return arg;
}

struct bf_args call_args(const struct call *call);

/* Writes to the client in the version of the protocol that it has chosen. */
struct bf_out call_out(struct call *call);

/* Opens the filter of argument 1, for writing if the command writes. True: call->value is the filter, or NULL. False
 * after an error reply: the key holds another value, or a half-loaded filter. */
bool call_open(struct call *call);

/* False, after an error reply, if the filter has a key that is not here. */
bool call_has_its_key(struct call *call);

/* call_open() for a command that hashes items: the key of a KEYED filter must be here, too. */
bool call_open_to_ask(struct call *call);

/* call_open_to_ask() for questions about items, of which a cuckoo filter has none: for them it is missing. */
bool call_open_to_query(struct call *call);

/* call_open() for a command that deals with half-loaded filters, too. */
bool call_open_any(struct call *call);

/* call_open(), and an error reply if there is no filter. */
bool call_open_existing(struct call *call);

/* Opens the cuckoo filter of argument 1, which is then call->value, without a reply. */
enum call_found { CALL_THERE, CALL_NONE, CALL_OTHER };
enum call_found call_find_cuckoo(struct call *call);

/* The same. True: call->value is the filter, or NULL. False after an error reply: the key holds another value. */
bool call_open_cuckoo(struct call *call);

/* call_open_cuckoo(), and an error reply if there is no filter. */
bool call_open_existing_cuckoo(struct call *call);

static inline void call_close(struct call *call)
{
    if (call->key)
        engine.CloseKey(call->key);
}

/* Whether the command comes from a primary, the engine's own log, or a migration. Those are not refused here. */
bool call_must_obey(const struct call *call);

/* The defaults of a filter that the command creates. With take-over, a log or a primary that names no layout means
 * RedisBloom's. */
struct bf_defaults call_defaults(const struct call *call);

/* Stores a value under argument 1, which is open for writing, and frees the old value, NULL for none. If both are the
 * same value, it is kept: its type may have changed, because it is complete now. The time to live stays. */
void call_put(struct call *call, struct value *value);

/* Replies to a failed creation, with the status of value_create() or value_create_shaped(). False. */
bool call_not_made(struct call *call, int status, const struct errbuf *err);

/* False, after an error reply, if the engine is above its maxmemory and the command is a client's: for commands that a
 * migration, which the engine may not refuse, uses, too. */
bool call_has_memory(struct call *call);

/* value_create_shaped() for a command: limits hold, unless it must be obeyed. NULL after an error reply. */
struct value *call_make(struct call *call, const struct bloom_params *params, const struct bloom_shape *shapes,
                        unsigned nlayers);

/* An error reply. An end of line in it, which a name may have, becomes a space. False, as are those of others. */
bool call_error(struct call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline bool call_refuse(const struct call *call, const char *text) /* text has no end of line */
{
    engine.ReplyWithError(call->ctx, text);
    return false;
}

/* A reply to one item. */
static inline void call_bool(struct call *call, bool value)
{
    if (engine.ReplyWithBool)
        engine.ReplyWithBool(call->ctx, value);
    else
        engine.ReplyWithLongLong(call->ctx, value);
}
