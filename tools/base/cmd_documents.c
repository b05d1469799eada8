/* bloomery documents: writes man pages and shell completion from the rows of the subcommands. The build runs it, and
 * `cmake --install` copies the files. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tool.h"

#define COMMAND "documents"

static int write_document(const char *directory, const char *name, document_writer *write, const void *subject)
{
    char path[4096];

    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
        return tool_failed(COMMAND, "%s: %s", directory, strerror(ENAMETOOLONG));
    FILE *stream = fopen(path, "w");
    if (!stream)
        return tool_failed(COMMAND, "%s: %s", path, strerror(errno));
    write(stream, subject);
    bool failed = ferror(stream);
    if (fclose(stream) != 0 || failed)
        return tool_failed(COMMAND, "%s: %s", path, strerror(errno));
    return TOOL_OK;
}

static int run(const struct tool_args *args)
{
    const char *directory = args->positional[0];
    char name[128];

    if (mkdir(directory, 0755) != 0 && errno != EEXIST)
        return tool_failed(COMMAND, "%s: %s", directory, strerror(errno));
    int rc = write_document(directory, "bloomery.1", write_main_page, NULL);
    for (size_t i = 0; tool_commands[i] && rc == TOOL_OK; i++) {
        snprintf(name, sizeof(name), "bloomery-%s.1", tool_commands[i]->name);
        rc = write_document(directory, name, write_command_page, tool_commands[i]);
    }
    if (rc == TOOL_OK)
        rc = write_document(directory, "bloomery.bash", write_bash_completion, NULL);
    return rc == TOOL_OK ? write_document(directory, "_bloomery", write_zsh_completion, NULL) : rc;
}

static const struct tool_option options[] = {{.name = NULL}};

const struct tool_command tool_documents_command = {
    .name = COMMAND,
    .arguments = "DIRECTORY",
    .summary = "Writes the man pages and the completion for bash and zsh into a directory.",
    .text = "Writes bloomery.1, bloomery-<command>.1 for each command, bloomery.bash (to be sourced, or for "
            "/usr/share/bash-completion/completions) and _bloomery (for a directory of zsh's fpath). Packages install "
            "them.",
    .options = options,
    .examples = "bloomery documents /tmp/bloomery && man -l /tmp/bloomery/bloomery-find.1\n"
                "bloomery documents /tmp/bloomery && source /tmp/bloomery/bloomery.bash",
    .run = run,
};
