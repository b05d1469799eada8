/* COMMAND and MODULE: the contents of the table, in the shapes of Redis. An element has the same shape in all replies,
 * so each has one function here that writes it for a row. */
#include <stdio.h>
#include <string.h>

#include "acl_catalog.h"
#include "command.h"
#include "command_arg.h"
#include "glob_match.h"
#include "handlers.h"
#include "server.h"

/* In the order in which Redis reports them. */
static const struct {
    uint32_t flag;
    const char *name;
} flag_names[] = {
    {CMD_WRITE, "write"},
    {CMD_READONLY, "readonly"},
    {CMD_DENYOOM, "denyoom"},
    {CMD_MODULE, "module"},
    {CMD_ADMIN, "admin"},
    {CMD_PUBSUB, "pubsub"},
    {CMD_NOSCRIPT, "noscript"},
    {CMD_LOADING, "loading"},
    {CMD_STALE, "stale"},
    {CMD_SKIP_MONITOR, "skip_monitor"},
    {CMD_SKIP_SLOWLOG, "skip_slowlog"},
    {CMD_FAST, "fast"},
    {CMD_NOAUTH, "no_auth"},
    {CMD_NO_ASYNC_LOADING, "no_async_loading"},
    {CMD_NO_MULTI, "no_multi"},
    {CMD_ALLOW_BUSY, "allow_busy"},
};

#define NFLAGS (sizeof(flag_names) / sizeof(flag_names[0]))

/* ---- words in a string ---- */

static struct slice words_of(const char *text)
{
    return (struct slice){text, text == NULL ? 0 : strlen(text)};
}

/* A set of the words, each a status (flags) or a bulk string (tips). */
static void reply_words(struct reply *reply, struct slice words, bool status)
{
    struct slice word, rest = words;
    char text[64];
    size_t n = 0;

    while (config_next_word(&rest, &word))
        n++;
    reply_set(reply, n);
    while (config_next_word(&words, &word)) {
        if (status) {
            snprintf(text, sizeof(text), "%.*s", (int)word.len, word.ptr);
            reply_status(reply, text);
        } else {
            reply_bulk(reply, word.ptr, word.len);
        }
    }
}

/* The flags of the key specification `index`. */
static struct slice key_flags(const struct command *row, size_t index)
{
    const char *flags = row->key_flags, *end;

    for (; index > 0; index--)
        flags = strchr(flags, '|') + 1;
    end = strchr(flags, '|');
    return (struct slice){flags, end == NULL ? strlen(flags) : (size_t)(end - flags)};
}

/* How many key specifications a row has: one, unless each key has flags of its own. */
static size_t count_key_specs(const struct command *row)
{
    size_t n = 1;

    if (row->first_key == 0)
        return 0;
    for (const char *at = row->key_flags; (at = strchr(at, '|')) != NULL; at++)
        n++;
    return n;
}

/* ---- one command: COMMAND, COMMAND INFO ---- */

static void reply_flags(struct reply *reply, uint32_t flags)
{
    size_t n = 0;

    for (size_t i = 0; i < NFLAGS; i++)
        n += (flags & flag_names[i].flag) != 0; /* flags of our own have no name */
    reply_set(reply, n);
    for (size_t i = 0; i < NFLAGS; i++)
        if (flags & flag_names[i].flag)
            reply_status(reply, flag_names[i].name);
}

static void reply_categories_of(struct reply *reply, const struct command *row)
{
    uint32_t categories = acl_command(command_index(row))->categories;
    char name[32];

    reply_set(reply, (size_t)__builtin_popcount(categories));
    for (size_t i = 0; acl_category_name(i) != NULL; i++) {
        if (!(categories >> i & 1))
            continue;
        snprintf(name, sizeof(name), "@%s", acl_category_name(i));
        reply_status(reply, name);
    }
}

static void reply_key_specs(struct reply *reply, const struct command *row)
{
    size_t n = count_key_specs(row);

    reply_set(reply, n);
    for (size_t i = 0; i < n; i++) {
        int last = n > 1 ? 0 : row->last_key < 0 ? row->last_key : row->last_key - row->first_key;

        reply_map(reply, 3);
        reply_bulk_str(reply, "flags");
        reply_words(reply, key_flags(row, i), true);
        reply_bulk_str(reply, "begin_search");
        reply_map(reply, 2);
        reply_pair(reply, "type", "index");
        reply_bulk_str(reply, "spec");
        reply_map(reply, 1);
        reply_number_pair(reply, "index", row->first_key + (int)i);
        reply_bulk_str(reply, "find_keys");
        reply_map(reply, 2);
        reply_pair(reply, "type", "range");
        reply_bulk_str(reply, "spec");
        reply_map(reply, 3);
        reply_number_pair(reply, "lastkey", last);
        reply_number_pair(reply, "keystep", row->key_step);
        reply_number_pair(reply, "limit", 0);
    }
}

