/* The table. Its rows are in several files by subject, because one file would be too long. They form one array, because
 * a row's index is the number of its counters. */
#include <stddef.h>

#include "command.h"
#include "command_arg.h"
#include "handlers.h"

#define COMMAND(command_name)               .name = command_name, .full_name = command_name
#define SUBCOMMAND(container, command_name) .name = command_name, .full_name = container "|" command_name
#define ALL_KEYS(...)                       KEYS(1, -1, 1, __VA_ARGS__)
#define SUBCOMMANDS(rows)                   .subcommands = rows, .nsubcommands = sizeof(rows) / sizeof((rows)[0])
#define INFO_FILE                           , WORD_ARG("FILE", "FILE") /* SSTables */
#define ONOFF_ARGS                          ARGS(WORD_ARG("on", "ON"), WORD_ARG("off", "OFF"))

#include "commands_sub.def"
#include "commands_sub_admin.def"
#include "commands_sub_keys.def"

#undef HELP_ROW

const struct command command_top_rows[] = {
#include "commands_admin.def"
#include "bf_commands.def"
#include "cf_commands.def"
#include "commands_content.def"
#include "commands_connection.def"
#include "commands_expire.def"
#include "commands_keys.def"
#include "commands_pubsub.def"
#include "commands_server.def"
};

const size_t command_ntop = sizeof(command_top_rows) / sizeof(command_top_rows[0]);

const struct command *command_table(size_t *n_out)
{
    if (n_out != NULL)
        *n_out = command_ntop;
    return command_top_rows;
}
