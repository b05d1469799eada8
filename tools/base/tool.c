/* The arguments, messages and help of subcommands; what those that read a data directory share. */
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "check.h"
#include "fsops.h"
#include "key_file.h"
#include "manifest.h"
#include "name_code.h"
#include "slice.h"
#include "store.h"

const char *terminal_colour(enum terminal_colour colour)
{
    static const char *const codes[] = {
        [TERMINAL_PLAIN] = "\033[0m", [TERMINAL_RED] = "\033[1;31m", [TERMINAL_GREEN] = "\033[32m"};

    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    bool has_colours = !(none && *none) && term && strcmp(term, "dumb") != 0 && isatty(STDERR_FILENO);
    return has_colours ? codes[colour] : "";
}

/* Of UTF-8. Not control characters (U+0080 to U+009F are some, too), separators of lines (U+2028, U+2029), or
 * characters that change the direction of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069). */
static bool is_printable(const char *character, size_t len)
{
    const unsigned char *p = (const unsigned char *)character;
    if (len < 2)
        return len == 1 && p[0] >= 0x20 && p[0] != 0x7f;
    if (len == 2)
        return !(p[0] == 0xc2 && p[1] < 0xa0) && !(p[0] == 0xd8 && p[1] == 0x9c);
    if (p[0] != 0xe2 || len != 3)
        return true;
    return p[1] == 0x80   ? p[2] != 0x8e && p[2] != 0x8f && (p[2] < 0xa8 || p[2] > 0xae)
           : p[1] == 0x81 ? p[2] < 0xa6 || p[2] > 0xa9
                          : true;
}

/* Prints a text of foreign origin, such as a path, with control characters, characters that change the direction of
 * text, and bytes that are not UTF-8 as \xHH: they would control the terminal. */
static void print_text_safely(FILE *stream, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t n = utf8_char(text + at, len - at);
        if (is_printable(text + at, n))
            fwrite(text + at, 1, n, stream);
        else
            for (size_t i = 0; i < (n ? n : 1); i++)
                fprintf(stream, "\\x%02x", (unsigned char)text[at + i]);
        at += n ? n : 1;
    }
}

void tool_print_result(const char *text, size_t len)
{
    static int terminal = -1;
    if (terminal < 0)
        terminal = isatty(STDOUT_FILENO);
    if (terminal)
        print_text_safely(stdout, text, len);
    else
        fwrite(text, 1, len, stdout);
}

/* Overwrites the login of each address of a server in the text, mistyped ones as well: "redis:/u:pw@host". */
static void hide_logins(char *text)
{
    static const char *const schemes[] = {"redis", "valkey", "unix"};
    for (char *word = text; *word; word += strspn(word, " '=")) {
        size_t len = strcspn(word, " '=");
        char *end = memrchr(word, '@', len), *colon = memchr(word, ':', len);
        for (size_t i = 0; i < 3 && end && colon && colon < end; i++)
            if (strncmp(word, schemes[i], strlen(schemes[i])) == 0)
                memset(colon + 1, '*', (size_t)(end - colon - 1));
        word += len;
    }
}

__attribute__((format(printf, 2, 0))) static void complain(const char *command, const char *fmt, va_list args)
{
    char *text = NULL;
    int len = vasprintf(&text, fmt, args);

    fprintf(stderr, "%sbloomery %s:%s ", terminal_colour(TERMINAL_RED), command, terminal_colour(TERMINAL_PLAIN));
    if (len >= 0)
        hide_logins(text);
    if (len >= 0)
        print_text_safely(stderr, text, (size_t)len);
    else
        fprintf(stderr, "%s", fmt);
    fputc('\n', stderr);
    if (len >= 0)
        free(text);
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

    CHECK(args->command->options[i].name); /* the row lacks this option */
    return args->values[i];
}

/* Takes the option at argv[*at], and the next argument if that is its value. */
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

