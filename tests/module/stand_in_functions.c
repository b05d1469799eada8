/* The stand-in's functions: as little as the module needs of each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"
#include "stand_in_internal.h"

static void append(char *text, const char *format, va_list args)
{
    size_t len = strlen(text);
    vsnprintf(text + len, TEXT_MAX - len, format, args);
}

static void append_text(char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append(text, format, args);
    va_end(args);
}

#define REQUIRED                                   1
#define OPTIONAL                                   0
#define ENGINE(presence, result, name, parameters) static result fake_##name parameters;
#include "engine.def"
#undef ENGINE

const struct fake fakes[] = {
#define ENGINE(presence, result, name, parameters) {#name, (void (*)(void))fake_##name, presence},
#include "engine.def"
#undef ENGINE
};
const size_t nfakes = sizeof(fakes) / sizeof(fakes[0]);

/* ---- loading ---- */

static void fake_SetModuleAttribs(struct engine_ctx *ctx, const char *name, int version, int api_version)
{
    (void)ctx, (void)name, (void)version, (void)api_version;
}

static void fake_SetModuleOptions(struct engine_ctx *ctx, int options)
{
    (void)ctx, (void)options;
}

static int fake_CreateCommand(struct engine_ctx *ctx, const char *name, engine_command_fn run, const char *flags,
                              int first_key, int last_key, int key_step)
{
    (void)ctx, (void)flags, (void)first_key, (void)last_key, (void)key_step;
    snprintf(host.commands[host.ncommands].name, sizeof(host.commands[0].name), "%s", name);
    host.commands[host.ncommands++].run = run;
    return ENGINE_OK;
}

static struct engine_command *fake_GetCommand(struct engine_ctx *ctx, const char *name)
{
    (void)ctx, (void)name;
    return (struct engine_command *)(void *)&host;
}

static size_t count_args(const struct engine_command_arg *args)
{
    size_t n = 0;
    for (; args && args->name; args++)
        n += 1 + count_args(args->subargs);
    return n;
}

static int fake_SetCommandInfo(struct engine_command *command, const struct engine_command_info *info)
{
    (void)command;
    return info->summary && info->arity != 0 && count_args(info->args) > 0 ? ENGINE_OK : ENGINE_ERR;
}

static int fake_AddACLCategory(struct engine_ctx *ctx, const char *name)
{
    (void)ctx, (void)name;
    return ENGINE_OK;
}

static int fake_SetCommandACLCategories(struct engine_command *command, const char *categories)
{
    (void)command;
    return strchr(categories, '@') ? ENGINE_ERR : ENGINE_OK;
}

static struct engine_type *fake_CreateDataType(struct engine_ctx *ctx, const char *name, int encoding_version,
                                               struct engine_type_methods *methods)
{
    (void)ctx;
    if (strlen(name) != 9)
        return NULL;
    host.types[host.ntypes] = (struct engine_type){*methods, encoding_version};
    return &host.types[host.ntypes++];
}

static void fake_Log(struct engine_ctx *ctx, const char *level, const char *format, ...)
{
    va_list args;
    (void)ctx, (void)level;
    va_start(args, format);
    append(host.log, format, args);
    va_end(args);
}

static int fake_RegisterBoolConfig(struct engine_ctx *ctx, const char *name, int initial, unsigned flags,
                                   engine_get_bool_fn get, engine_set_bool_fn set, engine_apply_fn apply, void *row)
{
    (void)ctx, (void)flags, (void)set, (void)apply;
    return get(name, row) == initial ? ENGINE_OK : ENGINE_ERR;
}

static int fake_RegisterNumericConfig(struct engine_ctx *ctx, const char *name, long long initial, unsigned flags,
                                      long long min, long long max, engine_get_number_fn get, engine_set_number_fn set,
                                      engine_apply_fn apply, void *row)
{
    (void)ctx, (void)flags, (void)set, (void)apply;
    return get(name, row) == initial && initial >= min && initial <= max ? ENGINE_OK : ENGINE_ERR;
}

