/* The command line, and the printouts that come from the table. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config_file.h"
#include "config_internal.h"

#define DOC_COLUMNS 100 /* where comments of the printed file are broken */

/* ---- arguments ---- */

static bool is_option(const char *arg)
{
    return strncmp(arg, "--", 2) == 0 && arg[2] != '\0';
}

static bool read_action(const char *arg, enum config_action *action_out)
{
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
        *action_out = CONFIG_SHOW_HELP;
    else if (strcmp(arg, "--version") == 0 || strcmp(arg, "-v") == 0)
        *action_out = CONFIG_SHOW_VERSION;
    else if (strcmp(arg, "--print-config") == 0)
        *action_out = CONFIG_SHOW_CONFIG;
    else if (strcmp(arg, "--check-config") == 0)
        *action_out = CONFIG_CHECK;
    else
        return false;
    return true;
}

/* Applies `--name value ...` at argv[*i], or `--name=value`; moves *i after it. `values` has room for all of argv. */
static int read_option(struct config *cfg, struct config_merge *merge, int argc, char *const *argv, int *i,
                       struct slice *values, struct errbuf *err)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t n = 0, len = equals ? (size_t)(equals - name) : strlen(name);
    int status;

    ++*i;
    if (equals)
        values[n++] = slice_of(equals + 1);
    else
        while (*i < argc && !is_option(argv[*i]))
            values[n++] = slice_of(argv[(*i)++]);
    if (config_is_retired((struct slice){name, len})) {
        config_note_retired("arguments", (struct slice){name, len}, err);
        return CONFIG_OK;
    }
    status = config_apply(cfg, merge, (struct slice){name, len}, values, n, CONFIG_ARGUMENT, err);
    if (status != CONFIG_OK)
        errbuf_prefix(err, "argument --%.*s", config_shown_name((struct slice){name, len}), name);
    return status == CONFIG_UNKNOWN ? CONFIG_REFUSED : status;
}

static int read_options(struct config *cfg, int argc, char *const *argv, int first, struct config_start *start,
                        struct errbuf *err)
{
    struct config_merge merge = {.save_seen = false};
    struct slice *values = calloc((size_t)argc + 1, sizeof(*values));
    int status = CONFIG_OK;

    if (!values)
        return errbuf_fail(err, -ENOMEM, "out of memory");
    for (int i = first; i < argc && status == CONFIG_OK;) {
        if (read_action(argv[i], &start->action)) {
            i++;
        } else if (is_option(argv[i])) {
            status = read_option(cfg, &merge, argc, argv, &i, values, err);
        } else {
            errbuf_set(err, "argument %d is neither a setting (--name value) nor a configuration file as the first one",
                       i);
            status = CONFIG_REFUSED;
        }
    }
    free(values);
    return status;
}

int config_load_args(struct config *cfg, int argc, char *const *argv, struct config_start *start_out,
                     struct errbuf *err)
{
    struct config_start start = {.action = CONFIG_RUN, .file = NULL};
    int first = 1, status = CONFIG_OK;

    if (argc > 1 && argv[1][0] != '\0' && (argv[1][0] != '-' || argv[1][1] == '\0')) {
        start.file = argv[1];
        first = 2;
        status = config_load_file(cfg, start.file, err);
    }
    STEP(status, read_options(cfg, argc, argv, first, &start, err));
    if (status == CONFIG_OK && start.action != CONFIG_SHOW_HELP && start.action != CONFIG_SHOW_VERSION)
        status = config_check(cfg, CONFIG_ARGUMENT, err);
    if (status == CONFIG_OK)
        *start_out = start;
    return status;
}

/* Overwrites the values of settings with secrets, which every user of the machine could read in the list of processes.
 * An option's values end before the next option, or within its own word. */
