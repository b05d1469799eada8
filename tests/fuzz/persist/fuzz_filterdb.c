/* A Filter.db file: an accepted file has the same bytes when written again. The first byte chooses the variant. The
 * input is tried as a file name, too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "filterdb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_name(const uint8_t *data, size_t size)
{
    enum bloom_variant variant;
    struct errbuf err = {{0}};
    char *name = malloc(size + 1);

    CHECK(name != NULL);
    memcpy(name, data, size);
    name[size] = '\0';
    CHECK((filterdb_variant_from_path(name, &variant, &err) == FILTERDB_OK) == (err.text[0] == '\0'));
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bloom_shape shape;
    struct errbuf err = {{0}};

    if (size < 1)
        return 0;
    enum bloom_variant variant = (enum bloom_variant)(data[0] % 3);
    const uint8_t *file = data + 1;
    size_t file_size = size - 1;
    try_name(file, file_size);
    int rc = filterdb_decode_header(file, file_size, variant, &shape, &err);
    CHECK((rc == FILTERDB_OK) == (err.text[0] == '\0'));
    if (rc != FILTERDB_OK)
        return 0;
    CHECK(filterdb_bytes(shape.nwords) == file_size);
    _Atomic uint64_t *words = calloc(shape.nwords, 8);
    unsigned char *again = malloc(file_size);
    CHECK(words && again);
    filterdb_decode_words(variant, file + FILTERDB_HEADER_BYTES, shape.nwords, words);
    filterdb_encode_header(&shape, again);
    filterdb_encode_words(variant, words, shape.nwords, again + FILTERDB_HEADER_BYTES);
    CHECK(memcmp(again, file, file_size) == 0);
    free((void *)words);
    free(again);
    return 0;
}
