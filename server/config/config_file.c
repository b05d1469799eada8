/* Reads the configuration file. A line is cut into words in one pass. Words are unescaped into a buffer of the line's
 * length, because unescaping never makes a text longer. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config_file.h"
#include "config_internal.h"
#include "fsops.h"
#include "quoted.h"

#define FILE_SIZE_MAX     (4 * 1024 * 1024) /* a file of settings is small: a larger one is a mistake */
#define INCLUDE_DEPTH_MAX 16

/* A file being read. */
struct source {
    const char *name;
    unsigned depth; /* of includes */
};

/* ---- words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

int config_line_split(struct slice in, struct config_line *line_out, struct errbuf *err)
{
    const char *p = in.ptr, *end = in.ptr + in.len;
    char *out;

    line_out->nwords = 0;
    line_out->text = malloc(in.len + 1);
    line_out->words = calloc(in.len / 2 + 1, sizeof(*line_out->words));
    if (!line_out->text || !line_out->words)
        return errbuf_fail(err, -ENOMEM, "out of memory");
    out = line_out->text;
    for (;;) {
        char *word = out;

        while (p < end && is_blank(*p))
            p++;
        if (p == end || (*p == '#' && line_out->nwords == 0))
            return CONFIG_OK;
        while (p < end && !is_blank(*p)) {
            if (*p == '"' || *p == '\'') {
                if (!quoted_take(&p, end, &out) || (p < end && !is_blank(*p)))
                    return errbuf_fail(err, CONFIG_REFUSED, "unbalanced quotes");
            } else {
                *out++ = *p++;
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

/* Reads all. 0, or a negative errno with the text in `err`. */
static int read_all(int fd, struct buf *out, struct errbuf *err)
{
    for (;;) {
        char *room = buf_reserve(out, 4096);
        if (!room) {
            bool full = buf_len(out) + 4096 > out->cap;
            return errbuf_fail(err, full ? -EFBIG : -ENOMEM, full ? "longer than %zu bytes" : "out of memory",
                               out->cap - 4096);
        }
        ssize_t n = read(fd, room, 4096);
        if (n == 0)
            return 0;
        if (n > 0) {
            buf_commit(out, (size_t)n);
        } else if (errno != EINTR) {
            int status = -errno;
            return errbuf_fail(err, status, "%s", strerror(-status));
        }
    }
}

static int load_source(struct config *cfg, struct config_merge *merge, const struct source *source, struct errbuf *err);

/* `include`: a path that is not absolute starts at the directory of the including file. */
static int load_include(struct config *cfg, struct config_merge *merge, const struct source *source,
                        const struct config_line *line, struct errbuf *err)
{
    char path[PATH_MAX];
    const char *slash = strrchr(source->name, '/');
    struct slice target;
    size_t dir;

    if (line->nwords != 2 || line->words[1].len == 0)
        return errbuf_fail(err, CONFIG_REFUSED, "'include' takes one path");
    target = line->words[1];
    dir = target.ptr[0] == '/' || !slash ? 0 : (size_t)(slash - source->name) + 1;
    if (dir + target.len >= sizeof(path) || memchr(target.ptr, '\0', target.len))
        return errbuf_fail(err, CONFIG_REFUSED, "'include': not a usable path");
    memcpy(path, source->name, dir);
    memcpy(path + dir, target.ptr, target.len);
    path[dir + target.len] = '\0';
    return load_source(cfg, merge, &(struct source){path, source->depth + 1}, err);
}

/* Takes the next line, without its end. False: none. */
static bool next_line(struct slice *text, struct slice *line_out)
{
    if (text->len == 0)
        return false;
    const char *end = memchr(text->ptr, '\n', text->len);
    size_t len = end ? (size_t)(end - text->ptr) : text->len, taken = len + (end != NULL);

    *line_out = (struct slice){text->ptr, len > 0 && text->ptr[len - 1] == '\r' ? len - 1 : len};
    *text = (struct slice){text->ptr + taken, text->len - taken};
    return true;
}

