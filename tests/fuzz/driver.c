/* A main() for fuzz targets where libFuzzer is not available (gcc): runs the target once on every input named on the
 * command line: a file, the files of a directory, the members of a tar archive. So the kept corpus is replayed as a
 * test in every build: inputs that only raise the coverage are in an archive, inputs that once broke something are
 * files with names. scripts/fuzz makes the archives. */
#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned runs;

static void fail(const char *path, const char *why)
{
    fprintf(stderr, "%s: %s\n", path, why);
    exit(1);
}

/* The copy is exactly as long as the input, so that a sanitizer sees a read of the first byte beyond it. */
static void run_input(const char *path, const char *name, const uint8_t *bytes, size_t size)
{
    uint8_t *data = malloc(size > 0 ? size : 1);
    if (data == NULL)
        fail(path, "out of memory");
    if (size > 0)
        memcpy(data, bytes, size);
    fprintf(stderr, "%s %s (%zu bytes)\n", path, name, size); /* the last one printed is the one that crashed */
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    runs++;
}

/* The whole file; the caller frees it. */
static uint8_t *read_file(const char *path, size_t *size_out)
{
    struct stat st;
    FILE *file = fopen(path, "rb");

    if (file == NULL || fstat(fileno(file), &st) != 0) {
        perror(path);
        exit(1);
    }
    *size_out = (size_t)st.st_size;
    uint8_t *data = malloc(*size_out + 1);
    if (data == NULL || fread(data, 1, *size_out, file) != *size_out)
        fail(path, "cannot be read");
    fclose(file);
    return data;
}

/* A ustar archive of plain files: blocks of 512 bytes, a header (name at 0, size in octal digits at 124, type at 156)
 * and the file's bytes, padded. A block of zeros ends it. */
#define TAR_BLOCK 512

static void run_archive(const char *path, const uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at + TAR_BLOCK <= size && bytes[at] != 0;) {
        char name[101] = "", octal[13] = "";
        memcpy(name, bytes + at, 100);
        memcpy(octal, bytes + at + 124, 12);
        size_t len = strtoull(octal, NULL, 8);
        char type = (char)bytes[at + 156];
        at += TAR_BLOCK;
        if (len > size - at)
            fail(path, "ends within a member");
        if (type == '0')
            run_input(path, name, bytes + at, len);
        at += (len + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    }
}

static bool is_archive(const char *path)
{
    size_t len = strlen(path);
    return len > 4 && strcmp(path + len - 4, ".tar") == 0;
}

static void run_file(const char *path)
{
    size_t size;
    uint8_t *bytes = read_file(path, &size);
    if (is_archive(path))
        run_archive(path, bytes, size);
    else
        run_input(path, "", bytes, size);
    free(bytes);
}

static void run_directory(const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);

    if (n < 0) {
        perror(path);
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            run_file(name);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
            run_directory(argv[i]);
        else
            run_file(argv[i]);
    }
    printf("%u inputs\n", runs);
    return runs > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