static int fake_RegisterStringConfig(struct engine_ctx *ctx, const char *name, const char *initial, unsigned flags,
                                     engine_get_string_fn get, engine_set_string_fn set, engine_apply_fn apply,
                                     void *row)
{
    (void)ctx, (void)flags, (void)set, (void)apply;
    return strcmp(get(name, row)->ptr, initial) == 0 ? ENGINE_OK : ENGINE_ERR;
}

static int fake_RegisterEnumConfig(struct engine_ctx *ctx, const char *name, int initial, unsigned flags,
                                   const char **words, const int *values, int nwords, engine_get_bool_fn get,
                                   engine_set_bool_fn set, engine_apply_fn apply, void *row)
{
    (void)ctx, (void)flags, (void)set, (void)apply;
    return get(name, row) == initial && words[nwords - 1] && values[nwords - 1] == nwords - 1 ? ENGINE_OK : ENGINE_ERR;
}

static int fake_LoadConfigs(struct engine_ctx *ctx)
{
    (void)ctx;
    return ENGINE_OK;
}

/* ---- memory ---- */

static void *allocated(size_t n, size_t size)
{
    void *memory = ++host.allocations == host.fail_at ? NULL : calloc(n, size);
    host.held += memory != NULL;
    return memory;
}

static void *fake_Calloc(size_t n, size_t size)
{
    host.held++;
    return calloc(n, size);
}

static void *fake_TryCalloc(size_t n, size_t size)
{
    return allocated(n, size);
}

static void *fake_TryAlloc(size_t size)
{
    return allocated(1, size);
}

static void fake_Free(void *memory)
{
    host.held -= memory != NULL;
    free(memory);
}

static struct engine_server_info *fake_GetServerInfo(struct engine_ctx *ctx, const char *section)
{
    (void)ctx, (void)section;
    return (struct engine_server_info *)(void *)&host;
}

static unsigned long long fake_ServerInfoGetFieldUnsigned(struct engine_server_info *info, const char *field,
                                                          int *error_out)
{
    (void)info;
    *error_out = 0;
    return strcmp(field, "maxmemory") == 0 ? 1u << 30 : 1u << 20;
}

static void fake_FreeServerInfo(struct engine_ctx *ctx, struct engine_server_info *info)
{
    (void)ctx, (void)info;
}

/* ---- strings and keys ---- */

static uint64_t fake_CreateTimer(struct engine_ctx *ctx, long long after_ms, engine_timer_fn run, void *data)
{
    (void)ctx, (void)after_ms;
    host.timer = run;
    host.timer_data = data;
    return 1;
}

static const char *fake_StringPtrLen(const struct engine_string *string, size_t *len_out)
{
    *len_out = string->len;
    return string->ptr;
}

static struct engine_string *fake_CreateString(struct engine_ctx *ctx, const char *ptr, size_t len)
{
    (void)ctx;
    return make_string(ptr, len);
}

static void fake_FreeString(struct engine_ctx *ctx, struct engine_string *string)
{
    (void)ctx;
    free_string(string);
}

static struct engine_key *fake_OpenKey(struct engine_ctx *ctx, struct engine_string *name, int mode)
{
    struct entry *entry = find_entry(name->ptr);
    (void)ctx;
    if (!entry && !(mode & ENGINE_WRITE))
        return NULL;
    struct engine_key *key = calloc(1, sizeof(*key));
    snprintf(key->name, sizeof(key->name), "%s", name->ptr);
    key->entry = entry;
    return key;
}

static void fake_CloseKey(struct engine_key *key)
{
    free(key);
}

static int fake_KeyType(struct engine_key *key)
{
    return key->entry ? ENGINE_KEY_MODULE : ENGINE_KEY_EMPTY;
}

static int fake_DeleteKey(struct engine_key *key)
{
    key->entry->type->methods.free(key->entry->value);
    key->entry->value = NULL;
    key->entry = NULL;
    return ENGINE_OK;
}

static struct engine_type *fake_ModuleTypeGetType(struct engine_key *key)
{
    return key->entry ? key->entry->type : NULL;
}

static void *fake_ModuleTypeGetValue(struct engine_key *key)
{
    return key->entry->value;
}