void config_hide_secrets(int argc, char *const *argv)
{
    bool hides = false;
    for (int i = 1; i < argc; i++) {
        char *value = argv[i];
        if (is_option(argv[i])) {
            char *equals = strchr(argv[i], '=');
            struct slice name = {argv[i] + 2, equals ? (size_t)(equals - argv[i]) - 2 : strlen(argv[i]) - 2};
            const struct config_row *row = config_find(name);
            hides = row && (row->flags & CONFIG_SECRET || row->type == CONFIG_USERS);
            value = equals ? equals + 1 : NULL;
        }
        if (hides && value)
            memset(value, '*', strlen(value));
    }
}

/* ---- printouts ---- */

/* The order of the file: each line is a heading or a setting. */
struct outline {
    const char *section, *name;
};

static const struct outline outline[] = {
#define SECTION(title)                               {title, NULL},
#define SETTING(type, part, field, name, ...)        {NULL, name},
#define SETTING_NUMBER(type, part, field, name, ...) {NULL, name},
#define SETTING_WORD(part, field, name, ...)         {NULL, name},
#include "config.def"
};

/* Prints a text as a comment, broken between words. */
static void print_comment(const char *text, struct buf *out)
{
    while (*text != '\0') {
        size_t len = strlen(text);

        if (len > DOC_COLUMNS - 2) {
            len = DOC_COLUMNS - 2;
            while (len > 0 && text[len] != ' ')
                len--;
            if (len == 0)
                len = strcspn(text, " ");
        }
        config_append(out, "# ");
        buf_append(out, text, len);
        config_append(out, "\n");
        text += len;
        text += strspn(text, " ");
    }
}

/* Prints the permitted values, unless the type is enough. */
static void print_range(const struct config_row *row, struct buf *out)
{
    switch (row->type) {
    case CONFIG_BOOL:
        config_append(out, "yes or no; ");
        break;
    case CONFIG_WORD:
        for (size_t i = 0; row->words[i]; i++)
            buf_appendf(out, "%s%s", i > 0 ? ", " : "", row->words[i]);
        config_append(out, "; ");
        break;
    case CONFIG_RATE:
        buf_appendf(out, "above %" PRIu64 ", below %" PRIu64 "; ", row->min, row->max);
        break;
    case CONFIG_INTEGER:
        buf_appendf(out, row->flags & CONFIG_OCTAL ? "%" PRIo64 " to %" PRIo64 : "%" PRIu64 " to %" PRIu64, row->min,
                    row->max);
        buf_appendf(out, "%s%s%s; ", row->unit[0] != '\0' ? " " : "", row->unit,
                    row->flags & CONFIG_OR_MINUS_1 ? ", or -1" : "");
        break;
    case CONFIG_BYTES:
        if (row->min > 0) {
            config_append(out, "from ");
            config_format_bytes(row->min, out);
            config_append(out, row->max < INT64_MAX ? " " : "; ");
        }
        if (row->max < INT64_MAX) {
            config_append(out, "up to ");
            config_format_bytes(row->max, out);
            config_append(out, "; ");
        }
        if (row->flags & CONFIG_OR_SHARE)
            config_append(out, "bytes, a percentage, or auto; ");
        break;
    case CONFIG_STRING:
    case CONFIG_PASSWORD:
    case CONFIG_ADDRESSES:
    case CONFIG_RULES:
    case CONFIG_EVENTS:
    case CONFIG_OUTPUT_LIMITS:
    case CONFIG_USERS:
        break;
    }
}

/* Prints range, default, and when the setting may change: in brackets, as one comment. */
static void print_facts(const struct config_row *row, struct buf *out)
{
    struct buf facts;

    buf_init(&facts, SIZE_MAX);
    config_append(&facts, "[");
    print_range(row, &facts);
    buf_appendf(&facts, "default %s", row->default_text[0] != '\0' ? row->default_text : "\"\"");
    config_append(&facts, row->flags & CONFIG_START_ONLY ? "; only at start]" : "]");
    buf_append(&facts, "", 1);
    if (buf_failed(&facts))
        out->failed = true;
    else
        print_comment(buf_head(&facts), out);
    buf_deinit(&facts);
}

