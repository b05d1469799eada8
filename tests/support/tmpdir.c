#include "tmpdir.h"

#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *path)
{
    perror(path);
    abort();
}

void tmpdir_create(char path[TMPDIR_SIZE])
{
    const char *base = getenv("TMPDIR");

    snprintf(path, TMPDIR_SIZE, "%s/bloomery-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path))
        die(path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void tmpdir_remove(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        die(path);
}

struct tmp_path tmp_path(const char *dir, const char *fmt, ...)
{
    struct tmp_path path;
    va_list args;
    int len = snprintf(path.text, sizeof(path.text), "%s/", dir);

    va_start(args, fmt);
    vsnprintf(path.text + len, sizeof(path.text) - (size_t)len, fmt, args);
    va_end(args);
    return path;
}

bool file_exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

unsigned char *file_read(const char *path, size_t *len_out)
{
    FILE *file = fopen(path, "rb");
    struct stat st;

    if (!file || fstat(fileno(file), &st) != 0)
        die(path);
    unsigned char *bytes = malloc((size_t)st.st_size + 1);
    if (!bytes || fread(bytes, 1, (size_t)st.st_size, file) != (size_t)st.st_size)
        die(path);
    bytes[st.st_size] = 0;
    fclose(file);
    *len_out = (size_t)st.st_size;
    return bytes;
}

const char *file_text(const char *path)
{
    static unsigned char *last;
    size_t len;

    free(last);
    last = file_read(path, &len);
    return (const char *)last;
}

void file_write(const char *path, const void *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");

    if (!file || fwrite(bytes, 1, len, file) != len || fclose(file) != 0)
        die(path);
}

void file_write_text(const char *path, const char *text)
{
    file_write(path, text, strlen(text));
}

void file_copy(const char *from, const char *to)
{
    size_t len;
    unsigned char *bytes = file_read(from, &len);

    file_write(to, bytes, len);
    free(bytes);
}

void file_truncate(const char *path, size_t len)
{
    if (truncate(path, (off_t)len) != 0)
        die(path);
}

static void flip(const char *path, long at, unsigned char bits)
{
    size_t len;
    unsigned char *bytes = file_read(path, &len);

    at = at < 0 ? (long)len + at : at;
    if (at < 0 || (size_t)at >= len)
        die(path);
    bytes[at] ^= bits;
    file_write(path, bytes, len);
    free(bytes);
}

void file_flip_bit(const char *path, size_t bit)
{
    flip(path, (long)(bit / 8), (unsigned char)(1u << (bit % 8)));
}

void file_change_byte(const char *path, long at)
{
    flip(path, at, 0x20);
}

/* A number of docs/FORMAT.md section 11 at bytes[*at]: 7 bits a byte, low bits first; 0 behind the end. */
static size_t read_number(const unsigned char *bytes, size_t len, size_t *at)
{
    size_t number = 0;
    unsigned shift = 0;
    bool more = true;

    for (; more && *at < len && shift < 64; shift += 7) {
        number |= (size_t)(bytes[*at] & 127) << shift;
        more = bytes[(*at)++] >= 128;
    }
    return number;
}

size_t log_end(const char *segment)
{
    enum { SEGMENT_HEAD = 4096, CHECKSUM_AND_SEQUENCE = 6, LONG = 128 };
    size_t len, end = SEGMENT_HEAD, at = SEGMENT_HEAD;
    unsigned char *bytes = file_read(segment, &len);

    for (;;) {
        at += CHECKSUM_AND_SEQUENCE;
        if (read_number(bytes, len, &at) == 0) /* zeros, or the end of the file */
            break;
        size_t payload = read_number(bytes, len, &at) / 2;
        at += payload + (payload >= LONG ? 4 : 0);
        if (payload > 0)
            end = at;
    }
    free(bytes);
    return end;
}

bool file_is(const char *path, const void *bytes, size_t len)
{
    size_t found_len;
    unsigned char *found = file_read(path, &found_len);
    bool same = found_len == len && memcmp(found, bytes, len) == 0;

    free(found);
    return same;
}

size_t dir_count(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;

    if (!dir)
        return 0;
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}
