/* tool: what the subcommands of `bloomery` have in common.
 *
 * A subcommand is a function and a row in the table of main.c. It prints results to stdout and errors to stderr, and
 * returns an exit code. */
#ifndef BLOOMERY_TOOL_H
#define BLOOMERY_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "manifest.h"

enum tool_exit {
    TOOL_OK = 0,
    TOOL_FAILED = 1, /* it was understood and could not be done */
    TOOL_USAGE = 2,  /* it was not understood */
};

struct tool_command {
    const char *name;
    const char *arguments; /* as in the usage line */
    const char *summary;   /* one line */
    const char *help;      /* the rest; lines end with \n */
    int (*run)(int argc, char **argv); /* argv[0] is the name of the subcommand */
};

/* "bloomery <command>: <message>" on stderr. Each returns the code that goes with it; main() adds the usage to TOOL_USAGE. */
int tool_failed(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int tool_misused(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Splits arguments into positional ones and options. An option is "--name value" or "--name=value"; "--" ends them.
 * What else begins with a dash is an unknown option, unless it is one alone. `options` ends with a NULL name; the
 * values found are set in it. TOOL_OK, or TOOL_USAGE after a message: an unknown option, one without a value, one given
 * twice, or a number of positional arguments other than `npositional`. */
struct tool_option {
    const char *name; /* with the dashes */
    const char *value;
    bool flag;        /* it takes no value; when it is given, `value` is "" */
};
int tool_arguments(int argc, char **argv, struct tool_option *options, const char **positional, size_t npositional);

/* The whole text is a number in the range. */
bool tool_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);
bool tool_parse_double(const char *text, double *out);

/* Locks a data directory while a subcommand looks into it; -1 in `fd_out` when it has no lock file. TOOL_OK, or
 * TOOL_FAILED after a message: it is no directory, or a daemon has it. */
int tool_lock(const char *command, const char *datadir, int *fd_out);

/* Feeds the MANIFEST to the sink. TOOL_OK, or TOOL_FAILED with the reason in `err`. `save_out` may be NULL. */
int tool_read_manifest(const char *datadir, const struct manifest_sink *sink, struct manifest_save *save_out,
                       struct errbuf *err);

int tool_import(int argc, char **argv);
int tool_check(int argc, char **argv);
int tool_export(int argc, char **argv);
int tool_unpack(int argc, char **argv);
int tool_bench(int argc, char **argv);

#endif
