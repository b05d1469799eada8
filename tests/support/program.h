/* program: runs another program to its end. */
#pragma once

#include <stddef.h>

/* Runs a command of the shell, built as by printf. output_out gets as much of its standard output and error as fits,
 * with a NUL after it. Returns the exit status, 128 if a signal has ended the command. A command that cannot be run, or
 * is longer than 4 kB, fails the test. */
int program_run(char *output_out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Asserts that the output has the text. */
#define program_said(output, text) cr_assert(strstr(output, text), "'%s' is not in: %s", text, output)

/* Like program_run(), and asserts that the command exits with this status and that its output has the text. */
#define program_expect(output, size, code, text, ...)         \
    do {                                                      \
        int ran = program_run(output, size, __VA_ARGS__);     \
        cr_assert(ran == (code), "exit %d: %s", ran, output); \
        program_said(output, text);                           \
    } while (0)
