#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

__attribute__((format(printf, 2, 0))) static void complain(const char *command, const char *fmt, va_list args)
{
    fprintf(stderr, "bloomery %s: ", command);
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

static struct tool_option *find_option(struct tool_option *options, const char *argument, size_t len)
{
    for (; options->name; options++) {
        if (strlen(options->name) == len && memcmp(options->name, argument, len) == 0)
            return options;
    }
    return NULL;
}

int tool_arguments(int argc, char **argv, struct tool_option *options, const char **positional, size_t npositional)
{
    const char *command = argv[0];
    bool only_positional = false;
    size_t n = 0;

    for (int i = 1; i < argc; i++) {
        if (only_positional || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (n == npositional)
                return tool_misused(command, "one argument too many: '%s'", argv[i]);
            positional[n++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            only_positional = true;
            continue;
        }
        size_t len = strcspn(argv[i], "=");
        struct tool_option *option = find_option(options, argv[i], len);
        if (!option)
            return tool_misused(command, "unknown option '%.*s'", (int)len, argv[i]);
        if (option->value)
            return tool_misused(command, "%s is given twice", option->name);
        if (option->flag) {
            if (argv[i][len] == '=')
                return tool_misused(command, "%s takes no value", option->name);
            option->value = "";
            continue;
        }
        option->value = argv[i][len] == '=' ? argv[i] + len + 1 : argv[++i];
        if (!option->value)
            return tool_misused(command, "%s needs a value", option->name);
    }
    if (n < npositional)
        return tool_misused(command, "%zu argument%s needed, %zu given", npositional, npositional == 1 ? " is" : "s are", n);
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
