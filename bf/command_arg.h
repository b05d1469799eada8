/* command_arg: an argument of a command, as reported by COMMAND, and those words of bf_commands.def and cf_commands.def
 * that mean the same in each host. */
#ifndef BLOOMERY_COMMAND_ARG_H
#define BLOOMERY_COMMAND_ARG_H

#include <stdbool.h>
#include <stddef.h>

struct command_arg {
    const char *name;
    const char *type;  /* "key", "string", "integer", "double", "pure-token", "oneof", "block", "pattern" */
    const char *token; /* NULL or the word in front of it, or the word itself for "pure-token" */
    bool optional;
    bool multiple;
    bool multiple_token;            /* the token comes with each of them */
    const char *since;              /* NULL, or the version of Redis that added it to the command */
    const struct command_arg *args; /* of "oneof" and "block" */
    size_t nargs;
};

#define KEYS(from, to, by, ...) .first_key = from, .last_key = to, .key_step = by, .key_flags = __VA_ARGS__
#define ONE_KEY(...)            KEYS(1, 1, 1, __VA_ARGS__)
#define ARGS(...)                                      \
    .args = (const struct command_arg[]){__VA_ARGS__}, \
    .nargs = sizeof((const struct command_arg[]){__VA_ARGS__}) / sizeof(struct command_arg)
#define KEY_ARG                      \
    {                                \
        .name = "key", .type = "key" \
    }
#define WORD_ARG(n, t)                              \
    {                                               \
        .name = n, .type = "pure-token", .token = t \
    }

#endif
