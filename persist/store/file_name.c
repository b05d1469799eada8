#include "file_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void file_name_format(const struct file_name *name, char out[FILE_NAME_SIZE])
{
    if (name->kind == FILE_LAYER)
        snprintf(out, FILE_NAME_SIZE, "%s-%" PRIu64 "%s", bloom_variant_name(name->variant), name->number,
                 bloom_variant_is_redisbloom(name->variant) ? ".layer" : "-big-Filter.db");
    else
        snprintf(out, FILE_NAME_SIZE, "%" PRIu64 ".%s", name->number, name->kind == FILE_PACK ? "pack" : "saved");
}

bool file_name_parse(const char *text, struct file_name *out)
{
    struct file_name name = {.kind = FILE_LAYER};
    const char *digits = text;
    char again[FILE_NAME_SIZE];
    char *end;

    if (strlen(text) >= FILE_NAME_SIZE)
        return false;
    if (text[0] >= 'a' && text[0] <= 'z') {
        const char *dash = strchr(text, '-');
        while (dash && (dash[1] < '0' || dash[1] > '9')) /* the name of a variant may have one, too */
            dash = strchr(dash + 1, '-');
        if (!dash || !bloom_variant_parse(text, (size_t)(dash - text), &name.variant))
            return false;
        digits = dash + 1;
    }
    name.number = strtoull(digits, &end, 10);
    if (digits == text)
        name.kind = strcmp(end, ".pack") == 0 ? FILE_PACK : FILE_SAVED;
    /* Signs, leading zeros, and numbers that do not fit: formatting them again gives another text. */
    file_name_format(&name, again);
    if (strcmp(text, again) != 0 || name.number == 0)
        return false;
    *out = name;
    return true;
}
