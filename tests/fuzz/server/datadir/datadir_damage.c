#include "datadir_damage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "check.h"
#include "log_frame.h"

#define CHANGES   6
#define FILES_MAX 64
#define PATH_SIZE 1024
#define BYTES_MAX (1u << 20)
#define FRAMES    64

struct bytes {
    unsigned char *ptr; /* a byte more than `len`, which is 0 */
    size_t len;
};

struct tree {
    char paths[FILES_MAX][PATH_SIZE]; /* regular files, sorted */
    size_t n;
};

/* ---- files ---- */

static struct bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct bytes bytes = {malloc(BYTES_MAX + 1), 0};

    CHECK(bytes.ptr != NULL);
    if (file) {
        bytes.len = fread(bytes.ptr, 1, BYTES_MAX, file);
        fclose(file);
    }
    bytes.ptr[bytes.len] = '\0';
    return bytes;
}

static void write_file(const char *path, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640); /* a directory may be there */

    if (fd < 0)
        return;
    CHECK(write(fd, bytes, len) == (ssize_t)len);
    close(fd);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void walk(struct tree *tree, const char *dir)
{
    DIR *d = opendir(dir);
    char path[PATH_SIZE];
    struct stat st;

    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || strcmp(e->d_name, "LOCK") == 0)
            continue;
        CHECK((size_t)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < sizeof(path));
        if (lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            walk(tree, path);
        else if (S_ISREG(st.st_mode) && tree->n < FILES_MAX)
            strcpy(tree->paths[tree->n++], path);
    }
    closedir(d);
}

static void list(struct tree *tree, const char *dir)
{
    tree->n = 0;
    walk(tree, dir);
    qsort(tree->paths, tree->n, PATH_SIZE, by_path);
}

uint64_t datadir_tree_digest(const char *dir)
{
    static struct tree tree;
    uint64_t sum = 0;

    list(&tree, dir);
    for (size_t i = 0; i < tree.n; i++) {
        struct bytes bytes = read_file(tree.paths[i]);
        sum = XXH3_64bits_withSeed(tree.paths[i], strlen(tree.paths[i]), sum);
        sum = XXH3_64bits_withSeed(bytes.ptr, bytes.len, sum);
        free(bytes.ptr);
    }
    return sum;
}

/* A file of the directory; with a part of its path, if there is one. NULL: there is no file. */
static const char *choose(struct tree *tree, struct recipe *r, const char *part)
{
    size_t first = recipe_byte(r);

    for (size_t i = 0; i < tree->n; i++) {
        const char *path = tree->paths[(first + i) % tree->n];
        if (!part || strstr(path, part))
            return path;
    }
    return NULL;
}

/* ---- texts: the MANIFEST ---- */

/* Replaces the bytes [at, at + old). */
static void replace(struct bytes *bytes, size_t at, size_t old, const void *with, size_t len)
{
    if (bytes->len - old + len > BYTES_MAX)
        return;
    memmove(bytes->ptr + at + len, bytes->ptr + at + old, bytes->len - at - old + 1);
    memmove(bytes->ptr + at, with, len);
    bytes->len = bytes->len - old + len;
}

static size_t count_lines(const struct bytes *text, const char *start)
{
    size_t n = 0, len = strlen(start);

    for (unsigned char *line = text->ptr; line && *line; line = (unsigned char *)strchr((char *)line, '\n')) {
        line += *line == '\n';
        n += strncmp((char *)line, start, len) == 0;
    }
    return n;
}

/* Corrects the last line. */
static void sign_text(struct bytes *text)
{
    char *at = (char *)text->ptr, *end = NULL, line[128];

    while ((at = strstr(at, "\nend "))) /* the last of them if there are several */
        end = ++at;
    if (!end)
        return;
    size_t len = (size_t)(end - (char *)text->ptr);
    unsigned long long sum = XXH3_64bits(text->ptr, len);
    if (strstr(end, "filters="))
        snprintf(line, sizeof(line), "end filters=%zu xxh3=%016llx\n",
                 count_lines(text, "filter ") - count_lines(text, "gone "), sum);
    else
        snprintf(line, sizeof(line), "end %016llx\n", sum);
    replace(text, len, text->len - len, line, strlen(line));
}

/* The n-th number that follows a '=' or a blank. */
static bool find_number(const struct bytes *text, size_t n, size_t *at_out, size_t *len_out)
{
    for (int pass = 0; pass < 2; pass++) {
        size_t found = 0;
        for (size_t i = 1; i < text->len; i++) {
            size_t len = strspn((char *)text->ptr + i, "0123456789");
            if (!strchr("= ,", text->ptr[i - 1]) || len == 0)
                continue;
            if (pass && found == n) {
                *at_out = i;
                *len_out = len;
                return true;
            }
            found++;
        }
        if (found == 0)
            return false;
        n %= found;
    }
    return false;
}