/* How many arguments the usage line demands and allows. */
static void count_arguments(const struct tool_command *command, unsigned *min_out, unsigned *max_out)
{
    const char *word = command->arguments;
    size_t optional = 0, len;

    *min_out = *max_out = 0;
    for (; *word && *word != '-'; word += len + strspn(word + len, " ]")) {
        optional |= strspn(word, "[");
        len = strcspn(word, " ]");
        *min_out += !optional;
        *max_out = len >= 3 && memcmp(word + len - 3, "...", 3) == 0 ? UINT_MAX : *max_out + 1;
        optional = word[len] == ']' ? 0 : optional;
    }
}

/* The word of the usage line for argument n, without the optional ones. */
static const char *argument_name(const struct tool_command *command, unsigned n, size_t *len_out)
{
    const char *word = command->arguments;
    for (; (n > 0 || *word == '[') && strchr(word, ' '); word = strchr(word, ' ') + 1)
        n -= *word != '[';
    *len_out = strcspn(word, " .");
    return word;
}

int tool_read_arguments(const struct tool_command *command, int argc, char **argv, struct tool_args *args_out)
{
    struct tool_args args = {.command = command, .positional = argv};
    bool only_positional = false;
    unsigned n = 0, min, max;

    count_arguments(command, &min, &max);
    for (int i = 0; i < argc; i++) {
        if (only_positional || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (n == max)
                return tool_misused(command->name, "unexpected argument: '%s'", argv[i]);
            argv[n++] = argv[i]; /* after the positional ones read so far */
        } else if (strcmp(argv[i], "--") == 0) {
            only_positional = true;
        } else if (take_option(command, argv, &i, &args) != TOOL_OK) {
            return TOOL_USAGE;
        }
    }
    if (n < min) {
        size_t len;
        const char *missing = argument_name(command, n, &len);
        return tool_misused(command->name, "%.*s is missing", (int)len, missing);
    }
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

int tool_number(const struct tool_args *args, const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
    const char *text = tool_option(args, name);

    if (!text || tool_parse_u64(text, min, max, out))
        return TOOL_OK;
    return tool_misused(args->command->name, "%s '%s': must be a number from %" PRIu64 " to %" PRIu64, name, text, min,
                        max);
}

int tool_rate(const struct tool_args *args, const char *name, double *out)
{
    const char *text = tool_option(args, name);
    char *end = (char *)text;

    if (!text)
        return TOOL_OK;
    *out = (text[0] >= '0' && text[0] <= '9') || text[0] == '.' ? strtod(text, &end) : 0;
    if (*out > 0 && *out < 1 && *end == '\0')
        return TOOL_OK;
    return tool_misused(args->command->name, "%s '%s': must be a rate between 0 and 1", name, text);
}

static int choose(const struct key_file *keys, const char *command, const char *path, uint64_t wanted,
                  struct bloom_secret *out)
{
    for (size_t i = 0; i < keys->n; i++) {
        if (wanted && keys->secrets[i].id != wanted)
            continue;
        *out = keys->secrets[i];
        return TOOL_OK;
    }
    return tool_failed(command, "%s has no key %016" PRIx64, path, wanted);
}

int key_option_read(const struct tool_args *args, uint64_t needed, const char *file, struct bloom_secret *out)
{
    const char *command = args->command->name, *path = tool_option(args, "--key-file"),
               *id = tool_option(args, "--key-id");
    struct key_file *keys;
    struct errbuf err = {""};
    uint64_t wanted = needed;

    *out = (struct bloom_secret){0};
    if (!path && id)
        return tool_misused(command, "--key-id needs --key-file");
    if (!path)
        return !needed ? TOOL_OK
                       : tool_failed(command, "%s is KEYED: give --key-file with the key %016" PRIx64, file, needed);
    if (id && !key_id_parse(id, strlen(id), &wanted))
        return tool_misused(command, "--key-id '%s': must be an id of 16 hexadecimal digits", id);
    if (needed && wanted != needed)
        return tool_misused(command, "--key-id %s: the key of %s is %016" PRIx64, id, file, needed);
    if (key_file_read(fsops_posix(), path, &keys, &err) != 0)
        return tool_failed(command, "%s", err.text);
    int rc = choose(keys, command, path, wanted, out);
    key_file_free(keys);
    return rc;
}

#define WIDTH       100
#define OPTION_WIDE 22 /* the column of an option's explanation */

/* Prints words from column `column` on, in lines that begin at `indent`. Returns the column after them. */
static size_t print_wrapped(const char *text, size_t len, size_t indent, size_t column)
{
    for (size_t at = 0; at < len;) {
        size_t word = 0;
        while (at + word < len && text[at + word] != ' ')
            word++;
        if (column > indent && column + 1 + word > WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)word, text + at);
        column += word;
        at += word + 1;
    }
    return column;
}

