/* CONFIG REWRITE. It reads the file twice: once for its settings, with its includes, and once line by line. A setting
 * that differs from the one in force replaces the last line that sets it, or is added at the end. Then the new text is
 * read as a start would read it; it is not written unless it gives the settings in force. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config_file.h"
#include "config_internal.h"

#define TEXT_MAX    (8 * 1024 * 1024) /* twice the largest file that is read */
#define REWRITE_END "# Added by CONFIG REWRITE"

/* ---- the text ---- */

struct rewrite {
    const struct config *cfg;
    struct config before; /* the settings of the file */
    const struct config_row *rows;
    size_t nrows;
    bool *changed;       /* by row: differs from the file, and is not written yet */
    size_t *last_line;   /* by row: the number of the last line that sets it, 0 for none */
    size_t last_include; /* the number of the last line that is an `include`, 0 for none */
    bool marked;         /* REWRITE_END is there */
    struct buf *out;
};

static bool values_equal(const struct config *a, const struct config *b, const struct config_row *row, bool *failed)
{
    struct buf x, y;

    buf_init(&x, SIZE_MAX);
    buf_init(&y, SIZE_MAX);
    config_get(a, row, &x);
    config_get(b, row, &y);
    *failed |= buf_failed(&x) || buf_failed(&y);
    bool equal = slice_equal((struct slice){buf_head(&x), buf_len(&x)}, (struct slice){buf_head(&y), buf_len(&y)});
    buf_deinit(&x);
    buf_deinit(&y);
    return equal;
}

/* Cuts the next line off the front of the text and returns it without its end. */
static struct slice next_line(struct slice *text, bool *ended_out)
{
    const char *end = memchr(text->ptr, '\n', text->len);
    struct slice line = {text->ptr, end ? (size_t)(end - text->ptr) : text->len};

    *ended_out = end != NULL;
    text->ptr += line.len + (end != NULL);
    text->len -= line.len + (end != NULL);
    return line;
}

/* The row that a line sets, or NULL. An earlier reading found the line well-formed. */
static const struct config_row *line_row(struct slice text, bool *include_out, bool *failed)
{
    struct config_line line;
    const struct config_row *row = NULL;

    if (text.len > 0 && text.ptr[text.len - 1] == '\r')
        text.len--;
    *include_out = false;
    if (config_line_split(text, &line, NULL) != CONFIG_OK)
        *failed = true;
    else if (line.nwords > 0)
        row = config_find(line.words[0]);
    if (!row && !*failed && line.nwords > 0)
        *include_out = slice_is(line.words[0], "include");
    config_line_deinit(&line);
    return row;
}

static bool find_last_lines(struct rewrite *rw, struct slice text)
{
    bool failed = false, ended, include;

    for (size_t number = 1; text.len > 0; number++) {
        struct slice line = next_line(&text, &ended);
        const struct config_row *row = line_row(line, &include, &failed);
        if (row)
            rw->last_line[row - rw->rows] = number;
        if (include)
            rw->last_include = number;
        rw->marked |= slice_equal(line, slice_of(REWRITE_END));
    }
    return !failed;
}

/* `save` lines add up over all files, so an empty one must cancel those of other files first. */
static void write_setting(struct rewrite *rw, size_t i)
{
    const struct config_row *row = &rw->rows[i];

    if (row->type == CONFIG_RULES && rw->last_include > 0)
        buf_appendf(rw->out, "%s \"\"\n", row->name);
    config_print_setting(rw->cfg, row, rw->out);
}

static bool write_lines(struct rewrite *rw, struct slice text)
{
    bool failed = false, ended = true, include;

    for (size_t number = 1; text.len > 0; number++) {
        struct slice line = next_line(&text, &ended);
        const struct config_row *row = line_row(line, &include, &failed);
        if (row && rw->changed[row - rw->rows]) {
            if (rw->last_line[row - rw->rows] == number && number > rw->last_include) {
                write_setting(rw, (size_t)(row - rw->rows));
                rw->last_line[row - rw->rows] = SIZE_MAX; /* written */
            }
            continue; /* a setting's last line is elsewhere, or an include after this line could override it */
        }
        buf_append(rw->out, line.ptr, line.len);
        if (ended)
            buf_append(rw->out, "\n", 1);
    }
    if (!ended)
        buf_append(rw->out, "\n", 1);
    for (size_t i = 0; i < rw->nrows; i++) {
        if (!rw->changed[i] || rw->last_line[i] == SIZE_MAX)
            continue;
        if (!rw->marked)
            config_append(rw->out, "\n" REWRITE_END "\n");
        rw->marked = true;
        write_setting(rw, i);
    }
    return !failed && !buf_failed(rw->out);
}

/* Whether a start with the new text would give the settings in force. */
static int verify(struct rewrite *rw, const char *name, struct errbuf *err)
{
    struct config after;
    bool failed = false;
    int status = config_init(&after);

    if (status != 0)
        return status;
    status = config_load_text(&after, name, (struct slice){buf_head(rw->out), buf_len(rw->out)}, err);
    for (size_t i = 0; i < rw->nrows && status == CONFIG_OK; i++) {
        if (!values_equal(&after, rw->cfg, &rw->rows[i], &failed)) {
            errbuf_set(err, "'%s' cannot be written in a readable form", rw->rows[i].name);
            status = CONFIG_REFUSED;
        }
    }
    config_deinit(&after);
    return status == CONFIG_OK && failed ? -ENOMEM : status;
}

static int make_text(struct rewrite *rw, const char *name, struct slice text, struct errbuf *err)
{
    bool failed = false;
    int status = config_load_text(&rw->before, name, text, err);

    if (status != CONFIG_OK)
        return status;
    for (size_t i = 0; i < rw->nrows; i++)
        rw->changed[i] = !values_equal(&rw->before, rw->cfg, &rw->rows[i], &failed);
    if (failed || !find_last_lines(rw, text) || !write_lines(rw, text))
        return -ENOMEM;
    return verify(rw, name, err);
}

int config_rewrite_text(const struct config *cfg, const char *name, struct slice text, struct buf *out,
                        struct errbuf *err)
{
    struct rewrite rw = {.cfg = cfg, .out = out};
    int status = config_init(&rw.before);

    if (status == 0) {
        rw.rows = config_table(&rw.nrows);
        rw.changed = calloc(rw.nrows, sizeof(*rw.changed));
        rw.last_line = calloc(rw.nrows, sizeof(*rw.last_line));
        status = !rw.changed || !rw.last_line ? -ENOMEM : make_text(&rw, name, text, err);
        free(rw.changed);
        free(rw.last_line);
        config_deinit(&rw.before);
    }
    if (status == -ENOMEM)
        errbuf_set(err, "out of memory");
    return status;
}

/* ---- the file ---- */

int config_rewrite(const struct config *cfg, const char *path, struct errbuf *err)
{
    char real[PATH_MAX];
    struct stat old;
    struct buf text, rewritten;

    if (!realpath(path, real))
        return config_file_failed("cannot open", path, err);
    buf_init(&text, TEXT_MAX);
    buf_init(&rewritten, TEXT_MAX);
    int status = config_file_read(real, &text, &old, err);
    if (status == 0)
        status = config_rewrite_text(cfg, real, (struct slice){buf_head(&text), buf_len(&text)}, &rewritten, err);
    STEP(status, config_file_replace(real, &rewritten, &old, err));
    buf_deinit(&text);
    buf_deinit(&rewritten);
    return status;
}
