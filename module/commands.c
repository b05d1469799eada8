#include "commands.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command_arg.h"
#include "handlers.h"

#define ROW(name_, function, version, words, bits, text, ...) \
    {.name = name_, .handler = function, .since = version, .arity = words, .flags = bits, .summary = text, __VA_ARGS__},
#define BF(name_, ...) ROW("bf." #name_, cmd_bf_##name_, __VA_ARGS__)
#define CF(name_, ...) ROW("cf." #name_, cmd_cf_##name_, __VA_ARGS__)
#define INFO_FILE      /* SSTables are the daemon's */

static const struct command rows[] = {
#include "bf_commands.def"
#include "cf_commands.def"
    BF(apply, "0.2.0", -4, CMD_WRITE, "Applies a change of a filter on a replica. Refused from clients.",
       ONE_KEY("RW update"), COMPLEXITY("O(n), where n is the number of words"),
       ARGS(KEY, STRING("change", MULTIPLE)))};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

const struct command *command_of(engine_command_fn handler)
{
    const struct command *row = rows;
    while (row->handler != handler)
        row++;
    return row;
}

/* ---- flags and categories ---- */

/* "write fast bloom"; without the module's own category, the last one, where the engine has none. */
static void categories_of(const struct command *row, bool own, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s%s", row->flags & CMD_WRITE ? "write" : "read", row->flags & CAT_FAST ? " fast" : "",
             row->flags & CAT_SLOW ? " slow" : "",
             !own                  ? ""
             : row->name[0] == 'c' ? " cuckoo"
                                   : " bloom");
}

/* ---- COMMAND DOCS and key specifications ---- */

static enum engine_arg_type type_of(const char *type)
{
    static const struct {
        const char *name;
        enum engine_arg_type type;
    } types[] = {
        {"string", ENGINE_ARG_STRING},         {"integer", ENGINE_ARG_INTEGER},
        {"double", ENGINE_ARG_DOUBLE},         {"key", ENGINE_ARG_KEY},
        {"oneof", ENGINE_ARG_ONEOF},           {"block", ENGINE_ARG_BLOCK},
        {"pure-token", ENGINE_ARG_PURE_TOKEN},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, type) == 0)
            return types[i].type;
    return ENGINE_ARG_STRING;
}

#define ARGS_MAX 64 /* of one command, with those within others and the ends of the lists */

/* The engine's form of a list of arguments, taken from *free. The engine copies it. */
static struct engine_command_arg *docs_of(const struct command_arg *args, size_t n,
                                          struct engine_command_arg **free_args)
{
    struct engine_command_arg *list = *free_args;
    *free_args += n + 1; /* the last one is zero */
    for (size_t i = 0; i < n; i++) {
        enum engine_arg_type type = type_of(args[i].type);
        list[i] = (struct engine_command_arg){
            .name = args[i].name,
            .type = type,
            .key_spec = type == ENGINE_ARG_KEY ? (int)i : -1, /* keys come first */
            .token = args[i].token,
            .since = args[i].since,
            .flags = (args[i].optional ? ENGINE_ARG_OPTIONAL : 0) | (args[i].multiple ? ENGINE_ARG_MULTIPLE : 0),
            .subargs = args[i].nargs ? docs_of(args[i].args, args[i].nargs, free_args) : NULL,
        };
    }
    return list;
}

/* RedisBloom leaves out the kind of access to a key. An engine with users who may only read some keys needs it. */
static uint64_t key_flags_of(const struct command *row)
{
    bool deletes = strstr(row->key_flags, "delete") != NULL;
    if (row->flags & CMD_READONLY)
        return ENGINE_SPEC_RO | ENGINE_SPEC_ACCESS;
    return ENGINE_SPEC_RW | (deletes ? ENGINE_SPEC_DELETE : ENGINE_SPEC_ACCESS | ENGINE_SPEC_UPDATE);
}