static bool find_line(const struct bytes *text, size_t n, size_t *at_out, size_t *len_out)
{
    size_t lines = count_lines(text, ""), at = 0;

    if (lines < 2)
        return false;
    for (n %= lines - 1; n > 0; n--)
        at = (size_t)(strchr((char *)text->ptr + at, '\n') - (char *)text->ptr) + 1;
    *at_out = at;
    *len_out = strcspn((char *)text->ptr + at, "\n") + 1;
    return *len_out <= text->len - at;
}

static void insert_gone(struct bytes *text, struct recipe *r)
{
    char line[64];
    size_t at, len;

    if (!find_line(text, recipe_byte(r), &at, &len))
        return;
    snprintf(line, sizeof(line), "gone id=%llu\n", (unsigned long long)recipe_number(r));
    replace(text, at, 0, line, strlen(line));
}

static void change_text(const char *path, struct recipe *r)
{
    struct bytes text = read_file(path);
    size_t at, len, to, to_len;
    char number[32];

    switch (recipe_below(r, 8)) {
    case 0:
    case 1:
    case 2:
        if (find_number(&text, recipe_byte(r), &at, &len)) {
            snprintf(number, sizeof(number), "%llu", (unsigned long long)recipe_number(r));
            replace(&text, at, len, number, strlen(number));
        }
        break;
    case 3: /* of one field to another */
        if (find_number(&text, recipe_byte(r), &at, &len) && find_number(&text, recipe_byte(r), &to, &to_len)) {
            memcpy(number, text.ptr + at, len < sizeof(number) ? len : sizeof(number));
            replace(&text, to, to_len, number, len < sizeof(number) ? len : sizeof(number));
        }
        break;
    case 4:
        if (find_line(&text, recipe_byte(r), &at, &len))
            replace(&text, at, len, "", 0);
        break;
    case 5:
        if (find_line(&text, recipe_byte(r), &at, &len) && find_line(&text, recipe_byte(r), &to, &to_len)) {
            unsigned char *copy = malloc(len);
            CHECK(copy != NULL);
            memcpy(copy, text.ptr + at, len);
            replace(&text, to, 0, copy, len);
            free(copy);
        }
        break;
    case 6:
        insert_gone(&text, r);
        break;
    default:
        if (text.len)
            text.ptr[recipe_number(r) % text.len] = (unsigned char)recipe_byte(r);
    }
    if (recipe_byte(r) % 8 != 7)
        sign_text(&text);
    write_file(path, text.ptr, text.len);
    free(text.ptr);
}

/* ---- the log ---- */

struct segment {
    struct log_header header;
    struct log_frame frames[FRAMES];
    size_t n;
};

static bool parse_segment(const struct bytes *bytes, struct segment *s)
{
    size_t at = LOG_HEADER_BYTES, n;

    s->n = 0;
    if (bytes->len < LOG_HEADER_BYTES || log_header_decode(bytes->ptr, &s->header, NULL) != LOG_OK)
        return false;
    while (s->n < FRAMES && at < bytes->len &&
           (n = log_frame_parse(bytes->ptr + at, bytes->len - at, s->header.salt, s->header.first + s->n,
                                &s->frames[s->n]))) {
        s->n++;
        at += n;
    }
    return true;
}

static void write_segment(const char *path, const struct segment *s)
{
    struct bytes out = {calloc(1, BYTES_MAX), LOG_HEADER_BYTES};

    CHECK(out.ptr != NULL);
    log_header_encode(&s->header, out.ptr);
    for (size_t i = 0; i < s->n; i++) {
        if (out.len + LOG_FRAME_HEAD_MAX + s->frames[i].payload_len > BYTES_MAX)
            break;
        out.len += log_frame_head(&s->frames[i], s->header.salt, out.ptr + out.len);
        memcpy(out.ptr + out.len, s->frames[i].payload, s->frames[i].payload_len);
        out.len += s->frames[i].payload_len;
    }
    write_file(path, out.ptr, out.len);
    free(out.ptr);
}

/* Gives frames the numbers of their places. */
static void number_frames(struct segment *s)
{
    for (size_t i = 0; i < s->n; i++) {
        uint64_t distance = s->frames[i].sequence - s->frames[i].synced;
        s->frames[i].sequence = s->header.first + i;
        s->frames[i].synced = distance <= s->frames[i].sequence ? s->frames[i].sequence - distance : 0;
    }
}

static void change_frame(struct segment *s, struct recipe *r, unsigned char *payload)
{
    size_t i = recipe_below(r, s->n), j = recipe_below(r, s->n);
    struct log_frame *f = &s->frames[i], one = *f;

    switch (recipe_below(r, 8)) {
    case 0:
    case 1:
    case 2: /* a byte of its payload */
        memcpy(payload, f->payload, f->payload_len);
        if (f->payload_len)
            payload[recipe_number(r) % f->payload_len] = (unsigned char)recipe_byte(r);
        f->payload = payload;
        break;
    case 3:
        f->payload_len = recipe_number(r) % (f->payload_len + 1);
        break;
    case 4:
        memmove(f, f + 1, (s->n - i - 1) * sizeof(*f));
        s->n--;
        break;
    case 5:
        s->frames[i] = s->frames[j];
        s->frames[j] = one;
        break;
    case 6:
        if (s->n < FRAMES)
            s->frames[s->n++] = *f;
        break;
    default:
        f->has_controls = !f->has_controls;
        f->synced = f->sequence - 1 - recipe_number(r) % f->sequence;
    }
    if (recipe_byte(r) % 8 != 7)
        number_frames(s);
}

