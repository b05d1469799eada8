#include "program.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

int program_run(char *output_out, size_t size, const char *fmt, ...)
{
    char command[4096], whole[4096 + 16], rest[4096];
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    cr_assert(len >= 0 && (size_t)len < sizeof(command), "too long: %s", command);
    snprintf(whole, sizeof(whole), "{ %s; } 2>&1", command);
    FILE *pipe = popen(whole, "r");
    cr_assert_not_null(pipe);
    output_out[fread(output_out, 1, size - 1, pipe)] = '\0';
    while (fread(rest, 1, sizeof(rest), pipe) > 0)
        ; /* so that it can end */
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