static int fake_ModuleTypeSetValue(struct engine_key *key, struct engine_type *type, void *value)
{
    if (key->entry)
        fake_DeleteKey(key);
    put_entry(key->name, type, value);
    key->entry = find_entry(key->name);
    return ENGINE_OK;
}

static int fake_ModuleTypeReplaceValue(struct engine_key *key, struct engine_type *type, void *value, void **old_out)
{
    if (key->entry->type != type)
        return ENGINE_ERR;
    *old_out = key->entry->value;
    key->entry->value = value;
    return ENGINE_OK;
}

static long long fake_GetExpire(struct engine_key *key)
{
    (void)key;
    return -1;
}

static long long fake_GetAbsExpire(struct engine_key *key)
{
    (void)key;
    return -1;
}

static int fake_SetExpire(struct engine_key *key, long long after_ms)
{
    (void)key;
    return after_ms > 0 ? ENGINE_OK : ENGINE_ERR;
}

static int fake_SetAbsExpire(struct engine_key *key, long long unix_ms)
{
    (void)key;
    return unix_ms > 0 ? ENGINE_OK : ENGINE_ERR;
}

static int fake_SignalModifiedKey(struct engine_ctx *ctx, struct engine_string *name)
{
    (void)ctx, (void)name;
    return ENGINE_OK;
}

static int fake_NotifyKeyspaceEvent(struct engine_ctx *ctx, int class, const char *event, struct engine_string *name)
{
    (void)ctx, (void)class, (void)event, (void)name;
    return ENGINE_OK;
}

/* ---- the client, and others ---- */

static int fake_GetContextFlags(struct engine_ctx *ctx)
{
    (void)ctx;
    return host.obey ? ENGINE_CTX_REPLICATED : 0;
}

static int fake_MustObeyClient(struct engine_ctx *ctx)
{
    (void)ctx;
    return host.obey;
}

static int fake_Replicate(struct engine_ctx *ctx, const char *command, const char *format, ...)
{
    va_list args;
    (void)ctx;
    va_start(args, format);
    append_text(host.replicated, "%s", command);
    for (const char *at = format; *at; at++) {
        if (*at == 's') {
            append_text(host.replicated, " %s", va_arg(args, struct engine_string *)->ptr);
        } else if (*at == 'c') {
            append_text(host.replicated, " %s", va_arg(args, const char *));
        } else if (*at == 'l') {
            append_text(host.replicated, " %lld", va_arg(args, long long));
        } else if (*at == 'b') {
            (void)va_arg(args, const char *);
            append_text(host.replicated, " <%zu bytes>", va_arg(args, size_t));
        } else if (*at == 'v') {
            struct engine_string **list = va_arg(args, struct engine_string **);
            size_t n = va_arg(args, size_t);
            for (size_t i = 0; i < n; i++)
                append_text(host.replicated, " %s", list[i]->ptr);
        }
    }
    va_end(args);
    append_text(host.replicated, "\n");
    return ENGINE_OK;
}

static int fake_ReplicateVerbatim(struct engine_ctx *ctx)
{
    (void)ctx;
    append_text(host.replicated, "verbatim\n");
    return ENGINE_OK;
}

/* ---- replies ---- */

static int fake_WrongArity(struct engine_ctx *ctx)
{
    (void)ctx;
    append_text(host.reply, "-ERR wrong number of arguments ");
    return ENGINE_OK;
}

static int fake_ReplyWithError(struct engine_ctx *ctx, const char *text)
{
    (void)ctx;
    append_text(host.reply, "-%s ", text);
    return ENGINE_OK;
}

static int fake_ReplyWithSimpleString(struct engine_ctx *ctx, const char *text)
{
    (void)ctx;
    append_text(host.reply, "%s ", text);
    return ENGINE_OK;
}

static int fake_ReplyWithLongLong(struct engine_ctx *ctx, long long value)
{
    (void)ctx;
    append_text(host.reply, "%lld ", value);
    return ENGINE_OK;
}

static int fake_ReplyWithBool(struct engine_ctx *ctx, int value)
{
    (void)ctx;
    append_text(host.reply, "%d ", value != 0);
    return ENGINE_OK;
}

