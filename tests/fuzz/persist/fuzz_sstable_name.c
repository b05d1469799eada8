/* Paths of SSTables: every part is in the path, and a sibling's path gives the same parts. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sstable_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_part(const char *path, size_t size, struct slice part)
{
    CHECK(part.len == 0 || (part.ptr >= path && part.ptr + part.len <= path + size));
    CHECK(part.len == 0 || !memchr(part.ptr, '/', part.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sstable_name name, other;
    struct errbuf err = {{0}};
    enum bloom_variant variant;
    char *path = malloc(size + 1), *sibling = malloc(size + 16);

    CHECK(path && sibling);
    memcpy(path, data, size);
    path[size] = '\0';
    int rc = sstable_name_parse(path, &name, &err);
    CHECK((rc == SSTABLE_OK) == (err.text[0] == '\0'));
    if (rc == SSTABLE_OK) {
        const struct slice parts[] = {name.keyspace, name.table,   name.table_id,   name.index,
                                      name.snapshot, name.version, name.generation, name.component};
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
            check_part(path, strlen(path), parts[i]);
        (void)sstable_is_read(&name);
        (void)sstable_name_variant(&name, &variant, &err);
        CHECK(sstable_sibling(path, &name, "TOC.txt", sibling, size + 16) < size + 16);
        CHECK(sstable_name_parse(sibling, &other, NULL) == SSTABLE_OK);
        CHECK(slice_equal(name.generation, other.generation) && slice_equal(name.version, other.version) &&
              slice_equal(name.table, other.table) && slice_equal(name.keyspace, other.keyspace) &&
              slice_equal(name.index, other.index));
        CHECK(other.place == name.place && other.component.len == 7);
    }
    free(path);
    free(sibling);
    return 0;
}
