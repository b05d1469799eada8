#include "index_file.h"

#include <stdlib.h>
#include <string.h>

static void put(struct index_file *file, const void *bytes, size_t len)
{
    if (file->len + len > file->size) {
        file->size = 2 * (file->len + len);
        file->bytes = realloc(file->bytes, file->size);
        if (!file->bytes)
            abort();
    }
    if (len)
        memcpy(file->bytes + file->len, bytes, len);
    file->len += len;
}

static void put_number(struct index_file *file, uint64_t value, unsigned bytes)
{
    unsigned char number[8];
    for (unsigned i = 0; i < bytes; i++)
        number[i] = (unsigned char)(value >> (8 * (bytes - 1 - i)));
    put(file, number, bytes);
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
    put_number(file, len, 2);
    put(file, key, len);
    file->place += 1000 * file->place + 77; /* numbers of all lengths */
    if (file->numbers_vary) {
        put_vint(file, file->place);
        put_vint(file, behind);
    } else {
        put_number(file, file->place, 8);
        put_number(file, behind, 4);
    }
    unsigned char *rows = calloc(1, behind + 1);
    if (!rows)
        abort();
    put(file, rows, behind);
    free(rows);
}
