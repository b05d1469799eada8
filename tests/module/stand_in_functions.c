/* The stand-in's functions that concern loading, settings, memory and keys: as little as the module needs of each, and
 * nothing that an engine may refuse, or end at. Its own comment at a function says "if the key is empty, ..." and Redis
 * 8.6 ends there all the same: so the rule is that a key is asked what it has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "stand_in_internal.h"

__attribute__((format(printf, 2, 0))) void append(char *text, const char *format, va_list args)
{
    size_t len = strlen(text);
    vsnprintf(text + len, TEXT_MAX - len, format, args);
}

__attribute__((format(printf, 2, 3))) void append_text(char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append(text, format, args);
    va_end(args);
}

#define REQUIRED 1
#define OPTIONAL 0

const struct fake fakes[] = {
#define ENGINE(presence, result, name, parameters) {#name, (void (*)(void))fake_##name, presence},
#include "engine.def"
#undef ENGINE
};
const size_t nfakes = sizeof(fakes) / sizeof(fakes[0]);

/* ---- loading ---- */

static bool is_command(const char *name)
{
    for (size_t i = 0; i < host.ncommands; i++)
        if (strcasecmp(host.commands[i].name, name) == 0)
            return true;
    return false;
}

int fake_IsModuleNameBusy(const char *name)
{
    MUST(host.place == PLACE_LOAD, "IsModuleNameBusy: not while the module is loaded");
    return strcmp(name, "bloomery") == 0 && host.busy;
}

void fake_SetModuleAttribs(struct engine_ctx *ctx, const char *name, int version, int api_version)
{
    only_in(PLACE_LOAD, ctx, "SetModuleAttribs");
    MUST(*name && version > 0 && api_version == ENGINE_API_VERSION, "SetModuleAttribs: '%s', version %d, interface %d",
         name, version, api_version);
}

/* What is an option of another engine is not one here. */
void fake_SetModuleOptions(struct engine_ctx *ctx, int options)
{
    only_in(PLACE_LOAD, ctx, "SetModuleOptions");
    MUST((options & ~(ENGINE_HANDLES_IO_ERRORS | ENGINE_SIGNALS_BY_HAND | ENGINE_HANDLES_ASYNC_LOAD)) == 0,
         "SetModuleOptions: %#x has options that this engine does not know", (unsigned)options);
}

