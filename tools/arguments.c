#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "terminal.h"
#include "tool.h"

__attribute__((format(printf, 2, 0))) static void complain(const char *command, const char *fmt, va_list args)
{
    fprintf(stderr, "%sbloomery %s:%s ", terminal_colour(TERMINAL_RED), command, terminal_colour(TERMINAL_PLAIN));
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}

int tool_failed(const char *command, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    complain(command, fmt, args);
    va_end(args);
    return TOOL_FAILED;
}

int tool_misused(const char *command, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    complain(command, fmt, args);
    va_end(args);
    return TOOL_USAGE;
}

static size_t find_option(const struct tool_command *command, const char *name, size_t len)
{
    size_t i = 0;

    while (command->options[i].name &&
           (strlen(command->options[i].name) != len || memcmp(command->options[i].name, name, len) != 0))
        i++;
    CHECK(i < TOOL_MAX_OPTIONS);
    return i;
}

const char *tool_option(const struct tool_args *args, const char *name)
{
    size_t i = find_option(args->command, name, strlen(name));

    CHECK(args->command->options[i].name); /* an option that the row lacks */
    return args->values[i];
}

/* Takes the option at argv[*at], and the argument behind it where that is its value. */
static int take_option(const struct tool_command *command, char **argv, int *at, struct tool_args *args)
{
    const char *argument = argv[*at];
    size_t len = strcspn(argument, "="), i = find_option(command, argument, len);
    const struct tool_option *option = &command->options[i];

    if (!option->name)
        return tool_misused(command->name, "unknown option '%.*s'", (int)len, argument);
    if (args->values[i])
        return tool_misused(command->name, "%s is given twice", option->name);
    if (!option->value) {
        if (argument[len] == '=')
            return tool_misused(command->name, "%s takes no value", option->name);
        args->values[i] = "";
        return TOOL_OK;
    }
    args->values[i] = argument[len] == '=' ? argument + len + 1 : argv[++*at];
    if (!args->values[i])
        return tool_misused(command->name, "%s needs a value", option->name);
    return TOOL_OK;
}

int tool_read_arguments(const struct tool_command *command, int argc, char **argv, struct tool_args *args_out)
{
    struct tool_args args = {.command = command, .positional = argv};
    bool only_positional = false;
    unsigned n = 0;

    for (int i = 0; i < argc; i++) {
        if (only_positional || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (n == command->max)
                return tool_misused(command->name, "one argument too many: '%s'", argv[i]);
            argv[n++] = argv[i]; /* behind what has been read */
        } else if (strcmp(argv[i], "--") == 0) {
            only_positional = true;
        } else if (take_option(command, argv, &i, &args) != TOOL_OK) {
            return TOOL_USAGE;
        }
    }
    if (n < command->min)
        return tool_misused(command->name, "%u argument%s needed, %u given", command->min,
                            command->min == 1 ? " is" : "s are", n);
    argv[n] = NULL;
    args.npositional = n;
    *args_out = args;
    return TOOL_OK;
}

bool tool_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool tool_parse_double(const char *text, double *out)
{
    char *end;

    if ((text[0] < '0' || text[0] > '9') && text[0] != '.')
        return false;
    *out = strtod(text, &end);
    return *end == '\0';
}

/* ---- JSON ---- */

/* The length of the UTF-8 sequence at the beginning, 0 if it is none. */
static size_t utf8_length(const unsigned char *s, size_t len)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 && s[0] > 0xc1 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;

    if (n == 0 || n > len || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
    }
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
               (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : n;
}

void tool_print_json(FILE *stream, const char *bytes, size_t len)
{
    const unsigned char *s = (const unsigned char *)bytes;

    fputc('"', stream);
    for (size_t i = 0, n; i < len; i += n ? n : 1) {
        n = utf8_length(s + i, len - i);
        if (n == 0 || s[i] < 0x20 || s[i] == 0x7f)
            fprintf(stream, "\\u%04x", s[i]);
        else if (s[i] == '"' || s[i] == '\\')
            fprintf(stream, "\\%c", s[i]);
        else
            fwrite(s + i, 1, n, stream);
    }
    fputc('"', stream);
}
