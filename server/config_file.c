/* Reading the configuration file. A line is cut into words in one pass; words are unescaped into a buffer of the line's
 * own length, as unescaping never makes a text longer. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "config.h"
#include "config_internal.h"

#define FILE_SIZE_MAX     (4 * 1024 * 1024) /* a file of settings is small: this one was meant for something else */
#define INCLUDE_DEPTH_MAX 16

/* One file being read; the chain of those that include it ends the recursion. */
struct source {
    const char *name;
    const struct source *parent;
    unsigned depth;
    bool is_file; /* dev and ino are valid */
    dev_t dev;
    ino_t ino;
};

/* ---- words ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static char escaped(char c)
{
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return c;
    }
}

/* Unescapes from the opening quote at in[*pos] on; leaves *pos behind the closing one. False when there is none, or
 * when something other than a space follows it. */
static bool read_quoted(struct slice in, size_t *pos, char **out)
{
    char quote = in.ptr[*pos];
    size_t i = *pos + 1;

    while (i < in.len && in.ptr[i] != quote) {
        if (quote == '"' && in.ptr[i] == '\\' && i + 3 < in.len && in.ptr[i + 1] == 'x' &&
            hex_digit(in.ptr[i + 2]) >= 0 && hex_digit(in.ptr[i + 3]) >= 0) {
            *(*out)++ = (char)(hex_digit(in.ptr[i + 2]) * 16 + hex_digit(in.ptr[i + 3]));
            i += 4;
        } else if (quote == '"' && in.ptr[i] == '\\' && i + 1 < in.len) {
            *(*out)++ = escaped(in.ptr[i + 1]);
            i += 2;
        } else if (quote == '\'' && in.ptr[i] == '\\' && i + 1 < in.len && in.ptr[i + 1] == '\'') {
            *(*out)++ = '\'';
            i += 2;
        } else {
            *(*out)++ = in.ptr[i++];
        }
    }
    if (i >= in.len)
        return false;
    *pos = i + 1;
    return *pos == in.len || in.ptr[*pos] == ' ' || in.ptr[*pos] == '\t';
}

int config_line_split(struct slice in, struct config_line *line_out, struct errbuf *err)
{
    char *out;
    size_t pos = 0;

    line_out->nwords = 0;
    line_out->text = malloc(in.len + 1);
    line_out->words = calloc(in.len / 2 + 1, sizeof(*line_out->words));
    if (line_out->text == NULL || line_out->words == NULL) {
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    out = line_out->text;
    for (;;) {
        char *word = out;

        while (pos < in.len && (in.ptr[pos] == ' ' || in.ptr[pos] == '\t'))
            pos++;
        if (pos >= in.len || (in.ptr[pos] == '#' && line_out->nwords == 0))
            return CONFIG_OK;
        while (pos < in.len && in.ptr[pos] != ' ' && in.ptr[pos] != '\t') {
            if (in.ptr[pos] == '"' || in.ptr[pos] == '\'') {
                if (!read_quoted(in, &pos, &out)) {
                    errbuf_set(err, "unbalanced quotes");
                    return CONFIG_REFUSED;
                }
            } else {
                *out++ = in.ptr[pos++];
            }
        }
        line_out->words[line_out->nwords++] = (struct slice){word, (size_t)(out - word)};
    }
}

void config_line_deinit(struct config_line *line)
{
    free(line->text);
    free(line->words);
    *line = (struct config_line){NULL, 0, NULL};
}

/* ---- files ---- */

/* Reads a whole stream. 0, or a negative errno with the text in `err`. */
static int read_stream(FILE *file, struct buf *out, struct errbuf *err)
{
    for (;;) {
        char *room = buf_reserve(out, 4096);
        size_t n;

        if (room == NULL) {
            if (buf_len(out) > FILE_SIZE_MAX) {
                errbuf_set(err, "longer than %d bytes: not a configuration file", FILE_SIZE_MAX);
                return -EFBIG;
            }
            errbuf_set(err, "out of memory");
            return -ENOMEM;
        }
        errno = 0;
        n = fread(room, 1, 4096, file);
        buf_commit(out, n);
        if (n == 0 && ferror(file)) {
            int status = errno != 0 ? -errno : -EIO;

            errbuf_set(err, "%s", strerror(-status));
            return status;
        }
        if (n == 0)
            return 0;
    }
}

static int load_source(struct config *cfg, struct config_merge *merge, const struct source *parent, const char *path,
                       struct errbuf *err);

/* `include`: a path that is not absolute starts at the directory of the including file. */
static int load_include(struct config *cfg, struct config_merge *merge, const struct source *source,
                        const struct config_line *line, struct errbuf *err)
{
    char path[PATH_MAX];
    const char *slash = strrchr(source->name, '/');
    struct slice target;
    size_t dir;

    if (line->nwords != 2 || line->words[1].len == 0) {
        errbuf_set(err, "'include' takes one path");
        return CONFIG_REFUSED;
    }
    target = line->words[1];
    dir = target.ptr[0] == '/' || slash == NULL ? 0 : (size_t)(slash - source->name) + 1;
    if (dir + target.len >= sizeof(path) || memchr(target.ptr, '\0', target.len) != NULL) {
        errbuf_set(err, "'include': not a usable path");
        return CONFIG_REFUSED;
    }
    memcpy(path, source->name, dir);
    memcpy(path + dir, target.ptr, target.len);
    path[dir + target.len] = '\0';
    return load_source(cfg, merge, source, path, err);
}

static int load_line(struct config *cfg, struct config_merge *merge, const struct source *source, struct slice text,
                     struct errbuf *err)
{
    struct config_line line;
    int status;

    if (text.len > 0 && text.ptr[text.len - 1] == '\r')
        text.len--;
    status = config_line_split(text, &line, err);
    if (status == CONFIG_OK && line.nwords > 0) {
        if (line.words[0].len == 7 && strncasecmp(line.words[0].ptr, "include", 7) == 0)
            status = load_include(cfg, merge, source, &line, err);
        else
            status = config_apply(cfg, merge, line.words[0], line.words + 1, line.nwords - 1, CONFIG_FILE, err);
    }
    config_line_deinit(&line);
    return status == CONFIG_UNKNOWN ? CONFIG_REFUSED : status;
}

static int load_lines(struct config *cfg, struct config_merge *merge, const struct source *source, struct slice text,
                      struct errbuf *err)
{
    unsigned number = 0;

    while (text.len > 0) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end == NULL ? text.len : (size_t)(end - text.ptr);
        int status;

        number++;
        status = load_line(cfg, merge, source, (struct slice){text.ptr, len}, err);
        if (status != CONFIG_OK) {
            if (!merge->located)
                errbuf_prefix(err, "%s:%u", source->name, number);
            merge->located = true;
            return status;
        }
        len += end != NULL;
        text = (struct slice){text.ptr + len, text.len - len};
    }
    return CONFIG_OK;
}

