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

/* Whether the row has the places of the names of filters. */
static bool has_keys(const struct command *row)
{
    return row->first_key > 0 && !(row->flags & CMD_PUBSUB);
}

/* The place after the last argument that is a name. */
static size_t end_of_keys(const struct command *row, const struct resp_command *cmd)
{
    size_t last = row->last_key < 0 ? cmd->argc - (size_t)-row->last_key : (size_t)row->last_key;
    return last + 1 < cmd->argc ? last + 1 : cmd->argc;
}

static bool names_are_keys(const struct command *row, const struct resp_command *cmd, unsigned database)
{
    for (size_t i = (size_t)row->first_key; i < end_of_keys(row, cmd); i += (size_t)row->key_step) {
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
    if (!has_keys(row) || names_are_keys(row, cmd, database))
        return cmd;
    if (!copy_spans(keyed, cmd))
        return NULL;
    *space = (struct resp_command){.base = cmd->base, .spans = keyed->args.spans, .argc = cmd->argc};
    size_t end = end_of_keys(row, cmd), step = (size_t)row->key_step;
    bool room = true;
    for (size_t i = (size_t)row->first_key; i < end; i += step)
        room &= resp_gap(cmd, i) >= DATABASE_PREFIX;
    if (!room && !copy_words(keyed, cmd, space))
        return NULL;
    const struct resp_command words = *space; /* as they were, or as they were copied */
    for (size_t i = (size_t)row->first_key; i < end; i += step) {
        struct slice name = resp_arg(&words, i);
        if (!database_prefix_for(database, name.ptr, name.len))
            continue;
        (void)key_put_before(name, database);
        keyed->args.spans[i].off -= DATABASE_PREFIX;
        keyed->args.spans[i].len += DATABASE_PREFIX;
    }
    return space;
}
