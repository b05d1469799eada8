/* bloomery, the operator's tool: the table of subcommands, and main(). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fsops.h"
#include "tool.h"
#include "version.h"

const struct tool_command *const tool_commands[] = {
    &tool_find_command,
    &tool_verify_command,
    &tool_rebuild_command,
    &tool_advise_command,
    &tool_show_command,
    &tool_query_command,
    &tool_build_command,
    &tool_merge_command,
    &tool_load_command,
    &tool_fill_command,
    &tool_import_command,
    &tool_list_command,
    &tool_export_command,
    &tool_check_command,
    &tool_key_command,
    &tool_move_command,

    NULL,
};

static void print_help(void)
{
    printf("bloomery %s: work on Bloomery's data directories and Filter.db files, and moves\n\n", BLOOMERY_VERSION);
    printf("Usage: bloomery COMMAND ...\n\n");
    for (size_t i = 0; tool_commands[i]; i++)
        printf("  %-10s %s\n", tool_commands[i]->name, tool_commands[i]->summary);
    printf("\n  help COMMAND, --help, --version\n\n");
    printf("Exit status: 0 success, 1 failure (the reason is on stderr), 2 wrong arguments. find and query follow "
           "grep: 0\n"
           "something was found, 1 nothing, 2 failure or wrong arguments; verify: 1 something is wrong.\n");
}

static const struct tool_command *find_command(const char *name)
{
    for (size_t i = 0; tool_commands[i]; i++)
        if (strcmp(tool_commands[i]->name, name) == 0)
            return tool_commands[i];
    fprintf(stderr, "bloomery: no command '%s'; see 'bloomery --help'\n", name);
    return NULL;
}

static int help(const char *name)
{
    const struct tool_command *command = find_command(name);

    if (!command)
        return TOOL_USAGE;
    tool_print_help(command);
    return TOOL_OK;
}

/* "--help" anywhere among a command's arguments, or "-h" as the first of them. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || (i == 2 && strcmp(argv[i], "-h") == 0))
            return true;
    return false;
}

/* Sets *failed_out to the exit code of a failure. */
static int run_subcommand(int argc, char **argv, int *failed_out)
{
    if (argc < 2) {
        fprintf(stderr, "bloomery: a command is missing; see 'bloomery --help'\n");
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-v") == 0) {
        printf("bloomery %s\n", BLOOMERY_VERSION);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        if (argc > 2)
            return help(argv[2]);
        print_help();
        return TOOL_OK;
    }
    const struct tool_command *command = find_command(argv[1]);
    if (!command)
        return TOOL_USAGE;
    if (asks_for_help(argc, argv))
        return help(argv[1]);
    struct tool_args args;
    *failed_out = command->greps ? TOOL_USAGE : TOOL_FAILED;
    int status = tool_read_arguments(command, argc - 2, argv + 2, &args);
    STEP(status, command->run(&args));
    if (status == TOOL_USAGE) {
        tool_print_usage(command, stderr);
        fprintf(stderr, "See 'bloomery help %s'.\n", command->name);
    }
    return status;
}

/* Exits with a failure if stdout cannot be written. */
int main(int argc, char **argv)
{
    int failed_code = TOOL_FAILED;
    int status = fs_fill_standard_descriptors();
    if (status != 0) {
        fprintf(stderr, "bloomery: /dev/null: %s\n", strerror(-status));
        return TOOL_FAILED;
    }
    status = run_subcommand(argc, argv, &failed_code);
    bool failed = ferror(stdout);
    errno = 0;
    if ((fflush(stdout) != 0 || failed) && (status == TOOL_OK || status == TOOL_NONE)) {
        fprintf(stderr, "bloomery: cannot write to the standard output%s%s\n", errno ? ": " : "",
                errno ? strerror(errno) : "");
        return failed_code;
    }
    return status == TOOL_FAILED ? failed_code : status == TOOL_NONE ? 1 : status;
}