/* Lines that begin with a space stay as they are; others are joined to paragraphs that end at an empty line. */
static void print_text(const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        if (text[0] == ' ')
            printf("%.*s", (int)len, text);
        else
            print_wrapped(text, len, 0, 0);
        putchar('\n');
        text += len + (text[len] == '\n');
    }
}

static void print_option(const struct tool_option *option)
{
    int n = printf("  %s%s%s", option->name, option->value ? " " : "", option->value ? option->value : "");
    size_t column = n > 0 ? (size_t)n : 0;

    if (column + 2 > OPTION_WIDE) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", (int)(OPTION_WIDE - column), "");
    print_wrapped(option->doc, strlen(option->doc), OPTION_WIDE, OPTION_WIDE);
    putchar('\n');
}

static const char *exit_status(const struct tool_command *command)
{
    if (command->exit_status)
        return command->exit_status;
    return command->greps ? "0: something was found. 1: nothing was found. 2: failure or wrong arguments."
                          : "0: success. 1: failure, with the reason on stderr. 2: wrong arguments.";
}

void tool_print_usage(const struct tool_command *command, FILE *stream)
{
    fprintf(stream, "Usage: bloomery %s%s%s%s\n", command->name, command->arguments[0] ? " " : "", command->arguments,
            command->options[0].name ? " [options]" : "");
}

void tool_print_help(const struct tool_command *command)
{
    tool_print_usage(command, stdout);
    printf("\n%s\n\n", command->summary);
    print_text(command->text);
    if (command->options[0].name && !command->options[0].group)
        putchar('\n');
    for (const struct tool_option *option = command->options; option->name; option++) {
        if (option->group)
            printf("\n%s:\n", option->group);
        print_option(option);
    }
    if (command->examples) {
        printf("\nExamples:\n");
        for (const char *line = command->examples; *line;) {
            size_t len = strcspn(line, "\n");
            printf("  %.*s\n", (int)len, line);
            line += len + (line[len] == '\n');
        }
    }
    printf("\nExit status:\n");
    print_text(exit_status(command));
    putchar('\n');
}

#define LOCK_TRIES    100
#define LOCK_RETRY_US 20000

bool tool_lock_waits(unsigned *tries)
{
    return ++*tries <= LOCK_TRIES && usleep(LOCK_RETRY_US) == 0;
}

/* Whether there is anything of a data directory. A daemon that has never saved has a log. */
static bool is_data_directory(const char *path)
{
    static const char *const names[] = {MANIFEST_NAME, FILTERS_DIR, "log"};
    const struct fsops *fs = fsops_posix();
    char name[4096];
    struct fs_stat st;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(name, sizeof(name), "%s/%s", path, names[i]);
        if (fs->stat(fs->ctx, name, &st) == 0)
            return true;
    }
    return false;
}

/* Does not create the lock file, because that would change the directory. Who may only read it locks it without leaving
 * his process id there. */
