/* index_file: writes an Index.db of an SSTable. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index_file {
    unsigned char *bytes; /* to be freed */
    size_t len, size;
    bool numbers_vary; /* as from version ma on */
    uint64_t place;
};

/* An entry with this key, after which `behind` bytes of an index of rows follow. */
void index_file_add(struct index_file *file, const void *key, size_t len, size_t behind);
