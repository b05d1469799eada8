#include "program.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SILENCE_S 600 /* no program is silent for longer */

int program_run(char *output_out, size_t size, const char *fmt, ...)
{
    char command[4096], whole[4096 + 16], rest[4096];
    size_t said = 0;
    ssize_t n = 1;
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    cr_assert(len >= 0 && (size_t)len < sizeof(command), "too long: %s", command);
    snprintf(whole, sizeof(whole), "{ %s; } 2>&1", command);
    FILE *pipe = popen(whole, "r");
    cr_assert_not_null(pipe);
    struct pollfd readable = {.fd = fileno(pipe), .events = POLLIN};
    while (n > 0) { /* all of it, so that it can end */
        cr_assert_eq(poll(&readable, 1, SILENCE_S * 1000), 1, "no output and no end for %d s: %s", SILENCE_S, command);
        bool fits = said + 1 < size;
        n = read(readable.fd, fits ? output_out + said : rest, fits ? size - 1 - said : sizeof(rest));
        said += fits && n > 0 ? (size_t)n : 0;
    }
    output_out[said] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
