#include "key_file.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "alloc.h"

#define TEXT_MAX 65536 /* of a file: comments take most of it */

/* ---- lines ---- */

static bool read_bytes(const char *digits, size_t len, unsigned char *out)
{
    for (size_t i = 0; i < len; i++) {
        int byte = hex_byte(digits + 2 * i);

        if (byte < 0)
            return false;
        out[i] = (unsigned char)byte;
    }
    return true;
}

bool key_id_parse(const char *text, size_t len, uint64_t *id_out)
{
    unsigned char bytes[8];

    if (len != KEY_ID_DIGITS || !read_bytes(text, sizeof(bytes), bytes))
        return false;
    *id_out = 0;
    for (size_t i = 0; i < sizeof(bytes); i++)
        *id_out = *id_out << 8 | bytes[i];
    return *id_out != 0;
}

/* A line without its end. False: `what` states the fault, without any text of the line. */
static bool read_line(const char *line, size_t len, struct bloom_secret *out, const char **what)
{
    unsigned char secret[BLOOM_SECRET_BYTES];
    uint64_t id;

    *what = "it is not an id of 16 hexadecimal digits, a space, and a key of 64";
    bool valid = len == KEY_LINE_LEN - 1 && line[KEY_ID_DIGITS] == ' ' && key_id_parse(line, KEY_ID_DIGITS, &id) &&
                 read_bytes(line + KEY_ID_DIGITS + 1, sizeof(secret), secret);
    if (valid) {
        bloom_secret_derive(secret, out);
        *what = "the id is not that of the key";
        valid = out->id == id;
    }
    explicit_bzero(secret, sizeof(secret));
    return valid;
}

/* ---- reading ---- */

static int parse(const char *text, size_t len, struct key_file *file, struct errbuf *err)
{
    const char *end = text + len;

    for (unsigned line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text)), *what = "there are too many keys";
        size_t n = (size_t)((stop ? stop : end) - text);

        if (n > 0 && text[n - 1] == '\r')
            n--;
        if (n > 0 && text[0] != '#') {
            if (file->n == KEY_FILE_KEYS || !read_line(text, n, &file->secrets[file->n], &what))
                return errbuf_fail(err, -EINVAL, "line %u: %s", line, what);
            file->n++;
        }
        text = stop ? stop + 1 : end;
    }
    if (file->n == 0)
        errbuf_set(err, "there is no key in it");
    return file->n ? 0 : -EINVAL;
}

static int read_text(const struct fsops *fs, const char *path, char *text, size_t *len_out, struct errbuf *err)
{
    uint64_t size = 0;
    int fd, rc = fs->open(fs->ctx, path, FS_READ, &fd);

    if (rc == 0) {
        rc = fs->size(fs->ctx, fd, &size);
        if (rc == 0 && size <= TEXT_MAX)
            rc = fs_read_all(fs, fd, text, (size_t)size, 0);
        fs->close(fs->ctx, fd);
    }
    if (rc != 0)
        errbuf_set(err, "%s", fs_error_text(rc));
    else if (size > TEXT_MAX)
        errbuf_set(err, "it has more than %d bytes", TEXT_MAX);
    *len_out = (size_t)size;
    return rc == 0 && size > TEXT_MAX ? -EINVAL : rc;
}

int key_file_read(const struct fsops *fs, const char *path, struct key_file **out, struct errbuf *err)
{
    struct key_file *file = secret_alloc(sizeof(*file));
    char *text = secret_alloc(TEXT_MAX);
    size_t len;
    int rc = -ENOMEM;

    if (file && text) {
        rc = read_text(fs, path, text, &len, err);
        STEP(rc, parse(text, len, file, err));
    } else {
        errbuf_set(err, "out of memory");
    }
    errbuf_prefix(err, "key file %s", path);
    secret_free(text, TEXT_MAX);
    if (rc != 0)
        key_file_free(file);
    else
        *out = file;
    return rc;
}

bool key_file_is_exposed(const char *path, struct errbuf *text_out)
{
    struct stat st;

    if (stat(path, &st) != 0 || !(st.st_mode & (st.st_uid == geteuid() ? 077 : 07)))
        return false;
    errbuf_set(text_out,
               "the key file %s has the mode %04o: who reads a key can attack its KEYED filters; give it the mode 0600",
               path, (unsigned)(st.st_mode & 07777));
    return true;
}

void key_file_free(struct key_file *file)
{
    secret_free(file, sizeof(*file));
}

/* ---- making ---- */

int key_line_make(char line[KEY_LINE_LEN])
{
    unsigned char secret[BLOOM_SECRET_BYTES];
    struct bloom_secret derived;
    char *at = line;

    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        return errno ? -errno : -EIO;
    bloom_secret_derive(secret, &derived);
    for (int shift = 56; shift >= 0; shift -= 8)
        at = hex_put(at, (char)(derived.id >> shift));
    *at++ = ' ';
    for (size_t i = 0; i < sizeof(secret); i++)
        at = hex_put(at, (char)secret[i]);
    *at = '\n';
    explicit_bzero(secret, sizeof(secret));
    explicit_bzero(&derived, sizeof(derived));
    return 0;
}

/* link() never replaces a file. */
static int write_file(const struct fsops *fs, const char *dir, const char *path, const char *text, size_t len,
                      struct errbuf *err)
{
    struct path fresh;
    int fd;
    TRY(path_format(&fresh, err, "%s.new", path));
    TRY(fs_open_new(fs, fresh.text, FS_WRITE | FS_PRIVATE, &fd));
    int rc = fs_write_all(fs, fd, text, len, 0);
    STEP(rc, fs->sync(fs->ctx, fd));
    int close_rc = fs->close(fs->ctx, fd);
    STEP(rc, close_rc);
    STEP(rc, fs->link(fs->ctx, fresh.text, path));
    (void)fs->unlink(fs->ctx, fresh.text);
    if (rc != 0 && rc != -EEXIST)
        return rc;
    bool made = rc == 0;
    rc = fs->sync_dir(fs->ctx, dir);
    if (rc != 0 && made) /* the next attempt must not take a name that power may lose */
        (void)fs->unlink(fs->ctx, path);
    return rc;
}

int key_file_make(const struct fsops *fs, const char *dir, const char *path, struct errbuf *err)
{
    char line[KEY_LINE_LEN];
    struct errbuf why = {""};
    int rc = key_line_make(line);

    STEP(rc, write_file(fs, dir, path, line, sizeof(line), &why));
    explicit_bzero(line, sizeof(line));
    if (rc != 0)
        errbuf_set(err, "cannot make the key file %s: %s", path, why.text[0] ? why.text : fs_error_text(rc));
    return rc;
}