static void change_segment(const char *path, struct recipe *r)
{
    struct bytes bytes = read_file(path);
    unsigned char *payload = malloc(BYTES_MAX);
    static struct segment s;

    CHECK(payload != NULL);
    if (parse_segment(&bytes, &s)) {
        uint64_t *const fields[] = {&s.header.number,  &s.header.first,      &s.header.salt,
                                    &s.header.process, &s.header.generation, &s.header.sealed};
        if (s.n == 0 || recipe_byte(r) % 4 == 1)
            *fields[recipe_below(r, 6)] = recipe_number(r);
        else
            change_frame(&s, r, payload);
        write_segment(path, &s);
    }
    free(payload);
    free(bytes.ptr);
}

/* ---- files of filters ---- */

/* Changes a byte; the MANIFEST may state this as the original content if the file was one layer. */
static void change_bytes(const char *dir, const char *path, struct recipe *r)
{
    struct bytes bytes = read_file(path), text;
    char manifest[PATH_SIZE], sum[24];

    snprintf(manifest, sizeof(manifest), "%s/MANIFEST", dir);
    text = read_file(manifest);
    snprintf(sum, sizeof(sum), "xxh3=%016llx", (unsigned long long)XXH3_64bits(bytes.ptr, bytes.len));
    char *found = strstr((char *)text.ptr, sum);
    if (bytes.len)
        bytes.ptr[recipe_number(r) % bytes.len] = (unsigned char)recipe_byte(r);
    if (found && recipe_byte(r) & 1) {
        snprintf(sum, sizeof(sum), "xxh3=%016llx", (unsigned long long)XXH3_64bits(bytes.ptr, bytes.len));
        memcpy(found, sum, strlen(sum));
        sign_text(&text);
        write_file(manifest, text.ptr, text.len);
    }
    write_file(path, bytes.ptr, bytes.len);
    free(bytes.ptr);
    free(text.ptr);
}

/* ---- names ---- */

static void other_name(const char *dir, struct recipe *r, char *out)
{
    static const char *const formats[] = {
        "%s/filters/na-%u-big-Filter.db",
        "%s/filters/me-%u-big-Filter.db",
        "%s/filters/%u.pack",
        "%s/log/%08u.log",
        "%s/log/%08u.log.new",
        "%s/filters/%u.saved",
        "%s/MANIFEST.new",
        "%s/filters/%u/na-%u-big-Filter.db",
        "%s/filters/foreign%u",
        "%s/MANIFEST",
    };
    const char *format = formats[recipe_below(r, 10)];
    unsigned one = recipe_byte(r) % 16, two = recipe_byte(r) % 16;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    snprintf(out, PATH_SIZE, format, dir, one, two);
#pragma GCC diagnostic pop
}

static void change_names(const char *dir, const char *path, struct recipe *r)
{
    char other[PATH_SIZE], parent[PATH_SIZE];
    struct bytes bytes;

    other_name(dir, r, other);
    strcpy(parent, other);
    *strrchr(parent, '/') = '\0';
    mkdir(parent, 0750);
    switch (recipe_below(r, 6)) {
    case 0:
        unlink(path);
        break;
    case 1:
        (void)!rename(path, other);
        break;
    case 2:
        bytes = read_file(path);
        write_file(other, bytes.ptr, bytes.len);
        free(bytes.ptr);
        break;
    case 3:
        unlink(other);
        mkdir(other, 0750);
        break;
    case 4:
        unlink(other);
        (void)!symlink(path, other);
        break;
    default:
        (void)!truncate(path, (off_t)(recipe_number(r) % 8192));
    }
}

/* ---- all ---- */

unsigned datadir_damage(const char *dir, struct recipe *recipe)
{
    static struct tree tree;
    unsigned changes = 0;
    const char *path;

    while (changes < CHANGES && recipe_more(recipe)) {
        list(&tree, dir);
        switch (recipe_below(recipe, 8)) {
        case 0:
        case 1:
        case 2:
            path = choose(&tree, recipe, "/MANIFEST");
            if (path)
                change_text(path, recipe);
            break;
        case 3:
        case 4:
            path = choose(&tree, recipe, "/log/");
            if (path)
                change_segment(path, recipe);
            break;
        case 5:
            path = choose(&tree, recipe, recipe_byte(recipe) & 1 ? ".pack" : "/filters/");
            if (path)
                change_bytes(dir, path, recipe);
            break;
        default:
            path = choose(&tree, recipe, NULL);
            if (path)
                change_names(dir, path, recipe);
        }
        changes++;
    }
    return changes;
}
