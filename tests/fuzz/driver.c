/* A main() for fuzz targets where libFuzzer is not at hand (gcc): runs the target once on every file named, or found in
 * a directory named, on the command line. The kept corpus is replayed so as a test in every build. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned runs;

static void run_file(const char *path)
{
    struct stat st;
    FILE *file = fopen(path, "rb");

    if (file == NULL || fstat(fileno(file), &st) != 0) {
        perror(path);
        exit(1);
    }
    /* Exactly as long as the file, so that a sanitizer sees the first byte read beyond it. */
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size > 0 ? size : 1);
    if (data == NULL || fread(data, 1, size, file) != size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    fprintf(stderr, "%s (%zu bytes)\n", path, size); /* the last one printed is the one that crashed */
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    runs++;
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
