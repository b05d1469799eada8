/* tool: shared by the subcommands of `bloomery`.
 *
 * A subcommand is a file with a function and a row (struct tool_command) that describes it: arguments, options,
 * examples. main.c lists the rows. The help and the reading of arguments follow from them, and from the help the man
 * page and the completion. A subcommand prints results to stdout and errors to stderr, and returns an exit code. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bloom_key.h"
#include "errbuf.h"
#include "manifest.h"

enum tool_exit {
    TOOL_OK = 0,
    TOOL_FAILED = 1, /* 2 for a command with `greps` */
    TOOL_USAGE = 2,  /* wrong arguments */
    TOOL_NONE = -1,  /* nothing was found, for a command with `greps`; the process exits with 1 */
};

struct tool_option {
    const char *name;  /* with the dashes; NULL ends a list */
    const char *value; /* as the help names its value, "N"; NULL: it takes none */
    const char *doc;   /* sentences */
    const char *group; /* a heading before this option; NULL: none */
};

struct tool_args;

struct tool_command {
    const char *name;
    const char *arguments; /* the positional ones as in the usage line, which also gives their possible number: "DATADIR
                            * [NAME] FILE..."; options, if it has them, come last */
    const char *summary;   /* one sentence */
    const char *text;      /* paragraphs, separated by empty lines; a line that begins with a space is kept as it is */
    const struct tool_option *options;
    const char *examples;    /* lines of a shell; may be NULL */
    const char *exit_status; /* explains its exit codes; NULL: the usual ones */
    bool greps;              /* exit codes as grep: 0 found, 1 not found, 2 failure */
    int (*run)(const struct tool_args *args);
};

#define TOOL_MAX_OPTIONS 40

/* The arguments of a subcommand, as its row describes them. */
struct tool_args {
    const struct tool_command *command;
    char **positional; /* then NULL */
    unsigned npositional;
    const char *values[TOOL_MAX_OPTIONS]; /* internal */
};

/* The value of an option of the row, "" if it takes none; NULL when it is not given. */
const char *tool_option(const struct tool_args *args, const char *name);

/* Reads the arguments after the subcommand's name. An option is "--name value" or "--name=value"; "--" ends the
 * options. Any other argument that begins with a dash is an unknown option, except "-" alone. TOOL_OK, or TOOL_USAGE
 * after a message. Reorders argv. */
int tool_read_arguments(const struct tool_command *command, int argc, char **argv, struct tool_args *args_out);

/* The escape of a colour for stderr; "" if it is no terminal, NO_COLOR is set (no-color.org), or TERM is dumb. */
enum terminal_colour { TERMINAL_PLAIN, TERMINAL_RED, TERMINAL_GREEN };
const char *terminal_colour(enum terminal_colour colour);

/* A result on stdout. On a terminal, characters that control it, and bytes that are not UTF-8, are \xHH. */
void tool_print_result(const char *text, size_t len);

/* Print "bloomery <command>: <message>" on stderr, escaped in the same way. Each returns its code, TOOL_FAILED or
 * TOOL_USAGE; main() adds the usage to the latter. */
int tool_failed(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int tool_misused(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Whether the whole text is a number in the range. */
bool tool_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* Read the value of an option: a number of the range, a rate between 0 and 1. Without the option *out stays as it is.
 * TOOL_OK, or TOOL_USAGE after a message. */
int tool_number(const struct tool_args *args, const char *name, uint64_t min, uint64_t max, uint64_t *out);
int tool_rate(const struct tool_args *args, const char *name, double *out);

/* A daemon that has answered SHUTDOWN holds its data directory a little longer. A caller that locks a directory calls
 * this and tries again while it returns true, for two seconds in all. */
bool tool_lock_waits(unsigned *tries);

/* Locks a data directory; `fd_out` is -1 if it has no lock file. TOOL_OK, after a warning if the file cannot be locked;
 * or TOOL_FAILED with the reason in `err`: it is no directory, or a daemon uses it. */
int tool_lock(const char *command, const char *datadir, int *fd_out, struct errbuf *err);

/* The key of a filter in the store (database.h). */
struct tool_key {
    size_t len;
    char bytes[65535 + 16];
};

/* The key of prefix and name in a database, by the number that clients use. False: too long. */
bool tool_key_of(const struct databases *databases, unsigned db, const char *prefix, const char *name, size_t name_len,
                 struct tool_key *key_out);

/* The option --db: the number of a database, 0 without it. TOOL_OK, or TOOL_USAGE after a message. */
#define TOOL_DATABASE_OPTION(text)                  \
    {                                               \
        .name = "--db", .value = "N", .doc = (text) \
    }
int tool_read_database(const struct tool_args *args, unsigned *db_out);

/* Passes each filter of the MANIFEST to the sink, whose on_gone is not called. TOOL_OK, or TOOL_FAILED with the reason
 * in `err`. `save_out` may be NULL. */
int tool_read_manifest(const char *datadir, const struct manifest_sink *sink, struct manifest_save *save_out,
                       struct errbuf *err);

/* The databases of the MANIFEST; as without a MANIFEST, if it cannot be read: reading the filters reports that. */
struct databases tool_read_databases(const char *datadir);

/* Prints a filter's name percent-encoded (name_code.h). */
void tool_print_name(FILE *stream, const char *name, size_t len);

/* The rows, one in the file of each subcommand. */
extern const struct tool_command tool_advise_command, tool_build_command, tool_check_command, tool_export_command,
    tool_fill_command, tool_find_command, tool_import_command, tool_key_command, tool_list_command, tool_load_command,
    tool_merge_command, tool_move_command, tool_query_command, tool_rebuild_command, tool_show_command,
    tool_verify_command;

/* All of them in the order of the help; ends with NULL. */
extern const struct tool_command *const tool_commands[];

/* Prints the help of a subcommand, from its row. */
void tool_print_help(const struct tool_command *command);
void tool_print_usage(const struct tool_command *command, FILE *stream); /* its arguments in one line */

/* key_option: --key-file and --key-id, to hash items as a KEYED filter does (bloom_key.h). Thread: one. */

#define KEY_OPTIONS(of_filter)                                                                                  \
    {.name = "--key-file", .value = "FILE", .doc = (of_filter)},                                                \
    {                                                                                                           \
        .name = "--key-id", .value = "ID", .doc = "The key of --key-file, by its id; the default is the first." \
    }

/* The key that the options choose; id 0: none. `needed`: the id that the name of `file` requires; 0: none. TOOL_OK, or
 * TOOL_USAGE or TOOL_FAILED after a message. The caller erases it. */
int key_option_read(const struct tool_args *args, uint64_t needed, const char *file, struct bloom_secret *out);
