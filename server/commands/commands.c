/* The table. Its rows form one array, because a row's index is the number of its counters. */
#include <stddef.h>

#include "command.h"
#include "command_arg.h"
#include "handlers.h"

#define ROW(name_, full, function, version, words, bits, text, ...) \
    {.name = name_,                                                 \
     .full_name = full,                                             \
     .handler = function,                                           \
     .since = version,                                              \
     .arity = words,                                                \
     .flags = bits,                                                 \
     .summary = text,                                               \
     __VA_ARGS__},
#define COMMAND_BY(name_, function, group_, version, words, bits, text, ...) \
    ROW(name_, name_, function, version, words, bits, text, .group = group_, __VA_ARGS__)
#define COMMAND(name_, ...) COMMAND_BY(#name_, cmd_##name_, __VA_ARGS__)
#define CONTAINER(name_, group_, version, ...) \
    COMMAND_BY(#name_, NULL, group_, version, -2, 0, __VA_ARGS__, SUBCOMMANDS(name_))
#define SUBCOMMANDS(name_) .subcommands = name_##_rows, .nsubcommands = sizeof(name_##_rows) / sizeof(struct command)
#define BF(name_, version, words, bits, ...) \
    COMMAND_BY("bf." #name_, cmd_bf_##name_, "module", version, words, (bits) | CMD_MODULE, __VA_ARGS__)
#define CF(name_, version, words, bits, ...) \
    COMMAND_BY("cf." #name_, cmd_cf_##name_, "module", version, words, (bits) | CMD_MODULE | CMD_CUCKOO, __VA_ARGS__)

#define ROWS_OF(container)                      static const struct command container##_rows[] = {
#define END_OF_ROWS                             }
#define SUB_BY(container, name_, function, ...) ROW(name_, #container "|" name_, function, __VA_ARGS__)
#define SUB(container, name_, ...)              SUB_BY(container, #name_, cmd_##container##_##name_, __VA_ARGS__)
#define HELP(container, bits) \
    SUB_BY(container, "help", cmd_help, "5.0.0", 2, ANY_TIME | (bits), "Lists the subcommands.")

#define ANY_TIME      (CMD_LOADING | CMD_STALE)
#define OF_SESSION    (CMD_NOSCRIPT | ANY_TIME)
#define OF_ADMIN      (CMD_ADMIN | OF_SESSION)
#define OF_SUBSCRIBER (CMD_PUBSUB | OF_SESSION | CMD_SUBSCRIBED | CMD_LARGE)

#define ALL_KEYS(...) KEYS(1, -1, 1, __VA_ARGS__)
#define KEYS_ARG      KEY_NAMED("key", MULTIPLE)
#define ON_OFF        ARGS(WORD("on", "ON"), WORD("off", "OFF"))
#define SECRETS(kind) .secrets = kind
#define INFO_FILE     , SAME_WORD("FILE") /* SSTables */

#include "subcommands.def"

const struct command command_top_rows[] = {
#include "commands.def"
};

const size_t command_ntop = sizeof(command_top_rows) / sizeof(command_top_rows[0]);

const struct command *command_table(size_t *n_out)
{
    if (n_out != NULL)
        *n_out = command_ntop;
    return command_top_rows;
}