bool config_is_retired(struct slice name)
{
    static const char *const names[] = {"latency-monitor-threshold",
                                        "latency-tracking-info-percentiles",
                                        "shutdown-on-sigterm",
                                        "shutdown-on-sigint",
                                        "server-cpulist",
                                        "server_cpulist",
                                        "bio-cpulist",
                                        "bio_cpulist",
                                        "bgsave-cpulist",
                                        "bgsave_cpulist",
                                        "tls-client-cert-file",
                                        "tls-client-key-file",
                                        "tls-client-key-file-pass",
                                        "tracking-table-max-keys",
                                        "tls-cluster"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (slice_is(name, names[i]))
            return true;
    return false;
}

void config_note_retired(const char *place, struct slice name, struct errbuf *err)
{
    size_t len = err ? strlen(err->text) : 0;

    if (len == 0)
        errbuf_set(err, "%s: '%.*s' is no setting any more and has no effect (CHANGELOG.md: what to use instead)",
                   place, (int)name.len, name.ptr);
    else
        (void)snprintf(err->text + len, sizeof(err->text) - len, "; likewise '%.*s'", (int)name.len, name.ptr);
}

/* Adds the names of later unknown settings to the error about the first one: a user with the file of another server
 * needs all of them at once. */
static void add_unknown_ones(struct slice text, struct errbuf *err)
{
    char first[ERRBUF_SIZE], names[ERRBUF_SIZE];
    struct slice next;
    size_t len = 0;

    while (len < sizeof(names) - 1 && next_line(&text, &next)) {
        struct config_line line;

        if (config_line_split(next, &line, NULL) == CONFIG_OK && line.nwords > 0 &&
            !slice_is(line.words[0], "include") && !config_find(line.words[0]) && !config_is_retired(line.words[0]))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s'%.*s'", len > 0 ? ", " : "",
                                    config_shown_name(line.words[0]), line.words[0].ptr);
        config_line_deinit(&line);
    }
    if (len == 0 || !err)
        return;
    memcpy(first, err->text, sizeof(first));
    errbuf_set(err, "%s; likewise %s", first, names);
}

static int load_line(struct config *cfg, struct config_merge *merge, const struct source *source, unsigned number,
                     struct slice text, struct errbuf *err)
{
    struct config_line line;
    int status = config_line_split(text, &line, err);

    if (status == CONFIG_OK && line.nwords > 0) {
        if (slice_is(line.words[0], "include"))
            status = load_include(cfg, merge, source, &line, err);
        else if (config_is_retired(line.words[0])) {
            struct errbuf place;
            errbuf_set(&place, "%s:%u", source->name, number);
            config_note_retired(place.text, line.words[0], err);
        } else
            status = config_apply(cfg, merge, line.words[0], line.words + 1, line.nwords - 1, CONFIG_FILE, err);
        for (size_t i = 1; status == CONFIG_REFUSED && err && i < line.nwords; i++) {
            size_t len = strlen(err->text);
            if (line.words[i].len == 0 || line.words[i].ptr[0] != '#')
                continue;
            (void)snprintf(err->text + len, sizeof(err->text) - len,
                           "; a comment needs its own line, not the end of a value's line");
            break;
        }
    }
    config_line_deinit(&line);
    return status;
}

static int load_lines(struct config *cfg, struct config_merge *merge, const struct source *source, struct slice text,
                      struct errbuf *err)
{
    struct slice line;

    for (unsigned number = 1; next_line(&text, &line); number++) {
        int status = load_line(cfg, merge, source, number, line, err);

        if (status == CONFIG_OK)
            continue;
        if (status == CONFIG_UNKNOWN)
            add_unknown_ones(text, err);
        if (!merge->located)
            errbuf_prefix(err, "%s:%u", source->name, number);
        merge->located = true;
        return status == CONFIG_UNKNOWN ? CONFIG_REFUSED : status;
    }
    return CONFIG_OK;
}

