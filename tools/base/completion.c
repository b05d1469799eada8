/* Completion for bash and zsh: commands, their options, the values of options, and files. The rows have no characters
 * that are special to either shell, beyond those escaped here. */
#include <string.h>

#include "tool.h"

/* ---- bash ---- */

static void put_bash_options(FILE *out, const struct tool_command *command)
{
    fprintf(out, "    %s)\n        options='", command->name);
    for (const struct tool_option *option = command->options; option->name; option++)
        fprintf(out, "%s ", option->name);
    fputs("--help'\n        case $previous in\n", out);
    for (const struct tool_option *option = command->options; option->name; option++) {
        if (!option->value)
            continue;
        if (option->words)
            fprintf(out, "        %s) words='%s' ;;\n", option->name, option->words);
        else if (strcmp(option->value, "FILE") == 0 || strcmp(option->value, "PATH") == 0)
            fprintf(out, "        %s) words=-f ;;\n", option->name);
        else
            fprintf(out, "        %s) return ;;\n", option->name);
    }
    fputs("        esac\n        ;;\n", out);
}

void write_bash_completion(FILE *out, const void *subject)
{
    (void)subject;
    fputs("# bash completion for bloomery, made by 'bloomery documents'.\n_bloomery()\n{\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options= words=\n"
          "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W '",
          out);
    for (size_t i = 0; tool_commands[i]; i++)
        fprintf(out, "%s ", tool_commands[i]->name);
    fputs("help --help --version' -- \"$current\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n    help)\n"
          "        [ \"$COMP_CWORD\" -eq 2 ] && COMPREPLY=($(compgen -W '",
          out);
    for (size_t i = 0; tool_commands[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", tool_commands[i]->name);
    fputs("' -- \"$current\"))\n        return\n        ;;\n", out);
    for (size_t i = 0; tool_commands[i]; i++)
        put_bash_options(out, tool_commands[i]);
    fputs("    esac\n"
          "    if [ \"$words\" = -f ]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
          "    elif [ -n \"$words\" ]; then\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "    elif [[ $current == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
          "    else\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
          "    fi\n"
          "}\n"
          "complete -F _bloomery bloomery\n",
          out);
}

/* ---- zsh ---- */

/* Within single quotes; `colons` are escaped in descriptions of _describe, brackets in those of _arguments. */
static void put_zsh(FILE *out, const char *text, const char *escaped)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fprintf(out, "%s%c", strchr(escaped, *text) ? "\\" : "", *text);
    }
}

static void put_zsh_option(FILE *out, const struct tool_option *option)
{
    fprintf(out, "            '%s%s[", option->name, option->value ? "=" : "");
    put_zsh(out, option->doc, "[]:\\");
    fputs("]", out);
    if (option->value) {
        fputs(":", out);
        put_zsh(out, option->value, "[]:\\");
        if (option->words)
            fprintf(out, ":(%s)", option->words);
        else
            fputs(strcmp(option->value, "FILE") == 0 || strcmp(option->value, "PATH") == 0 ? ":_files" : ": ", out);
    }
    fputs("' \\\n", out);
}

void write_zsh_completion(FILE *out, const void *subject)
{
    (void)subject;
    fputs("#compdef bloomery\n# zsh completion for bloomery, made by 'bloomery documents'.\n_bloomery()\n{\n"
          "    local -a commands\n    commands=(\n",
          out);
    for (size_t i = 0; tool_commands[i]; i++) {
        fprintf(out, "        '%s:", tool_commands[i]->name);
        put_zsh(out, tool_commands[i]->summary, ":\\");
        fputs("'\n", out);
    }
    fputs("        'help:Explains a command.'\n    )\n"
          "    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
          "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n"
          "    help)\n        _describe command commands\n        ;;\n",
          out);
    for (size_t i = 0; tool_commands[i]; i++) {
        fprintf(out, "    %s)\n        _arguments \\\n", tool_commands[i]->name);
        for (const struct tool_option *option = tool_commands[i]->options; option->name; option++)
            put_zsh_option(out, option);
        fputs("            '--help[Explains the command.]' '*:file:_files'\n        ;;\n", out);
    }
    fputs("    esac\n}\n_bloomery \"$@\"\n", out);
}
