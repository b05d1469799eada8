/* Reads the configuration file. A line is cut into words in one pass. Words are unescaped into a buffer of the line's
 * length, because unescaping never makes a text longer. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config_file.h"
#include "config_internal.h"
#include "quoted.h"

#define FILE_SIZE_MAX     (4 * 1024 * 1024) /* a file of settings is small: a larger one is a mistake */
#define INCLUDE_DEPTH_MAX 16

/* A file being read; the chain of its includers ends the recursion. */
struct source {
    const char *name;
    const struct source *parent;
    unsigned depth;
    bool is_file; /* dev and ino are valid */
    dev_t dev;
    ino_t ino;
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
    if (!line_out->text || !line_out->words) {
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    out = line_out->text;
    for (;;) {
        char *word = out;

        while (p < end && is_blank(*p))
            p++;
        if (p == end || (*p == '#' && line_out->nwords == 0))
            return CONFIG_OK;
        while (p < end && !is_blank(*p)) {
            if (*p == '"' || *p == '\'') {
                if (!quoted_take(&p, end, &out) || (p < end && !is_blank(*p))) {
                    errbuf_set(err, "unbalanced quotes");
                    return CONFIG_REFUSED;
                }
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

/* Reads a whole stream. 0, or a negative errno with the text in `err`. */
static int read_stream(FILE *file, struct buf *out, struct errbuf *err)
{
    for (;;) {
        char *room = buf_reserve(out, 4096);
        size_t n;

        if (!room) {
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
    dir = target.ptr[0] == '/' || !slash ? 0 : (size_t)(slash - source->name) + 1;
    if (dir + target.len >= sizeof(path) || memchr(target.ptr, '\0', target.len)) {
        errbuf_set(err, "'include': not a usable path");
        return CONFIG_REFUSED;
    }
    memcpy(path, source->name, dir);
    memcpy(path + dir, target.ptr, target.len);
    path[dir + target.len] = '\0';
    return load_source(cfg, merge, source, path, err);
}

static bool is_include(struct slice name)
{
    return name.len == 7 && strncasecmp(name.ptr, "include", 7) == 0;
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

/* Settings of earlier versions. Their lines have no effect, so that a file of such a version still starts. */
static bool is_retired(struct slice name)
{
    static const char *const names[] = {
        "latency-monitor-threshold",
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
        "tls-cluster",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == name.len && strncasecmp(names[i], name.ptr, name.len) == 0)
            return true;
    return false;
}

/* Tells it in `err`, behind what is there: the status is CONFIG_OK. */
static void note_retired(const struct source *source, unsigned number, struct slice name, struct errbuf *err)
{
    size_t len = err ? strlen(err->text) : 0;

    if (len == 0)
        errbuf_set(err, "%s:%u: '%.*s' is no setting any more and has no effect", source->name, number, (int)name.len,
                   name.ptr);
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

        if (config_line_split(next, &line, NULL) == CONFIG_OK && line.nwords > 0 && !is_include(line.words[0]) &&
            !config_find(line.words[0]) && !is_retired(line.words[0]))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s'%.*s'", len > 0 ? ", " : "",
                                    config_shown_name(line.words[0]), line.words[0].ptr);
        config_line_deinit(&line);
    }
    if (len == 0 || !err)
        return;
    memcpy(first, err->text, sizeof(first));
    errbuf_set(err, "%s; likewise %s", first, names);
}

/* Whether something after the name begins as a comment does. */
static bool has_comment(const struct config_line *line)
{
    for (size_t i = 1; i < line->nwords; i++)
        if (line->words[i].len > 0 && line->words[i].ptr[0] == '#')
            return true;
    return false;
}

static void add_hint(const char *hint, struct errbuf *err)
{
    char text[ERRBUF_SIZE];

    if (!err)
        return;
    memcpy(text, err->text, sizeof(text));
    errbuf_set(err, "%s; %s", text, hint);
}

static int load_line(struct config *cfg, struct config_merge *merge, const struct source *source, unsigned number,
                     struct slice text, struct errbuf *err)
{
    struct config_line line;
    int status = config_line_split(text, &line, err);

    if (status == CONFIG_OK && line.nwords > 0) {
        if (is_include(line.words[0]))
            status = load_include(cfg, merge, source, &line, err);
        else if (is_retired(line.words[0]))
            note_retired(source, number, line.words[0], err);
        else
            status = config_apply(cfg, merge, line.words[0], line.words + 1, line.nwords - 1, CONFIG_FILE, err);
        if (status == CONFIG_REFUSED && has_comment(&line))
            add_hint("a comment needs its own line, not the end of a value's line", err);
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

/* Whether this file is being read already, further up the chain. */
static bool is_cycle(const struct source *source)
{
    for (const struct source *s = source->parent; s; s = s->parent)
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
    struct source source = {.name = path, .parent = parent, .depth = parent ? parent->depth + 1 : 0};
    FILE *file;
    int status;

    if (source.depth > INCLUDE_DEPTH_MAX) {
        errbuf_set(err, "more than %d files deep", INCLUDE_DEPTH_MAX);
        return CONFIG_REFUSED;
    }
    file = fopen(path, "re");
    if (!file) {
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
    struct source input = {.name = "standard input"};

    if (strcmp(path, "-") == 0)
        return load_stream(cfg, &merge, &input, stdin, err);
    return load_source(cfg, &merge, NULL, path, err);
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

    errbuf_set(err, "%s %s: %s", what, path, strerror(-status));
    return status;
}

static int read_all(int fd, const char *path, struct buf *out, struct errbuf *err)
{
    for (;;) {
        char *room = buf_reserve(out, 4096);
        if (!room) {
            errno = buf_len(out) + 4096 > out->cap ? EFBIG : ENOMEM;
            return config_file_failed("cannot read", path, err);
        }
        ssize_t n = read(fd, room, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return config_file_failed("cannot read", path, err);
        if (n == 0)
            return 0;
        buf_commit(out, (size_t)n);
    }
}

int config_file_read(const char *path, struct buf *out, struct stat *stat_out, struct errbuf *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return config_file_failed("cannot open", path, err);
    int status = fstat(fd, stat_out) != 0 ? config_file_failed("cannot read", path, err) : read_all(fd, path, out, err);
    close(fd);
    return status;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Keeps the mode, and the owner where that is permitted. */
static int write_file(const char *path, const struct buf *text, const struct stat *old, struct errbuf *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return config_file_failed("cannot create", path, err);
    int owner_kept = old ? fchown(fd, old->st_uid, old->st_gid) : 0;
    int status = 0;
    (void)owner_kept;
    if ((old && fchmod(fd, old->st_mode & 07777) != 0) || write_all(fd, buf_head(text), buf_len(text)) != 0 ||
        fsync(fd) != 0)
        status = config_file_failed("cannot write", path, err);
    if (close(fd) != 0 && status == 0)
        status = config_file_failed("cannot write", path, err);
    if (status != 0)
        unlink(path);
    return status;
}

/* The directory of a file, and the file's name in it. */
static const char *split_path(const char *path, char dir_out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t len = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);

    memcpy(dir_out, len == 0 ? "." : path, len == 0 ? 1 : len);
    dir_out[len == 0 ? 1 : len] = '\0';
    return slash ? slash + 1 : path;
}

/* Whether a name is "<base>.<number>.tmp", and no process has that number: it was killed while it wrote. */
static bool is_left_behind(const char *name, const char *base)
{
    size_t len = strlen(base);
    char *end;

    if (strncmp(name, base, len) != 0 || name[len] != '.' || name[len + 1] < '1' || name[len + 1] > '9')
        return false;
    errno = 0;
    long number = strtol(name + len + 1, &end, 10);
    return errno == 0 && strcmp(end, ".tmp") == 0 && number == (pid_t)number && kill((pid_t)number, 0) != 0 &&
           errno == ESRCH;
}

/* Removes the temporary files that killed processes have left: they may hold secrets, and would pile up. A file that
 * cannot be removed is tried again at the next write. */
static void sweep(const char *path)
{
    char dir[PATH_MAX];
    const char *base = split_path(path, dir);
    DIR *entries = opendir(dir);

    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
        if (is_left_behind(entry->d_name, base))
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    if (entries)
        closedir(entries);
}

static int sync_directory_of(const char *path, struct errbuf *err)
{
    char dir[PATH_MAX];

    (void)split_path(path, dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return config_file_failed("cannot sync", dir, err);
    int status = fsync(fd) != 0 ? config_file_failed("cannot sync", dir, err) : 0;
    close(fd);
    return status;
}

int config_file_replace(const char *path, const struct buf *text, const struct stat *old, struct errbuf *err)
{
    char temporary[PATH_MAX];

    if (snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return config_file_failed("cannot write", path, err);
    }
    sweep(path);
    unlink(temporary); /* left by a killed process of the same number */
    int status = write_file(temporary, text, old, err);
    if (status != 0)
        return status;
    if (rename(temporary, path) != 0) {
        status = config_file_failed("cannot replace", path, err);
        unlink(temporary);
        return status;
    }
    return sync_directory_of(path, err);
}