static int load_source(struct config *cfg, struct config_merge *merge, const struct source *source, struct errbuf *err)
{
    bool input = source->depth == 0 && strcmp(source->name, "-") == 0;
    const struct source shown = {input ? "standard input" : source->name, source->depth};
    struct buf text;
    if (source->depth > INCLUDE_DEPTH_MAX)
        return errbuf_fail(err, CONFIG_REFUSED, "more than %d files deep", INCLUDE_DEPTH_MAX);
    int fd = input ? STDIN_FILENO : open(source->name, O_RDONLY | O_CLOEXEC), status = fd < 0 ? -errno : 0;
    buf_init(&text, FILE_SIZE_MAX + 4096);
    if (fd < 0)
        errbuf_set(err, "%s", strerror(-status));
    else
        status = read_all(fd, &text, err);
    if (fd >= 0 && !input)
        close(fd);
    if (status != 0)
        errbuf_prefix(err, "%s", shown.name);
    else
        status = load_lines(cfg, merge, &shown, (struct slice){buf_head(&text), buf_len(&text)}, err);
    buf_deinit(&text);
    return status;
}

int config_load_file(struct config *cfg, const char *path, struct errbuf *err)
{
    struct config_merge merge = {.save_seen = false};
    return load_source(cfg, &merge, &(struct source){path, 0}, err);
}

int config_load_text(struct config *cfg, const char *name, struct slice text, struct errbuf *err)
{
    struct config_merge merge = {.save_seen = false};
    struct source source = {.name = name};

    return load_lines(cfg, &merge, &source, text, err);
}

/* ---- replacing a file ---- */

int config_file_failed(const char *what, const char *path, struct errbuf *err)
{
    int status = errno != 0 ? -errno : -EIO;

    return errbuf_fail(err, status, "%s %s: %s", what, path, strerror(-status));
}

int config_file_read(const char *path, struct buf *out, struct stat *stat_out, struct errbuf *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return config_file_failed("cannot open", path, err);
    int status = fstat(fd, stat_out) != 0 ? -errno : 0;
    if (status != 0)
        errbuf_set(err, "%s", strerror(-status));
    else
        status = read_all(fd, out, err);
    if (status != 0)
        errbuf_prefix(err, "cannot read %s", path);
    close(fd);
    return status;
}

/* Keeps the mode, and the owner where that is permitted. */
static int write_file(const char *path, const struct buf *text, const struct stat *old, struct errbuf *err)
{
    unlink(path); /* a process that was killed has left it */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), status = fd < 0 ? -errno : 0;
    if (old && status == 0) {
        int owner_kept = fchown(fd, old->st_uid, old->st_gid);
        (void)owner_kept;
        status = fchmod(fd, old->st_mode & 07777) != 0 ? -errno : 0;
    }
    STEP(status, fs_write_all(fsops_posix(), fd, buf_head(text), buf_len(text), 0));
    if (status == 0 && fsync(fd) != 0)
        status = -errno;
    if (fd >= 0 && close(fd) != 0 && status == 0)
        status = -errno;
    if (status != 0) {
        errbuf_set(err, "cannot write %s: %s", path, strerror(-status));
        unlink(path);
    }
    return status;
}

int config_file_replace(const char *path, const struct buf *text, const struct stat *old, struct errbuf *err)
{
    struct path fresh, directory;
    const char *slash = strrchr(path, '/');
    int status = path_format(&fresh, err, "%s.tmp", path);
    STEP(status, path_format(&directory, err, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : "."));
    STEP(status, write_file(fresh.text, text, old, err));
    if (status != 0)
        return status;
    status = rename(fresh.text, path) != 0 ? -errno : fsops_posix()->sync_dir(NULL, directory.text);
    if (status != 0) {
        errbuf_set(err, "cannot replace %s: %s", path, strerror(-status));
        unlink(fresh.text);
    }
    return status;
}
