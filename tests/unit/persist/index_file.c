#include "index_file.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "check.h"

static void put(struct index_file *file, const void *bytes, size_t len)
{
    if (file->len + len > file->size) {
        file->size = 2 * (file->len + len);
        file->bytes = realloc(file->bytes, file->size);
        CHECK(file->bytes);
    }
    if (len)
        memcpy(file->bytes + file->len, bytes, len);
    file->len += len;
}

/* As Cassandra's VIntCoding: as few bytes as the number needs. */
static void put_vint(struct index_file *file, uint64_t value)
{
    unsigned char bytes[9];
    unsigned more = 0;
    while (more < 8 && value >> (7 * (more + 1)))
        more++;
    for (unsigned i = 0; i < more; i++)
        bytes[more - i] = (unsigned char)(value >> (8 * i));
    bytes[0] = (unsigned char)(more == 8 ? 0xff : ~(0xffu >> more) | (more < 7 ? value >> (8 * more) : 0));
    put(file, bytes, 1 + more);
}

void index_file_add(struct index_file *file, const void *key, size_t len, size_t behind)
{
    unsigned char number[12];
    be16_put(number, (uint16_t)len);
    put(file, number, 2);
    put(file, key, len);
    file->place += 1000 * file->place + 77; /* numbers of all lengths */
    if (file->numbers_vary) {
        put_vint(file, file->place);
        put_vint(file, behind);
    } else {
        be64_put(number, file->place);
        be32_put(number + 8, (uint32_t)behind);
        put(file, number, 12);
    }
    unsigned char *rows = calloc(1, behind + 1);
    CHECK(rows);
    put(file, rows, behind);
    free(rows);
}
