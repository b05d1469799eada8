/* command_arg: the words in which tables of commands state keys and arguments (bf_commands.def, cf_commands.def, and
 * those of the server), for COMMAND and its documentation. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct command_arg {
    const char *name;
    const char *type; /* "key", "string", "integer", "double", "pure-token", "oneof", "block", "pattern", "unix-time" */
    const char *token; /* NULL or the word in front of it, or the word itself for "pure-token" */
    bool optional;
    bool multiple;
    const char *since;              /* NULL, or the version of Redis that added it to the command */
    const struct command_arg *args; /* of "oneof" and "block" */
    size_t nargs;
};

/* ---- of a row ---- */

#define KEYS(from, to, by, ...) .first_key = from, .last_key = to, .key_step = by, .key_flags = __VA_ARGS__
#define ONE_KEY(...)            KEYS(1, 1, 1, __VA_ARGS__)
#define TIPS(...)               .tips = __VA_ARGS__
#define COMPLEXITY(...)         .complexity = __VA_ARGS__
#define ARGS(...)                                      \
    .args = (const struct command_arg[]){__VA_ARGS__}, \
    .nargs = sizeof((const struct command_arg[]){__VA_ARGS__}) / sizeof(struct command_arg)

/* ---- of an argument: ARGS(KEY, INTEGER("count", TOKEN("COUNT"), OPTIONAL)) ---- */

#define ARG(name_, type_, ...)                    \
    {                                             \
        .name = name_, .type = type_, __VA_ARGS__ \
    }
#define KEY                    ARG("key", "key", )
#define KEY_NAMED(name_, ...)  ARG(name_, "key", __VA_ARGS__)
#define STRING(name_, ...)     ARG(name_, "string", __VA_ARGS__)
#define INTEGER(name_, ...)    ARG(name_, "integer", __VA_ARGS__)
#define DOUBLE(name_, ...)     ARG(name_, "double", __VA_ARGS__)
#define PATTERN(name_, ...)    ARG(name_, "pattern", __VA_ARGS__)
#define UNIX_TIME(name_, ...)  ARG(name_, "unix-time", __VA_ARGS__)
#define BLOCK(name_, ...)      ARG(name_, "block", __VA_ARGS__)
#define CHOICE(name_, ...)     ARG(name_, "oneof", __VA_ARGS__)
#define WORD(name_, word, ...) ARG(name_, "pure-token", .token = word, __VA_ARGS__)
#define SAME_WORD(word)        WORD(word, word)
#define TOKEN(word)            .token = word
#define OPTIONAL               .optional = true
#define MULTIPLE               .multiple = true
#define SINCE(version)         .since = version