static struct engine_key_spec key_spec(uint64_t flags, int from, int last, int step)
{
    return (struct engine_key_spec){.flags = flags,
                                    .begin_by = ENGINE_SPEC_BY_INDEX,
                                    .begin.index.pos = from,
                                    .find_by = ENGINE_SPEC_BY_RANGE,
                                    .find.range = {.last = last, .step = step}};
}

/* Of several keys the first one is written, and the others are read. */
static void key_specs_of(const struct command *row, struct engine_key_spec *specs)
{
    specs[0] = key_spec(key_flags_of(row), row->first_key, 0, row->key_step);
    if (row->last_key != row->first_key)
        specs[1] =
            key_spec(ENGINE_SPEC_RO | ENGINE_SPEC_ACCESS, row->first_key + row->key_step, row->last_key, row->key_step);
}

static int document(struct engine_command *command, const struct command *row)
{
    static const struct engine_info_version version = {1, sizeof(struct engine_history), sizeof(struct engine_key_spec),
                                                       sizeof(struct engine_command_arg)};
    struct engine_command_arg args[ARGS_MAX] = {{NULL}}, *free_args = args;
    struct engine_key_spec specs[3] = {{NULL}};
    struct engine_command_info info = {
        .version = &version,
        .summary = row->summary,
        .complexity = row->complexity ? row->complexity : "O(1)",
        .tips = row->tips,
        .since = row->since,
        .arity = row->arity,
        .key_specs = row->first_key ? specs : NULL,
        .args = docs_of(row->args, row->nargs, &free_args),
    };
    if (row->first_key)
        key_specs_of(row, specs);
    return engine.SetCommandInfo(command, &info);
}

/* ---- registering ---- */

static bool register_row(struct engine_ctx *ctx, const char *prefix, const struct command *row, bool own_category,
                         struct errbuf *err)
{
    char name[64], text[64];
    snprintf(name, sizeof(name), "%s%s", prefix, row->name + 2);
    /* The handler refuses a first chunk over maxmemory. By the flag the engine would refuse it to migrations. */
    bool by_itself = row->handler == cmd_bf_loadchunk || row->handler == cmd_cf_loadchunk;
    snprintf(text, sizeof(text), "%s%s%s", row->flags & CMD_WRITE ? "write" : "readonly",
             row->flags & CMD_DENYOOM && !by_itself ? " deny-oom" : "", row->flags & CMD_FAST ? " fast" : "");
    if (engine.CreateCommand(ctx, name, row->handler, text, row->first_key, row->last_key, row->key_step) != ENGINE_OK)
        return errbuf_fail(err, false,
                           "the engine already has a command %s, perhaps from its own module; choose another prefix: "
                           "loadmodule bloomery.so prefix BLOOM",
                           name);
    struct engine_command *command = engine.GetCommand ? engine.GetCommand(ctx, name) : NULL;
    if (!command)
        return true;
    if (engine.SetCommandInfo && document(command, row) != ENGINE_OK)
        return errbuf_fail(err, false, "the engine refuses the description of %s", name);
    categories_of(row, own_category, text, sizeof(text));
    if (engine.SetCommandACLCategories && engine.SetCommandACLCategories(command, text) != ENGINE_OK)
        return errbuf_fail(err, false, "the engine refuses the categories '%s' of %s", text, name);
    return true;
}

/* Whether the engine has this category, of this module or another. */
static bool has_category(struct engine_ctx *ctx, const char *name)
{
    return engine.AddACLCategory && (engine.AddACLCategory(ctx, name) == ENGINE_OK || errno == EBUSY);
}

bool commands_register(struct engine_ctx *ctx, const char *prefix, const char *cuckoo_prefix, struct errbuf *err)
{
    bool bloom = has_category(ctx, "bloom"), cuckoo = has_category(ctx, "cuckoo");
    for (size_t i = 0; i < ROWS; i++) {
        bool is_cuckoo = rows[i].name[0] == 'c';
        if (!register_row(ctx, is_cuckoo ? cuckoo_prefix : prefix, &rows[i], is_cuckoo ? cuckoo : bloom, err))
            return false;
    }
    return true;
}
