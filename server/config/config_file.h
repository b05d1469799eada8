/* config_file: settings from files and arguments, and as files. */
#pragma once

#include <sys/stat.h>

#include "buf.h"
#include "config.h"
#include "errbuf.h"

/* Applies a file in redis.conf's form: one `name value ...` a line, '#' comments, values in "..." (with \n \r \t \b \a
 * \xHH \" \\) or '...' (with \'), `include <path>` (relative to the including file). The last value of a setting
 * counts. Several `save` lines of one file and its includes form one list; `save ""` empties it.
 *
 * Settings of earlier versions have no effect: with CONFIG_OK `err` names them.
 *
 * `path` "-" is the standard input. CONFIG_OK, CONFIG_REFUSED (`err` begins with the file and line at fault), or a
 * negative errno when a file cannot be read (`err` names it). An error may come behind changes of `cfg`. */
int config_load_file(struct config *cfg, const char *path, struct errbuf *err) __attribute__((warn_unused_result));

/* The same for text in memory; messages and includes use `name` as its path. NUL bytes in the text are refused. */
int config_load_text(struct config *cfg, const char *name, struct slice text, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Makes the file `path` hold the settings of `cfg`. Lines of changed settings are replaced, missing settings are added
 * at the end, and all other text (comments, order, includes, correct lines) stays. The file is replaced atomically,
 * with the same mode; a symbolic link stays and its target is replaced. CONFIG_OK; or CONFIG_REFUSED (the present file
 * cannot be read as settings) or a negative errno, with the reason in `err` and the file unchanged. Reads, writes and
 * syncs files: not on a loop. */
int config_rewrite(const struct config *cfg, const char *path, struct errbuf *err) __attribute__((warn_unused_result));

/* The text that config_rewrite() would write for a file with this text. */
int config_rewrite_text(const struct config *cfg, const char *name, struct slice text, struct buf *out,
                        struct errbuf *err) __attribute__((warn_unused_result));

enum config_action {
    CONFIG_RUN,          /* start the daemon */
    CONFIG_SHOW_HELP,    /* --help, -h: print config_help() and exit */
    CONFIG_SHOW_VERSION, /* --version, -v */
    CONFIG_SHOW_CONFIG,  /* --print-config: print config_print() and exit */
    CONFIG_CHECK,        /* --check-config: report whether a start would accept the settings, and exit */
};

struct config_start {
    enum config_action action;
    const char *file; /* the configuration file among the arguments (points into argv), "-" for stdin, NULL for none */
};

/* Applies `bloomeryd [FILE|-] [--name value ...] ...` to `cfg`: the file first, then the arguments, which override it.
 * `--name=value` works too, also for a value that begins with "--". argv[0] is skipped. Ends with config_check().
 * Statuses as config_load_file(); `start_out` is set with CONFIG_OK only. */
int config_load_args(struct config *cfg, int argc, char *const *argv, struct config_start *start_out,
                     struct errbuf *err) __attribute__((warn_unused_result));

/* Called afterwards: overwrites passwords among the arguments. */
void config_hide_secrets(int argc, char *const *argv);

/* The settings as a commented file that config_load_file() reads back to the same values. conf/bloomery.conf is this
 * text for the defaults. Secrets are written out: the text is a configuration file. */
void config_print(const struct config *cfg, struct buf *out);

/* The text of --help. */
void config_help(struct buf *out);

/* ---- small files as a whole: the configuration file, the file of users ----
 *
 * All of these return 0 or a negative errno, with the reason in `err`. They read, write and sync: not on a loop. */

/* Appends the file to `out`, up to its cap. */
int config_file_read(const char *path, struct buf *out, struct stat *stat_out, struct errbuf *err);

/* Writes a new file beside the old one, syncs it and renames it. `path` is no symbolic link. `old` has the mode and the
 * owner; NULL: only the owner may read the file. After an error the old file is as it was. */
int config_file_replace(const char *path, const struct buf *text, const struct stat *old, struct errbuf *err);

/* Writes "<what> <path>: " and the text of errno, which it returns negated. */
int config_file_failed(const char *what, const char *path, struct errbuf *err);
