/* Formatting. The error rate is written with the fewest digits that read back as the same number. */
#include "manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"
#include "manifest_text.h"
#include "name_code.h"

#define LINE_WITHOUT_NAME (320 + NAME_DIR_MAX)

void manifest_text_deinit(struct manifest_text *text)
{
    free(text->ptr);
    *text = (struct manifest_text){0};
}

int manifest_text_reserve(struct manifest_text *text, size_t more)
{
    size_t size = text->size ? text->size : 1024;

    while (size - text->len < more)
        size *= 2;
    if (size == text->size)
        return 0;
    char *ptr = realloc(text->ptr, size);
    if (!ptr)
        return -ENOMEM;
    text->ptr = ptr;
    text->size = size;
    return 0;
}

__attribute__((format(printf, 2, 3))) static void append(struct manifest_text *text, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    text->len += (size_t)vsnprintf(text->ptr + text->len, text->size - text->len, fmt, args);
    va_end(args);
}

void manifest_format_rate(double rate, char out[MANIFEST_RATE_SIZE])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, MANIFEST_RATE_SIZE, "%.*g", digits, rate);
        if (strtod(out, NULL) == rate)
            return;
    }
}

uint64_t manifest_filter_bytes(const struct manifest_filter *filter)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < filter->nlayers; i++)
        bytes += filterdb_bytes(filter->layers[i].nwords);
    return bytes;
}

int manifest_format_header(struct manifest_text *text, const struct manifest_save *save)
{
    if (manifest_text_reserve(text, LINE_WITHOUT_NAME) != 0)
        return -ENOMEM;
    append(text,
           MANIFEST_MAGIC "\nsave generation=%" PRIu64 " next-id=%" PRIu64 " log=%" PRIu64 " control=%" PRIu64 " frame=%" PRIu64
           " accepted=%" PRIu64 "\n",
           save->generation, save->next_id, save->log, save->control, save->frame, save->accepted);
    return 0;
}

int manifest_format_filter(struct manifest_text *text, const struct manifest_filter *filter)
{
    size_t encoded = name_encoded_len(filter->name, filter->name_len);
    char rate[MANIFEST_RATE_SIZE];
    char dir[NAME_DIR_MAX + 1];

    if (manifest_text_reserve(text, encoded + LINE_WITHOUT_NAME * (1 + (size_t)filter->nlayers)) != 0)
        return -ENOMEM;
    manifest_format_rate(filter->params.error_rate, rate);
    append(text, "filter id=%" PRIu64 " name=", filter->id);
    name_encode(filter->name, filter->name_len, text->ptr + text->len);
    text->len += encoded;
    name_dir(filter->name, filter->name_len, filter->id, dir);
    if (filter->pack)
        append(text, " pack=%" PRIu64 " offset=%" PRIu64, filter->pack, filter->pack_offset);
    else if (strcmp(dir, filter->dir) != 0)
        append(text, " dir=%s", filter->dir);
    append(text,
           " capacity=%" PRIu64 " error-rate=%s expansion=%" PRIu32 " variant=%s expires-ms=%" PRId64
           " layers=%u\n",
           filter->params.capacity, rate, filter->params.expansion, filterdb_variant_name(filter->variant),
           filter->expires_ms, filter->nlayers);
    for (unsigned i = 0; i < filter->nlayers; i++) {
        const struct manifest_layer *layer = &filter->layers[i];
        append(text, "layer k=%u words=%" PRIu64 " items=%" PRIu64 " xxh3=%016" PRIx64 " generation=%" PRIu64 "\n",
               layer->k, layer->nwords, layer->items, layer->xxh3, layer->generation);
    }
    return 0;
}

static void format_packed_removed(struct manifest_text *text, const struct manifest_removed *removed)
{
    append(text, "removed %s id=%" PRIu64 " dir=%.*s pack=%" PRIu64 " offset=%" PRIu64 " bytes=",
           removed->keep ? "keep" : "delete", removed->id, (int)removed->dir_len, removed->dir, removed->pack,
           removed->pack_offset);
    for (unsigned i = 0; i < removed->nlayers; i++)
        append(text, "%s%" PRIu64, i > 0 ? "," : "", removed->sizes[i]);
    append(text, "\n");
}

int manifest_format_removed(struct manifest_text *text, const struct manifest_removed *removed)
{
    if (manifest_text_reserve(text, removed->dir_len + LINE_WITHOUT_NAME + 24 * (size_t)removed->nlayers) != 0)
        return -ENOMEM;
    if (removed->pack)
        return format_packed_removed(text, removed), 0;
    append(text, "removed %s id=%" PRIu64 " dir=%.*s placed=%u shared=%u owner=%" PRIu64 " generations=",
           removed->keep ? "keep" : "delete", removed->id, (int)removed->dir_len, removed->dir, removed->placed,
           removed->shared, removed->owner);
    for (unsigned i = 0; i < removed->nlayers; i++)
        append(text, "%s%" PRIu64, i > 0 ? "," : "", removed->generations[i]);
    append(text, "\n");
    return 0;
}

int manifest_format_end(struct manifest_text *text, uint64_t nfilters, uint64_t nremoved, uint64_t xxh3)
{
    if (manifest_text_reserve(text, LINE_WITHOUT_NAME) != 0)
        return -ENOMEM;
    append(text, "end filters=%" PRIu64 " removed=%" PRIu64 " xxh3=%016" PRIx64 "\n", nfilters, nremoved, xxh3);
    return 0;
}