int tool_lock(const char *command, const char *datadir, int *fd_out, struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();
    struct fs_stat st;
    char path[4096];
    pid_t owner = 0;

    *fd_out = -1;
    snprintf(path, sizeof(path), "%s/.", datadir); /* also through a symbolic link */
    int rc = fs->stat(fs->ctx, path, &st);
    if (rc != 0)
        return errbuf_fail(err, TOOL_FAILED, "%s: %s", datadir, strerror(-rc));
    if (!is_data_directory(datadir))
        return errbuf_fail(err, TOOL_FAILED,
                           "%s is no data directory: it has neither " MANIFEST_NAME " nor " FILTERS_DIR " nor log",
                           datadir);
    snprintf(path, sizeof(path), "%s/LOCK", datadir);
    if (fs->stat(fs->ctx, path, &st) != 0)
        return TOOL_OK;
    for (unsigned tries = 0; (rc = fs->lock(fs->ctx, path, fd_out, &owner)) == -EWOULDBLOCK && tool_lock_waits(&tries);)
        ;
    if ((rc == -EACCES || rc == -EROFS) && (rc = fs->open(fs->ctx, path, FS_READ, fd_out)) == 0)
        rc = flock(*fd_out, LOCK_EX | LOCK_NB) == 0 ? 0 : -errno;
    if (rc == -EWOULDBLOCK && owner)
        return errbuf_fail(err, TOOL_FAILED, "%s is in use by process %ld; stop the daemon first", datadir,
                           (long)owner);
    if (rc == -EWOULDBLOCK)
        return errbuf_fail(err, TOOL_FAILED, "%s is in use by another process; stop the daemon first", datadir);
    if (rc != 0)
        fprintf(stderr, "bloomery %s: warning: %s: %s: it is not known whether a daemon uses the directory\n", command,
                path, strerror(-rc));
    return TOOL_OK;
}

int tool_read_manifest(const char *datadir, const struct manifest_sink *sink, struct manifest_save *save_out,
                       struct errbuf *err)
{
    int rc = store_visit(datadir, NULL, sink, save_out, err);

    if (rc == STORE_DAMAGED)
        errbuf_prefix(err, "damaged");
    return rc == 0 ? TOOL_OK : TOOL_FAILED;
}

static int pass_over(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    (void)ctx, (void)filter, (void)err;
    return 0;
}

struct databases tool_read_databases(const char *datadir)
{
    const struct manifest_sink nothing = {.on_filter = pass_over};
    struct manifest_save save = {0};
    (void)tool_read_manifest(datadir, &nothing, &save, NULL);
    return save.databases;
}

bool tool_key_of(const struct databases *databases, unsigned db, const char *prefix, const char *name, size_t name_len,
                 struct tool_key *key_out)
{
    size_t prefix_len = strlen(prefix), len = prefix_len + name_len;
    unsigned database = databases_get(databases, db);
    char *at = key_out->bytes + DATABASE_PREFIX;

    if (len > MANIFEST_MAX_NAME)
        return false;
    memcpy(at, prefix, prefix_len);
    memcpy(at + prefix_len, name, name_len);
    size_t mark = database_prefix_for(database, at, len);
    if (mark)
        database_prefix_put(key_out->bytes, database);
    else
        memmove(key_out->bytes, at, len);
    key_out->len = mark + len;
    return key_out->len <= MANIFEST_MAX_NAME;
}

int tool_read_database(const struct tool_args *args, unsigned *db_out)
{
    uint64_t db = 0;
    int status = tool_number(args, "--db", 0, DATABASES_MAX - 1, &db);

    *db_out = (unsigned)db;
    return status;
}

void tool_print_name(FILE *stream, const char *name, size_t len)
{
    char *text = malloc(name_encoded_len(name, len) + 1);

    if (text) {
        name_encode(name, len, text);
        fwrite(text, 1, name_encoded_len(name, len), stream);
    }
    free(text);
}