/* Whether this file is being read already, further up the chain. */
static bool is_cycle(const struct source *source)
{
    for (const struct source *s = source->parent; s != NULL; s = s->parent)
        if (s->is_file && source->is_file && s->dev == source->dev && s->ino == source->ino)
            return true;
    return false;
}

static int load_stream(struct config *cfg, struct config_merge *merge, struct source *source, FILE *file,
                       struct errbuf *err)
{
    struct buf text;
    struct stat st;
    int status;

    if (fstat(fileno(file), &st) == 0) {
        source->is_file = S_ISREG(st.st_mode);
        source->dev = st.st_dev;
        source->ino = st.st_ino;
    }
    if (is_cycle(source)) {
        errbuf_set(err, "'%s' includes itself", source->name);
        return CONFIG_REFUSED;
    }
    buf_init(&text, FILE_SIZE_MAX + 8192);
    status = read_stream(file, &text, err);
    if (status != 0)
        errbuf_prefix(err, "%s", source->name);
    else
        status = load_lines(cfg, merge, source, (struct slice){buf_head(&text), buf_len(&text)}, err);
    buf_deinit(&text);
    return status;
}

static int load_source(struct config *cfg, struct config_merge *merge, const struct source *parent, const char *path,
                       struct errbuf *err)
{
    struct source source = {.name = path, .parent = parent, .depth = parent == NULL ? 0 : parent->depth + 1};
    FILE *file;
    int status;

    if (source.depth > INCLUDE_DEPTH_MAX) {
        errbuf_set(err, "more than %d files deep", INCLUDE_DEPTH_MAX);
        return CONFIG_REFUSED;
    }
    file = fopen(path, "re");
    if (file == NULL) {
        status = -errno;
        errbuf_set(err, "%s: %s", path, strerror(errno));
        return status;
    }
    status = load_stream(cfg, merge, &source, file, err);
    fclose(file);
    return status;
}

int config_load_file(struct config *cfg, const char *path, struct errbuf *err)
{
    struct config_merge merge = {.save_seen = false};

    if (strcmp(path, "-") == 0) {
        struct source source = {.name = "standard input"};

        return load_stream(cfg, &merge, &source, stdin, err);
    }
    return load_source(cfg, &merge, NULL, path, err);
}

int config_load_text(struct config *cfg, const char *name, struct slice text, struct errbuf *err)
{
    struct config_merge merge = {.save_seen = false};
    struct source source = {.name = name};

    return load_lines(cfg, &merge, &source, text, err);
}
