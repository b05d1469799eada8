#include "call.h"

#include <stdarg.h>
#include <string.h>

#include "bloom_keyring.h"
#include "cf_request.h"
#include "reply.h"
#include "settings.h"

/* ---- words ---- */

static struct slice arg_at(const void *ctx, size_t i)
{
    return call_arg(ctx, i);
}

struct bf_args call_args(const struct call *call)
{
    return (struct bf_args){(size_t)call->argc, arg_at, call, call->name, settings.take_over == TAKE_VALKEY};
}

/* ---- replies ---- */

bool call_error(struct call *call, const char *format, ...)
{
    struct bf_out out = call_out(call);
    va_list args;
    va_start(args, format);
    bf_out_verrorf(&out, format, args);
    va_end(args);
    return false;
}

static void out_status(void *ctx, const char *text)
{
    engine.ReplyWithSimpleString(ctx, text);
}

static void out_error(void *ctx, const char *text)
{
    engine.ReplyWithError(ctx, text);
}

static void out_integer(void *ctx, int64_t value)
{
    engine.ReplyWithLongLong(ctx, value);
}

/* In RESP2 a number is a text. Engines have changed its form over time, so this is the daemon's form. */
static void out_real(void *ctx, double value)
{
    char text[REPLY_DOUBLE_MAX];
    if (engine.GetContextFlags(ctx) & ENGINE_CTX_RESP3) {
        engine.ReplyWithDouble(ctx, value);
        return;
    }
    reply_double_text(value, text);
    engine.ReplyWithStringBuffer(ctx, text, strlen(text));
}

static void out_boolean(void *ctx, bool value)
{
    call_bool(&(struct call){.ctx = ctx}, value);
}

static void out_null(void *ctx)
{
    engine.ReplyWithNull(ctx);
}

static void out_bytes(void *ctx, const void *bytes, size_t n)
{
    engine.ReplyWithStringBuffer(ctx, n > 0 ? bytes : "", n);
}

static void out_array(void *ctx, size_t n)
{
    engine.ReplyWithArray(ctx, (long)n);
}

static void out_map(void *ctx, size_t pairs)
{
    if (engine.ReplyWithMap)
        engine.ReplyWithMap(ctx, (long)pairs);
    else
        engine.ReplyWithArray(ctx, (long)pairs * 2);
}

struct bf_out call_out(struct call *call)
{
    static const struct bf_out_ops ops = {
        .status = out_status,
        .error = out_error,
        .integer = out_integer,
        .real = out_real,
        .boolean = out_boolean,
        .null = out_null,
        .bytes = out_bytes,
        .array = out_array,
        .map = out_map,
    };
    bool maps = engine.ReplyWithMap && engine.GetContextFlags(call->ctx) & ENGINE_CTX_RESP3;
    return (struct bf_out){&ops, call->ctx,
                           "maxmemory, bloomery.bf-max-filter-bytes; docs/CLUSTER.md: one filter over many keys", maps};
}

/* ---- keys ---- */

/* Whether argument 1, which this opens, has a value. */
static bool open_key(struct call *call)
{
    call->key = engine.OpenKey(call->ctx, call->argv[1], call->writes ? ENGINE_READ | ENGINE_WRITE : ENGINE_READ);
    return call->key && !(call->writes && engine.KeyType(call->key) == ENGINE_KEY_EMPTY);
}

/* `asks`: a cuckoo filter counts as missing. */
static inline bool open_bloom(struct call *call, bool asks)
{
    if (!open_key(call))
        return true;
    const struct engine_type *type = engine.ModuleTypeGetType(call->key);
    if (type && (type == value_type || type == redisbloom_type ||
                 type == valkey_type)) { /* the usual case first: each question is a call */
        call->value = engine.ModuleTypeGetValue(call->key);
        return true;
    }
    if (asks && cuckoo_type_is(type))
        return true;
    return call_refuse(call, ENGINE_WRONGTYPE);
}

bool call_open_any(struct call *call)
{
    return open_bloom(call, false);
}

/* False, after an error reply, if only a part of the filter is here. */
static inline bool is_whole(struct call *call)
{
    if (!call->value || !call->value->load)
        return true;
    const struct bf_load *load = call->value->load;
    if (load->theirs)
        return call_error(call, "ERR the filter is being loaded: %llu of %llu bytes have not come",
                          (unsigned long long)load->redisbloom.missing, (unsigned long long)load->redisbloom.bytes);
    return call_error(call, "ERR the filter is being loaded: chunk %u of %u has not come", load->own.place.next,
                      dump_chunks(&load->own.plan));
}

