/* program: runs another program to its end. */
#ifndef BLOOMERY_TEST_PROGRAM_H
#define BLOOMERY_TEST_PROGRAM_H

#include <stddef.h>

/* Runs a command of the shell, built as by printf. What it writes to its standard output and error goes to output_out, as
 * much of it as fits, with a NUL behind it. Its exit status, 128 if a signal has ended it. A command that cannot be run, or
 * is longer than 4 kB, fails the test. */
int program_run(char *output_out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