static int fake_ReplyWithDouble(struct engine_ctx *ctx, double value)
{
    (void)ctx;
    append_text(host.reply, "%g ", value);
    return ENGINE_OK;
}

static int fake_ReplyWithNull(struct engine_ctx *ctx)
{
    (void)ctx;
    append_text(host.reply, "null ");
    return ENGINE_OK;
}

static int fake_ReplyWithArray(struct engine_ctx *ctx, long n)
{
    (void)ctx;
    append_text(host.reply, "*%ld ", n);
    return ENGINE_OK;
}

/* As a reply in RESP2, so that it is the same with and without maps. */
static int fake_ReplyWithMap(struct engine_ctx *ctx, long n)
{
    (void)ctx;
    append_text(host.reply, "*%ld ", n * 2);
    return ENGINE_OK;
}

static int fake_ReplyWithStringBuffer(struct engine_ctx *ctx, const char *ptr, size_t len)
{
    (void)ctx;
    free(host.bytes);
    host.bytes = malloc(len + 1);
    memcpy(host.bytes, ptr, len);
    host.bytes[len] = '\0';
    host.bytes_len = len;
    append_text(host.reply, "\"%s\" ", len < 100 ? host.bytes : "...");
    return ENGINE_OK;
}

/* ---- values ---- */

static void add_field(struct field field)
{
    if (host.nfields == FIELD_MAX)
        abort();
    host.fields[host.nfields++] = field;
}

static void fake_SaveUnsigned(struct engine_io *io, uint64_t value)
{
    (void)io;
    add_field((struct field){.number = true, .value = value});
}

static void fake_SaveDouble(struct engine_io *io, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    fake_SaveUnsigned(io, bits);
}

static void fake_SaveStringBuffer(struct engine_io *io, const char *ptr, size_t len)
{
    char *bytes = malloc(len ? len : 1);
    (void)io;
    memcpy(bytes, ptr, len);
    add_field((struct field){.bytes = bytes, .len = len});
}

static struct field *read_field(struct engine_io *io, bool number)
{
    if (io->next >= io->limit || io->next >= host.nfields || host.fields[io->next].number != number) {
        io->failed = true;
        return NULL;
    }
    return &host.fields[io->next++];
}

static uint64_t fake_LoadUnsigned(struct engine_io *io)
{
    struct field *field = read_field(io, true);
    return field ? field->value : 0;
}

static double fake_LoadDouble(struct engine_io *io)
{
    uint64_t bits = fake_LoadUnsigned(io);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static char *fake_LoadStringBuffer(struct engine_io *io, size_t *len_out)
{
    struct field *field = read_field(io, false);
    if (!field)
        return NULL;
    char *copy = fake_Calloc(1, field->len ? field->len : 1);
    memcpy(copy, field->bytes, field->len);
    *len_out = field->len;
    return copy;
}

static int fake_IsIOError(struct engine_io *io)
{
    return io->failed;
}

static void fake_LogIOError(struct engine_io *io, const char *level, const char *format, ...)
{
    va_list args;
    (void)io, (void)level;
    va_start(args, format);
    append(host.log, format, args);
    va_end(args);
}

static void fake_EmitAOF(struct engine_io *io, const char *command, const char *format, ...)
{
    va_list args;
    char line[256];
    va_start(args, format);
    (void)va_arg(args, struct engine_string *);
    long long number = va_arg(args, long long);
    const char *bytes = va_arg(args, const char *);
    size_t len = va_arg(args, size_t);
    va_end(args);
    snprintf(line, sizeof(line), "%s %s %lld", command, io->rewrite_to, number);
    (void)stand_in_run(line, bytes, len);
}

static void fake_DigestAddStringBuffer(struct engine_digest *digest, const char *ptr, size_t len)
{
    (void)digest, (void)ptr, (void)len;
}

static void fake_DigestAddLongLong(struct engine_digest *digest, long long value)
{
    (void)digest, (void)value;
}

static void fake_DigestEndSequence(struct engine_digest *digest)
{
    (void)digest;
}