static void reply_info(struct reply *reply, const struct command *row)
{
    reply_array(reply, 10);
    reply_bulk_str(reply, row->full_name);
    reply_integer(reply, row->arity);
    reply_flags(reply, row->flags);
    reply_integer(reply, row->first_key);
    reply_integer(reply, row->last_key);
    reply_integer(reply, row->key_step);
    reply_categories_of(reply, row);
    reply_words(reply, words_of(row->tips), false);
    reply_key_specs(reply, row);
    reply_set(reply, row->nsubcommands);
    for (size_t i = 0; i < row->nsubcommands; i++)
        reply_info(reply, &row->subcommands[i]);
}

/* ---- its documentation: COMMAND DOCS ---- */

/* `keys` counts the key arguments so far: the n-th represents the n-th key specification. */
static void reply_args(struct reply *reply, const struct command_arg *args, size_t nargs, int *keys)
{
    reply_array(reply, nargs);
    for (size_t i = 0; i < nargs; i++) {
        const struct command_arg *arg = &args[i];
        bool key = strcmp(arg->type, "key") == 0;
        bool group = arg->nargs > 0;

        reply_map(reply, (size_t)(2 + !group + key + (arg->token != NULL) + (arg->since != NULL) +
                                  (arg->optional || arg->multiple) + group));
        reply_pair(reply, "name", arg->name);
        reply_pair(reply, "type", arg->type);
        if (!group)
            reply_pair(reply, "display_text", arg->name);
        if (key) {
            reply_number_pair(reply, "key_spec_index", (*keys)++);
        }
        if (arg->token != NULL)
            reply_pair(reply, "token", arg->token);
        if (arg->since != NULL)
            reply_pair(reply, "since", arg->since);
        if (arg->optional || arg->multiple) {
            reply_bulk_str(reply, "flags");
            reply_set(reply, (size_t)(arg->optional + arg->multiple));
            if (arg->optional)
                reply_status(reply, "optional");
            if (arg->multiple)
                reply_status(reply, "multiple");
        }
        if (group) {
            reply_bulk_str(reply, "arguments");
            reply_args(reply, arg->args, arg->nargs, keys);
        }
    }
}

static const char *group_of(const struct command *row)
{
    const char *name = row->full_name;

    if (row->group == NULL)
        row = command_row((size_t)command_find((struct slice){name, strcspn(name, "|")}));
    return row->group;
}

/* The name and the map after it. */
static void reply_docs(struct reply *reply, const struct command *row)
{
    const char *usual = row->handler != NULL ? "O(1)" : "Depends on subcommand.";
    bool module = (row->flags & CMD_MODULE) != 0;
    int keys = 0;

    reply_bulk_str(reply, row->full_name);
    reply_map(reply, (size_t)(4 + module + (row->nargs > 0) + (row->nsubcommands > 0)));
    reply_pair(reply, "summary", row->summary);
    reply_pair(reply, "since", row->since);
    reply_pair(reply, "group", group_of(row));
    reply_pair(reply, "complexity", row->complexity ? row->complexity : usual);
    if (module)
        reply_pair(reply, "module", "bf");
    if (row->nargs > 0) {
        reply_bulk_str(reply, "arguments");
        reply_args(reply, row->args, row->nargs, &keys);
    }
    if (row->nsubcommands > 0) {
        reply_bulk_str(reply, "subcommands");
        reply_map(reply, row->nsubcommands);
        for (size_t i = 0; i < row->nsubcommands; i++)
            reply_docs(reply, &row->subcommands[i]);
    }
}

/* ---- handlers ---- */

void cmd_command(struct command_ctx *ctx)
{
    size_t n;
    const struct command *rows = command_table(&n);

    reply_array(ctx->reply, n);
    for (size_t i = 0; i < n; i++)
        reply_info(ctx->reply, &rows[i]);
}

/* The names are few (COMMAND_MAX_WORDS). */
void cmd_command_info(struct command_ctx *ctx)
{
    size_t argc = command_argc(ctx);

    if (argc == 2) {
        cmd_command(ctx);
        return;
    }
    reply_array(ctx->reply, argc - 2);
    for (size_t i = 2; i < argc; i++) {
        const struct command *row = command_find_full(command_arg(ctx, i));

        if (row == NULL)
            reply_null(ctx->reply);
        else
            reply_info(ctx->reply, row);
    }
}