static bool is_word_of(const char *words, const char *word, size_t len)
{
    for (const char *at = words; (at = strstr(at, word)) != NULL; at++)
        if ((at == words || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    return false;
}

static void check_flags(const char *name, const char *flags)
{
    char copy[128], *save = NULL;
    snprintf(copy, sizeof(copy), "%s", flags);
    for (char *flag = strtok_r(copy, " ", &save); flag; flag = strtok_r(NULL, " ", &save))
        MUST(is_word_of("write readonly deny-oom fast", flag, strlen(flag)), "CreateCommand: %s has the flag '%s'",
             name, flag);
    MUST(is_word_of(flags, "write", 5) != is_word_of(flags, "readonly", 8), "CreateCommand: %s is '%s'", name, flags);
}

int fake_CreateCommand(struct engine_ctx *ctx, const char *name, engine_command_fn run, const char *flags,
                       int first_key, int last_key, int key_step)
{
    only_in(PLACE_LOAD, ctx, "CreateCommand");
    check_flags(name, flags);
    MUST(run && (first_key == 0 ? last_key == 0 && key_step == 0 : first_key > 0 && key_step > 0),
         "CreateCommand: %s has the keys %d %d %d", name, first_key, last_key, key_step);
    if (is_command(name) || (host.taken && strcmp(host.taken, name) == 0))
        return ENGINE_ERR;
    snprintf(host.commands[host.ncommands].name, sizeof(host.commands[0].name), "%s", name);
    host.commands[host.ncommands++].run = run;
    return ENGINE_OK;
}

struct engine_command *fake_GetCommand(struct engine_ctx *ctx, const char *name)
{
    only_in(PLACE_LOAD, ctx, "GetCommand");
    MUST(is_command(name), "GetCommand: there is no %s", name);
    return (struct engine_command *)(void *)&host;
}

static size_t count_args(const struct engine_command_arg *args)
{
    size_t n = 0;
    for (; args && args->name; args++)
        n += 1 + count_args(args->subargs);
    return n;
}

int fake_SetCommandInfo(struct engine_command *command, const struct engine_command_info *info)
{
    MUST(host.place == PLACE_LOAD && command, "SetCommandInfo: not while the module is loaded");
    return info->summary && info->arity != 0 && count_args(info->args) > 0 ? ENGINE_OK : ENGINE_ERR;
}

int fake_AddACLCategory(struct engine_ctx *ctx, const char *name)
{
    only_in(PLACE_LOAD, ctx, "AddACLCategory");
    MUST(*name && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(name), "AddACLCategory: '%s'", name);
    return ENGINE_OK;
}

int fake_SetCommandACLCategories(struct engine_command *command, const char *categories)
{
    MUST(host.place == PLACE_LOAD && command, "SetCommandACLCategories: not while the module is loaded");
    return strchr(categories, '@') ? ENGINE_ERR : ENGINE_OK;
}

struct engine_type *fake_CreateDataType(struct engine_ctx *ctx, const char *name, int encoding_version,
                                        struct engine_type_methods *methods)
{
    only_in(PLACE_LOAD, ctx, "CreateDataType");
    MUST(methods->version == ENGINE_TYPE_VERSION && methods->rdb_load && methods->rdb_save && methods->aof_rewrite &&
             methods->free && encoding_version >= 0 && encoding_version < 1024,
         "CreateDataType: %s, version %d", name, encoding_version);
    bool refused = strlen(name) != 9 || (host.taken && strcmp(host.taken, name) == 0);
    for (size_t i = 0; i < host.ntypes; i++)
        refused |= strcmp(host.types[i].name, name) == 0;
    if (refused)
        return NULL;
    host.types[host.ntypes] = (struct engine_type){*methods, encoding_version, ""};
    strcpy(host.types[host.ntypes].name, name);
    return &host.types[host.ntypes++];
}

__attribute__((format(printf, 3, 4))) void fake_Log(struct engine_ctx *ctx, const char *level, const char *format, ...)
{
    va_list args;
    MUST(ctx == &host.ctx, "Log: no context of this call");
    MUST(is_word_of("debug verbose notice warning", level, strlen(level)), "Log: there is no level '%s'", level);
    va_start(args, format);
    append(host.log, format, args);
    va_end(args);
}

/* ---- settings ---- */

static void check_setting(struct engine_ctx *ctx, const char *name, unsigned flags)
{
    only_in(PLACE_LOAD, ctx, "Register...Config");
    MUST(*name && strspn(name, "abcdefghijklmnopqrstuvwxyz-") == strlen(name), "a setting of the name '%s'", name);
    MUST((flags & ~(unsigned)ENGINE_CONFIG_MEMORY) == 0, "%s has the flags %#x", name, flags);
    MUST(!host.configured, "%s is registered after LoadConfigs()", name);
    host.registers = true;
}

int fake_RegisterNumericConfig(struct engine_ctx *ctx, const char *name, long long initial, unsigned flags,
                               long long min, long long max, engine_get_number_fn get, engine_set_number_fn set,
                               engine_apply_fn apply, void *row)
{
    (void)apply;
    check_setting(ctx, name, flags);
    MUST(get && set && initial >= min && initial <= max, "%s begins with %lld", name, initial);
    return get(name, row) == initial ? ENGINE_OK : ENGINE_ERR;
}

int fake_RegisterStringConfig(struct engine_ctx *ctx, const char *name, const char *initial, unsigned flags,
                              engine_get_string_fn get, engine_set_string_fn set, engine_apply_fn apply, void *row)
{
    (void)apply;
    check_setting(ctx, name, flags);
    MUST(get && set && initial, "%s begins with nothing", name);
    return strcmp(get(name, row)->ptr, initial) == 0 ? ENGINE_OK : ENGINE_ERR;
}

int fake_LoadConfigs(struct engine_ctx *ctx)
{
    only_in(PLACE_LOAD, ctx, "LoadConfigs");
    MUST(host.registers && !host.configured, "LoadConfigs: once, after all settings");
    host.configured = true;
    return ENGINE_OK;
}

/* ---- memory ---- */

static void *allocated(size_t n, size_t size)
{
    MUST(n > 0 && size > 0, "no bytes are allocated");
    void *memory = ++host.allocations == host.fail_at ? NULL : calloc(n, size);
    host.held += memory != NULL;
    return memory;
}

void *fake_Calloc(size_t n, size_t size)
{
    MUST(n > 0 && size > 0, "no bytes are allocated");
    host.held++;
    return calloc(n, size);
}

void *fake_TryCalloc(size_t n, size_t size)
{
    return allocated(n, size);
}

void *fake_TryAlloc(size_t size)
{
    return allocated(1, size);
}

void fake_Free(void *memory)
{
    host.held -= memory != NULL;
    free(memory);
}

struct engine_server_info *fake_GetServerInfo(struct engine_ctx *ctx, const char *section)
{
    MUST((host.place & (PLACE_COMMAND | PLACE_READ)) && (!ctx || ctx == &host.ctx), "GetServerInfo: not here");
    MUST(*section, "GetServerInfo: no section");
    host.infos++;
    return (struct engine_server_info *)(void *)&host;
}

unsigned long long fake_ServerInfoGetFieldUnsigned(struct engine_server_info *info, const char *field, int *error_out)
{
    MUST(info && host.infos, "ServerInfoGetFieldUnsigned: there is no such answer");
    *error_out = 0;
    return strcmp(field, "maxmemory") == 0 ? 1u << 30 : 1u << 20;
}

void fake_FreeServerInfo(struct engine_ctx *ctx, struct engine_server_info *info)
{
    MUST(!ctx || ctx == &host.ctx, "FreeServerInfo: another context");
    MUST(info && host.infos, "FreeServerInfo: there is no such answer");
    host.infos--;
}

/* ---- timers and strings ---- */

uint64_t fake_CreateTimer(struct engine_ctx *ctx, long long after_ms, engine_timer_fn run, void *data)
{
    only_in(PLACE_COMMAND | PLACE_TIMER, ctx, "CreateTimer");
    MUST(after_ms > 0 && run && !host.timer, "CreateTimer: after %lld ms", after_ms);
    host.timer = run;
    host.timer_data = data;
    return 1;
}

const char *fake_StringPtrLen(const struct engine_string *string, size_t *len_out)
{
    MUST(string && len_out, "StringPtrLen: no string");
    *len_out = string->len;
    return string->ptr;
}

struct engine_string *fake_CreateString(struct engine_ctx *ctx, const char *ptr, size_t len)
{
    MUST(ptr && (!ctx || ctx == &host.ctx), "CreateString: no bytes, or the context of another call");
    struct engine_string *string = make_string(ptr, len);
    string->modules = true;
    string->by = ctx;
    host.strings++;
    return string;
}

void fake_FreeString(struct engine_ctx *ctx, struct engine_string *string)
{
    MUST(string && string->modules, "FreeString: it is the engine's own");
    MUST(string->by == ctx, "FreeString: it was made with another context");
    host.strings--;
    free_string(string);
}

/* ---- keys ---- */

struct engine_key *fake_OpenKey(struct engine_ctx *ctx, struct engine_string *name, int mode)
{
    only_in(PLACE_COMMAND, ctx, "OpenKey");
    MUST(name && mode & ENGINE_READ && (mode & ~(ENGINE_READ | ENGINE_WRITE)) == 0, "OpenKey: mode %d", mode);
    struct entry *entry = find_entry(name->ptr);
    if (!entry && !(mode & ENGINE_WRITE))
        return NULL;
    struct engine_key *key = calloc(1, sizeof(*key));
    snprintf(key->name, sizeof(key->name), "%s", name->ptr);
    key->entry = entry;
    key->moves = entry ? entry->moves : 0;
    key->mode = mode;
    host.open_keys++;
    return key;
}

/* An engine keeps a pointer to its object of the key in each handle. It is a new object after a value was set, deleted,
 * or given a time to live, and only the handle by which that was done knows of it. */
static void check_key(const struct engine_key *key, const char *function)
{
    MUST(key, "%s: no key", function);
    MUST(find_entry(key->name) == key->entry && (!key->entry || key->moves == key->entry->moves),
         "%s: the value of '%s' has changed by another handle", function, key->name);
}

static void check_full(const struct engine_key *key, const char *function)
{
    check_key(key, function);
    MUST(key->entry, "%s: '%s' is empty", function, key->name);
}

static void check_writable(const struct engine_key *key, const char *function)
{
    MUST(key && key->mode & ENGINE_WRITE, "%s: the key is not open for writing", function);
}

static void move(struct engine_key *key)
{
    key->entry = find_entry(key->name);
    if (key->entry)
        key->moves = ++key->entry->moves;
}

void fake_CloseKey(struct engine_key *key)
{
    check_key(key, "CloseKey");
    host.open_keys--;
    free(key);
}

int fake_KeyType(struct engine_key *key)
{
    check_key(key, "KeyType");
    return key->entry ? ENGINE_KEY_MODULE : ENGINE_KEY_EMPTY;
}

int fake_DeleteKey(struct engine_key *key)
{
    check_full(key, "DeleteKey");
    check_writable(key, "DeleteKey");
    key->entry->type->methods.free(key->entry->value);
    key->entry->value = NULL;
    key->entry->moves++;
    key->entry = NULL;
    return ENGINE_OK;
}

struct engine_type *fake_ModuleTypeGetType(struct engine_key *key)
{
    check_full(key, "ModuleTypeGetType");
    return key->entry->type;
}

void *fake_ModuleTypeGetValue(struct engine_key *key)
{
    check_full(key, "ModuleTypeGetValue");
    return key->entry->value;
}

static bool is_type(const struct engine_type *type)
{
    return type >= host.types && type < host.types + host.ntypes;
}

int fake_ModuleTypeSetValue(struct engine_key *key, struct engine_type *type, void *value)
{
    check_key(key, "ModuleTypeSetValue");
    check_writable(key, "ModuleTypeSetValue");
    MUST(is_type(type) && value, "ModuleTypeSetValue: no type, or no value");
    if (key->entry)
        fake_DeleteKey(key);
    put_entry(key->name, type, value);
    move(key);
    return ENGINE_OK;
}

int fake_ModuleTypeReplaceValue(struct engine_key *key, struct engine_type *type, void *value, void **old_out)
{
    check_full(key, "ModuleTypeReplaceValue");
    check_writable(key, "ModuleTypeReplaceValue");
    MUST(key->entry->type == type && value && old_out, "ModuleTypeReplaceValue: another type, or no value");
    *old_out = key->entry->value;
    key->entry->value = value;
    return ENGINE_OK;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

long long fake_GetExpire(struct engine_key *key)
{
    check_full(key, "GetExpire");
    long long left = key->entry->expires_ms - now_ms();
    return key->entry->expires_ms < 0 ? -1 : left > 0 ? left : 0;
}

long long fake_GetAbsExpire(struct engine_key *key)
{
    check_full(key, "GetAbsExpire");
    return key->entry->expires_ms;
}

int fake_SetAbsExpire(struct engine_key *key, long long unix_ms)
{
    check_full(key, "SetAbsExpire");
    check_writable(key, "SetAbsExpire");
    MUST(unix_ms > 0, "SetAbsExpire: %lld", unix_ms);
    key->entry->expires_ms = unix_ms;
    move(key);
    return ENGINE_OK;
}

int fake_SetExpire(struct engine_key *key, long long after_ms)
{
    MUST(after_ms > 0, "SetExpire: %lld", after_ms);
    return fake_SetAbsExpire(key, now_ms() + after_ms);
}

int fake_SignalModifiedKey(struct engine_ctx *ctx, struct engine_string *name)
{
    only_in(PLACE_COMMAND, ctx, "SignalModifiedKey");
    MUST(name, "SignalModifiedKey: no name");
    return ENGINE_OK;
}

int fake_NotifyKeyspaceEvent(struct engine_ctx *ctx, int class, const char *event, struct engine_string *name)
{
    only_in(PLACE_COMMAND, ctx, "NotifyKeyspaceEvent");
    MUST(class == ENGINE_NOTIFY_MODULE && *event && name, "NotifyKeyspaceEvent: no class, event or name");
    return ENGINE_OK;
}