bool call_open(struct call *call)
{
    return open_bloom(call, false) && is_whole(call);
}

bool call_has_its_key(struct call *call)
{
    uint64_t key = call->value ? bloom_filter_missing_key(value_filter(call->value)) : 0;
    char text[BF_KEY_TEXT];
    return !key || call_error(call, BF_NO_KEY, bf_key_text(key, text));
}

bool call_open_to_ask(struct call *call)
{
    return open_bloom(call, false) && is_whole(call) && call_has_its_key(call);
}

bool call_open_to_query(struct call *call)
{
    return open_bloom(call, true) && is_whole(call) && call_has_its_key(call);
}

bool call_open_existing(struct call *call)
{
    return call_open(call) && (call->value || call_refuse(call, BF_NOT_FOUND));
}

enum call_found call_find_cuckoo(struct call *call)
{
    if (!open_key(call))
        return CALL_NONE;
    if (!cuckoo_type_is(engine.ModuleTypeGetType(call->key)))
        return CALL_OTHER;
    call->value = engine.ModuleTypeGetValue(call->key);
    return CALL_THERE;
}

bool call_open_cuckoo(struct call *call)
{
    return call_find_cuckoo(call) != CALL_OTHER || call_refuse(call, ENGINE_WRONGTYPE);
}

bool call_open_existing_cuckoo(struct call *call)
{
    return call_open_cuckoo(call) && (call->value || call_refuse(call, CF_NOT_FOUND));
}

bool call_must_obey(const struct call *call)
{
    return (engine.MustObeyClient && engine.MustObeyClient(call->ctx)) ||
           engine.GetContextFlags(call->ctx) & (ENGINE_CTX_REPLICATED | ENGINE_CTX_LOADING);
}

bool call_has_memory(struct call *call)
{
    return call_must_obey(call) || !(engine.GetContextFlags(call->ctx) & ENGINE_CTX_OOM) ||
           call_refuse(call, "OOM command not allowed when used memory > 'maxmemory'.");
}

/* A value of another type needs another object under the key, which has no time to live at first. The engine frees the
 * object with its contents of that moment: not the value. */
static void put_as(struct call *call, struct engine_type *before, struct engine_type *type, struct value *value,
                   void **old_out)
{
    long long at = engine.GetAbsExpire ? engine.GetAbsExpire(call->key) : -1, after = engine.GetExpire(call->key);
    engine.ModuleTypeReplaceValue(call->key, before, &value_husk, old_out);
    engine.ModuleTypeSetValue(call->key, type, value);
    if (at >= 0 && engine.SetAbsExpire)
        engine.SetAbsExpire(call->key, at);
    else if (after >= 0)
        engine.SetExpire(call->key, after > 0 ? after : 1);
}

/* An engine may end if an empty key is queried. */
void call_put(struct call *call, struct value *value)
{
    struct engine_type *type = value_type_of(value), *before = call->value ? engine.ModuleTypeGetType(call->key) : NULL;
    void *old = NULL;
    if (!before)
        engine.ModuleTypeSetValue(call->key, type, value);
    else if (before == type)
        engine.ModuleTypeReplaceValue(call->key, type, value, &old);
    else
        put_as(call, before, type, value, &old);
    if (old && old != value)
        value_free(old);
    call->value = value;
}

struct bf_defaults call_defaults(const struct call *call)
{
    struct bf_defaults defaults = settings_defaults();
    defaults.obeys = settings.take_over == TAKE_VALKEY && call_must_obey(call);
    if (settings.take_over == TAKE_REDISBLOOM && settings.layout != LAYOUT_REDISBLOOM && call_must_obey(call))
        bf_defaults_take(&defaults, BLOOM_REDISBLOOM);
    return defaults;
}

bool call_not_made(struct call *call, int status, const struct errbuf *err)
{
    struct bf_out out = call_out(call);
    bf_reply_not_made(&out, status, err);
    return false;
}

struct value *call_make(struct call *call, const struct bloom_params *params, const struct bloom_shape *shapes,
                        unsigned nlayers)
{
    struct errbuf err = {""};
    int status;
    struct value *value = value_create_shaped(params, shapes, nlayers, !call_must_obey(call), &status, &err);
    if (!value)
        call_not_made(call, status, &err);
    return value;
}