void cmd_command_docs(struct command_ctx *ctx)
{
    size_t argc = command_argc(ctx), n;
    const struct command *row, *rows = command_table(&n);

    if (argc == 2) {
        reply_map(ctx->reply, n);
        for (size_t i = 0; i < n; i++)
            reply_docs(ctx->reply, &rows[i]);
        return;
    }
    size_t token = reply_map_begin(ctx->reply);
    n = 0;
    for (size_t i = 2; i < argc; i++) {
        if ((row = command_find_full(command_arg(ctx, i))) == NULL)
            continue;
        reply_docs(ctx->reply, row);
        n++;
    }
    reply_map_end(ctx->reply, token, n);
}

void cmd_command_count(struct command_ctx *ctx)
{
    size_t n;

    command_table(&n);
    reply_integer(ctx->reply, (int64_t)n);
}

/* ---- COMMAND LIST */

enum list_filter { LIST_ALL, LIST_MODULE, LIST_ACLCAT, LIST_PATTERN };

static bool listed(const struct command *row, enum list_filter filter, struct slice value)
{
    switch (filter) {
    case LIST_ALL:
        return true;
    case LIST_MODULE:
        return (row->flags & CMD_MODULE) != 0 && value.len == 2 && memcmp(value.ptr, "bf", 2) == 0;
    case LIST_ACLCAT: {
        int category = acl_category(value);
        return category >= 0 && acl_command(command_index(row))->categories >> category & 1;
    }
    case LIST_PATTERN:
        return glob_match(value, words_of(row->full_name), true);
    }
    return false;
}

void cmd_command_list(struct command_ctx *ctx)
{
    enum list_filter filter = LIST_ALL;
    struct slice value = {NULL, 0};
    const struct command *row;
    size_t token, n = 0;

    if (command_argc(ctx) == 5 && slice_is(command_arg(ctx, 2), "FILTERBY")) {
        struct slice by = command_arg(ctx, 3);

        value = command_arg(ctx, 4);
        if (slice_is(by, "MODULE"))
            filter = LIST_MODULE;
        else if (slice_is(by, "ACLCAT"))
            filter = LIST_ACLCAT;
        else if (slice_is(by, "PATTERN"))
            filter = LIST_PATTERN;
    }
    if (command_argc(ctx) > 2 && filter == LIST_ALL) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    if (value.len > GLOB_MAX_PATTERN) {
        reply_error(ctx->reply, "ERR the pattern is too long");
        return;
    }
    token = reply_array_begin(ctx->reply);
    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        if (!listed(row, filter, value))
            continue;
        reply_bulk_str(ctx->reply, row->full_name);
        n++;
    }
    reply_array_end(ctx->reply, token, n);
}

/* ---- COMMAND GETKEYS */

/* The row that the arguments from the third on call, or NULL with an error replied. */
static const struct command *getkeys_row(struct command_ctx *ctx)
{
    const struct command *row = command_find_called(ctx->args, 2);

    if (row == NULL)
        return reply_error(ctx->reply, "ERR Invalid command specified"), NULL;
    if (row->first_key == 0 || row->flags & CMD_PUBSUB)
        return reply_error(ctx->reply, "ERR The command has no key arguments"), NULL;
    if (!command_arity_fits(row, command_argc(ctx) - 2))
        return reply_error(ctx->reply, "ERR Invalid number of arguments specified for command"), NULL;
    return row;
}

static void getkeys(struct command_ctx *ctx, bool flags)
{
    const struct command *row = getkeys_row(ctx);

    if (row == NULL)
        return;
    struct command_keys keys = command_keys(row, command_argc(ctx) - 2);
    size_t nspecs = count_key_specs(row);
    reply_array(ctx->reply, (keys.end - keys.first + keys.step - 1) / keys.step);
    for (size_t i = keys.first, n = 0; i < keys.end; i += keys.step, n++) {
        struct slice key = command_arg(ctx, 2 + i);

        if (flags)
            reply_array(ctx->reply, 2);
        reply_bulk(ctx->reply, key.ptr, key.len);
        if (flags)
            reply_words(ctx->reply, key_flags(row, nspecs > 1 ? n : 0), true);
    }
}

void cmd_command_getkeys(struct command_ctx *ctx)
{
    getkeys(ctx, false);
}

void cmd_command_getkeysandflags(struct command_ctx *ctx)
{
    getkeys(ctx, true);
}

/* ---- MODULE ---- */

void reply_modules(struct reply *reply)
{
    reply_array(reply, 1);
    reply_map(reply, 4);
    reply_pair(reply, "name", "bf");
    reply_number_pair(reply, "ver", REDISBLOOM_COMPAT_VERSION);
    reply_pair(reply, "path", "");
    reply_bulk_str(reply, "args");
    reply_array(reply, 0);
}

void cmd_module_list(struct command_ctx *ctx)
{
    reply_modules(ctx->reply);
}
