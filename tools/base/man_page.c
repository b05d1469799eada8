/* Man pages in the macros of man(7). In roff a backslash begins an escape, a dot or quote at the beginning of a line a
 * request; "-" is a hyphen and "\-" the minus of the keyboard. */
#include <string.h>

#include "tool.h"
#include "version.h"

static void put_text(FILE *out, const char *text, size_t len)
{
    static const char *const escapes[256] = {
        ['\\'] = "\\e", ['-'] = "\\-", ['\''] = "\\(aq", ['^'] = "\\(ha", ['~'] = "\\(ti", ['`'] = "\\(ga"};

    if (len > 0 && (text[0] == '.' || text[0] == '\''))
        fputs("\\&", out);
    for (size_t i = 0; i < len; i++) {
        const char *escaped = escapes[(unsigned char)text[i]];
        if (escaped)
            fputs(escaped, out);
        else
            fputc(text[i], out);
    }
}

static void put(FILE *out, const char *text)
{
    put_text(out, text, strlen(text));
}

/* Paragraphs, as describe.c prints them: lines that begin with a space stay as they are. */
static void put_paragraphs(FILE *out, const char *text)
{
    bool kept = false;

    while (*text) {
        size_t len = strcspn(text, "\n");
        bool keep = text[0] == ' ';
        if (keep != kept)
            fputs(keep ? ".nf\n" : ".fi\n", out);
        kept = keep;
        if (len == 0)
            fputs(".PP\n", out);
        else
            put_text(out, text, len);
        fputs(len ? "\n" : "", out);
        text += len + (text[len] == '\n');
    }
    fputs(kept ? ".fi\n" : "", out);
}

static void put_option(FILE *out, const struct tool_option *option)
{
    if (option->group) {
        fputs(".SS ", out);
        put(out, option->group);
        fputc('\n', out);
    }
    fputs(".TP\n\\fB", out);
    put(out, option->name);
    fputs("\\fR", out);
    if (option->value) {
        fputs(" \\fI", out);
        put(out, option->value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    put(out, option->doc);
    fputc('\n', out);
}

static void put_examples(FILE *out, const char *examples)
{
    fputs(".SH EXAMPLES\n.nf\n", out);
    while (*examples) {
        size_t len = strcspn(examples, "\n");
        put_text(out, examples, len);
        fputc('\n', out);
        examples += len + (examples[len] == '\n');
    }
    fputs(".fi\n", out);
}

static void put_head(FILE *out, const char *name, const char *summary)
{
    fputs(".TH \"", out);
    for (const char *c = name; *c; c++)
        fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, out);
    fputs("\" 1 \"" BLOOMERY_DATE "\" \"bloomery " BLOOMERY_VERSION "\"\n.SH NAME\n", out);
    put(out, name);
    fputs(" \\- ", out);
    /* A sentence in a table of contents: without its full stop. */
    put_text(out, summary, strlen(summary) - (summary[strlen(summary) - 1] == '.'));
    fputc('\n', out);
}

void write_command_page(FILE *out, const void *subject)
{
    const struct tool_command *command = subject;
    char name[128];

    snprintf(name, sizeof(name), "bloomery-%s", command->name);
    put_head(out, name, command->summary);
    fputs(".SH SYNOPSIS\n\\fBbloomery ", out);
    put(out, command->name);
    fputs("\\fR ", out);
    put(out, command->arguments);
    fputs(command->options[0].name ? " [options]\n" : "\n", out);
    fputs(".SH DESCRIPTION\n", out);
    put_paragraphs(out, command->text);
    if (command->options[0].name)
        fputs(".SH OPTIONS\n", out);
    for (const struct tool_option *option = command->options; option->name; option++)
        put_option(out, option);
    fputs(".SH EXIT STATUS\n", out);
    put(out, tool_exit_status(command));
    fputc('\n', out);
    if (command->examples)
        put_examples(out, command->examples);
    fputs(".SH SEE ALSO\n\\fBbloomery\\fR(1), \\fBbloomeryd\\fR(1)\n", out);
}

void write_main_page(FILE *out, const void *subject)
{
    (void)subject;
    put_head(out, "bloomery", "Work on Filter.db files and on Bloomery's data directories.");
    fputs(".SH SYNOPSIS\n\\fBbloomery\\fR \\fICOMMAND\\fR ...\n.SH DESCRIPTION\n", out);
    put(out,
        "The operator's tool of the Bloom filter server bloomeryd. It also works without a server, on the filters of "
        "SSTables of Cassandra and ScyllaDB. Each command has a page of its own, bloomery-<command>(1), and its "
        "explanation by 'bloomery help COMMAND'. With --json names, paths and items are strings; bytes that are not "
        "UTF-8 are an object, {\"hex\":\"e9\"}.");
    fputs("\n.SH COMMANDS\n", out);
    for (size_t i = 0; tool_commands[i]; i++) {
        fputs(".TP\n\\fBbloomery\\-", out);
        put(out, tool_commands[i]->name);
        fputs("\\fR(1)\n", out);
        put(out, tool_commands[i]->summary);
        fputc('\n', out);
    }
    fputs(".SH OPTIONS\n.TP\n\\fB\\-\\-help\\fR\nLists the commands; after a command, explains the "
          "command.\n.TP\n\\fB\\-\\-version\\fR\nThe version.\n.SH EXIT STATUS\n",
          out);
    put(out,
        "0: success. 1: failure; the reason is on the standard error. 2: wrong arguments. For find and query, as for "
        "grep, 0: something was found; 1: nothing was found; 2: failure or wrong arguments.");
    fputs("\n.SH ENVIRONMENT\n.TP\n\\fBREDISCLI_AUTH\\fR\nThe password of the server, for commands that need one.\n"
          ".TP\n\\fBNO_COLOR\\fR\nWith any value, messages and progress have no colours on a terminal.\n"
          ".SH SEE ALSO\n\\fBbloomeryd\\fR(1)\n",
          out);
}
