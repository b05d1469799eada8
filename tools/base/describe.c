/* The help of a subcommand, from its row. */
#include <stdio.h>
#include <string.h>

#include "tool.h"

#define WIDTH       100
#define OPTION_WIDE 22 /* the column of an option's explanation */

/* Prints words from column `column` on, in lines that begin at `indent`. Returns the column after them. */
static size_t print_wrapped(const char *text, size_t len, size_t indent, size_t column)
{
    for (size_t at = 0; at < len;) {
        size_t word = 0;
        while (at + word < len && text[at + word] != ' ')
            word++;
        if (column > indent && column + 1 + word > WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)word, text + at);
        column += word;
        at += word + 1;
    }
    return column;
}

/* Lines that begin with a space stay as they are; others are joined to paragraphs that end at an empty line. */
static void print_text(const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        if (text[0] == ' ')
            printf("%.*s", (int)len, text);
        else
            print_wrapped(text, len, 0, 0);
        putchar('\n');
        text += len + (text[len] == '\n');
    }
}

static void print_option(const struct tool_option *option)
{
    int n = printf("  %s%s%s", option->name, option->value ? " " : "", option->value ? option->value : "");
    size_t column = n > 0 ? (size_t)n : 0;

    if (column + 2 > OPTION_WIDE) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", (int)(OPTION_WIDE - column), "");
    print_wrapped(option->doc, strlen(option->doc), OPTION_WIDE, OPTION_WIDE);
    putchar('\n');
}

static const char *exit_status(const struct tool_command *command)
{
    if (command->exit_status)
        return command->exit_status;
    return command->greps ? "0: something was found. 1: nothing was found. 2: failure or wrong arguments."
                          : "0: success. 1: failure, with the reason on stderr. 2: wrong arguments.";
}

void tool_print_usage(const struct tool_command *command, FILE *stream)
{
    fprintf(stream, "Usage: bloomery %s%s%s%s\n", command->name, command->arguments[0] ? " " : "", command->arguments,
            command->options[0].name ? " [options]" : "");
}

void tool_print_help(const struct tool_command *command)
{
    tool_print_usage(command, stdout);
    printf("\n%s\n\n", command->summary);
    print_text(command->text);
    if (command->options[0].name && !command->options[0].group)
        putchar('\n');
    for (const struct tool_option *option = command->options; option->name; option++) {
        if (option->group)
            printf("\n%s:\n", option->group);
        print_option(option);
    }
    if (command->examples) {
        printf("\nExamples:\n");
        for (const char *line = command->examples; *line;) {
            size_t len = strcspn(line, "\n");
            printf("  %.*s\n", (int)len, line);
            line += len + (line[len] == '\n');
        }
    }
    printf("\nExit status:\n");
    print_text(exit_status(command));
    putchar('\n');
}