void config_print_word(struct slice word, struct buf *out)
{
    bool plain = word.len > 0;

    for (size_t i = 0; i < word.len; i++)
        if (word.ptr[i] <= ' ' || word.ptr[i] > '~' || strchr("\"'\\#", word.ptr[i]))
            plain = false;
    if (plain) {
        buf_append(out, word.ptr, word.len);
        return;
    }
    config_append(out, "\"");
    for (size_t i = 0; i < word.len; i++) {
        if (word.ptr[i] == '"' || word.ptr[i] == '\\')
            buf_appendf(out, "\\%c", word.ptr[i]);
        else if (word.ptr[i] < ' ' || word.ptr[i] > '~')
            buf_appendf(out, "\\x%02x", (unsigned char)word.ptr[i]);
        else
            buf_append(out, word.ptr + i, 1);
    }
    config_append(out, "\"");
}

/* The first one has its name already, the last one gets its end from the caller. */
static void print_lines(const struct config_row *row, struct slice text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        buf_append(out, text.ptr + i, 1);
        if (text.ptr[i] == '\n')
            buf_appendf(out, "%s ", row->name);
    }
}

void config_print_setting(const struct config *cfg, const struct config_row *row, struct buf *out)
{
    struct buf value;
    struct slice text;

    buf_init(&value, SIZE_MAX);
    buf_appendf(out, "%s ", row->name);
    const void *field = (const char *)cfg + row->offset;
    if (row->type == CONFIG_BYTES && !(*(const uint64_t *)field & CONFIG_SHARE))
        config_format_bytes(*(const uint64_t *)field, &value);
    else
        config_get(cfg, row, &value);
    text = (struct slice){buf_head(&value), buf_len(&value)};
    if (buf_failed(&value))
        out->failed = true;
    else if (row->type == CONFIG_USERS && text.len > 0)
        print_lines(row, text, out);
    else if (text.len > 0 && config_takes_words(row))
        buf_append(out, text.ptr, text.len);
    else
        config_print_word(text, out);
    config_append(out, "\n");
    buf_deinit(&value);
}

void config_print(const struct config *cfg, struct buf *out)
{
    config_append(
        out,
        "# Settings of bloomeryd: `bloomeryd THIS-FILE`. Each one can also be given as an argument, --name value,\n"
        "# which wins over the file, and those without \"only at start\" be changed with CONFIG SET.\n"
        "#\n"
        "# A line is a name and a value. Values with spaces are put in quotes: \"...\" with \\n \\r \\t \\xHH \\\" "
        "\\\\,\n"
        "# or '...'. Sizes: 1k is 1000 bytes, 1kb 1024; m, mb, g and gb accordingly. `include PATH` reads another\n"
        "# file at that place, relative to this one. `bloomeryd --print-config` prints this text.\n");
    for (size_t i = 0; i < sizeof(outline) / sizeof(outline[0]); i++) {
        const struct config_row *row;

        if (outline[i].section) {
            buf_appendf(out, "\n# ---- %s ----\n", outline[i].section);
            continue;
        }
        row = config_find(slice_of(outline[i].name));
        config_append(out, "\n");
        print_comment(row->doc, out);
        print_facts(row, out);
        config_print_setting(cfg, row, out);
    }
}

void config_help(struct buf *out)
{
    config_append(out,
                  "usage: bloomeryd [FILE|-] [--SETTING VALUE...]...\n"
                  "\n"
                  "Serves Bloom and cuckoo filters over the Redis protocol. FILE has settings, one `name value` a\n"
                  "line; - reads them from the standard input. Arguments win over the file.\n"
                  "\n"
                  "  -h, --help       this text\n"
                  "  -v, --version    the version\n"
                  "  --check-config   whether a start would take the settings and the files that it would read\n"
                  "  --print-config   every setting with its value and what it does, as a file\n"
                  "\n"
                  "Settings and their defaults:\n");
    for (size_t i = 0; i < sizeof(outline) / sizeof(outline[0]); i++) {
        const struct config_row *row;

        if (outline[i].section)
            continue;
        row = config_find(slice_of(outline[i].name));
        buf_appendf(out, "  --%-26s %s\n", row->name, row->default_text[0] != '\0' ? row->default_text : "\"\"");
    }
}
