#include "keyed.h"

#include <stdlib.h>
#include <string.h>

#include "registry_key.h"

void keyed_deinit(struct keyed *keyed)
{
    resp_args_deinit(&keyed->args);
    free(keyed->copy);
    *keyed = (struct keyed){0};
}

static bool names_are_keys(struct command_keys keys, const struct resp_command *cmd, unsigned database)
{
    for (size_t i = keys.first; i < keys.end; i += keys.step) {
        struct slice name = resp_arg(cmd, i);
        if (database_prefix_for(database, name.ptr, name.len))
            return false;
    }
    return true;
}

static bool copy_spans(struct keyed *keyed, const struct resp_command *cmd)
{
    struct resp_args *args = &keyed->args;
    if (args->size < cmd->argc) {
        struct resp_span *spans = realloc(args->spans, cmd->argc * sizeof(*spans));
        if (!spans)
            return false;
        args->spans = spans;
        args->size = cmd->argc;
    }
    memcpy(args->spans, cmd->spans, cmd->argc * sizeof(*cmd->spans));
    args->count = cmd->argc;
    return true;
}

/* Copies the words with room before each. */
static bool copy_words(struct keyed *keyed, const struct resp_command *cmd, struct resp_command *space)
{
    size_t need = command_bytes(cmd) + cmd->argc * DATABASE_PREFIX, at = 0;
    if (keyed->copy_size < need) {
        char *copy = realloc(keyed->copy, need);
        if (!copy)
            return false;
        keyed->copy = copy;
        keyed->copy_size = need;
    }
    for (size_t i = 0; i < cmd->argc; i++) {
        struct slice word = resp_arg(cmd, i);
        at += DATABASE_PREFIX;
        memcpy(keyed->copy + at, word.ptr, word.len);
        keyed->args.spans[i].off = (uint32_t)at;
        at += word.len;
    }
    space->base = keyed->copy;
    return true;
}

const struct resp_command *keyed_command(struct keyed *keyed, const struct command *row, const struct resp_command *cmd,
                                         unsigned database, struct resp_command *space)
{
    struct command_keys keys = command_keys(row, cmd->argc);
    if (names_are_keys(keys, cmd, database))
        return cmd;
    if (!copy_spans(keyed, cmd))
        return NULL;
    *space = (struct resp_command){.base = cmd->base, .spans = keyed->args.spans, .argc = cmd->argc};
    bool room = true;
    for (size_t i = keys.first; i < keys.end; i += keys.step)
        room &= resp_gap(cmd, i) >= DATABASE_PREFIX;
    if (!room && !copy_words(keyed, cmd, space))
        return NULL;
    const struct resp_command words = *space; /* as they were, or as they were copied */
    for (size_t i = keys.first; i < keys.end; i += keys.step) {
        struct slice name = resp_arg(&words, i);
        if (!database_prefix_for(database, name.ptr, name.len))
            continue;
        (void)key_put_before(name, database);
        keyed->args.spans[i].off -= DATABASE_PREFIX;
        keyed->args.spans[i].len += DATABASE_PREFIX;
    }
    return space;
}
