/* Formatting. The error rate is written with the fewest digits that read back as the same number. */
#include "manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"
#include "name_code.h"
#include "bloom_layout.h"

/* ---- names of files ---- */

void file_name_format(const struct file_name *name, char out[FILE_NAME_SIZE])
{
    if (name->kind == FILE_LAYER)
        snprintf(out, FILE_NAME_SIZE, "%s-%" PRIu64 "%s", bloom_variant_name(name->variant), name->number,
                 bloom_layout_of(name->variant)->own_numbers ? ".layer" : "-big-Filter.db");
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
        bytes += filterdb_bytes(filter->layers[i].shape.nwords);
    return bytes;
}

void manifest_filter_copy(struct manifest_filter *to, const struct manifest_filter *from)
{
    memcpy(to, from, offsetof(struct manifest_filter, layers) + from->nlayers * sizeof(from->layers[0]));
}

uint64_t manifest_filter_newest(const struct manifest_filter *filter)
{
    uint64_t newest = filter->pack;

    for (unsigned i = 0; i < filter->nlayers; i++)
        newest = filter->layers[i].file > newest ? filter->layers[i].file : newest;
    return newest;
}

void manifest_format_magic(struct buf *text)
{
    buf_appendf(text, MANIFEST_MAGIC "\n");
}

int manifest_check_numbers(const struct manifest_save *save, struct errbuf *err)
{
    const uint64_t most = MANIFEST_MAX_NUMBER / 2;

    if (save->next_id > most || save->number > most || save->log >= most || save->control >= most ||
        save->frame >= most / 2 || save->accepted > most)
        return errbuf_fail(err, -EOVERFLOW,
                           "save number=%" PRIu64 " next-id=%" PRIu64 " log=%" PRIu64 " control=%" PRIu64
                           " frame=%" PRIu64 " accepted=%" PRIu64 ": out of range",
                           save->number, save->next_id, save->log, save->control, save->frame, save->accepted);
    return 0;
}

/* The fields that only a layer in RedisBloom's layout has. */
static void format_redisbloom(struct buf *text, const struct manifest_layer *layer)
{
    char rate[MANIFEST_RATE_SIZE], bpe[MANIFEST_RATE_SIZE];

    manifest_format_rate(layer->shape.error_rate, rate);
    manifest_format_rate(layer->shape.bpe, bpe);
    buf_appendf(text, " n2=%u spare=%u capacity=%" PRIu64 " error-rate=%s bpe=%s", layer->shape.n2,
                layer->shape.spare_bytes, layer->shape.capacity, rate, bpe);
}

void manifest_format_filter(struct buf *text, const struct manifest_filter *filter)
{
    size_t encoded = name_encoded_len(filter->name, filter->name_len);
    char rate[MANIFEST_RATE_SIZE];

    manifest_format_rate(filter->params.error_rate, rate);
    buf_appendf(text, "filter id=%" PRIu64 " name=", filter->id);
    char *name = buf_reserve(text, encoded + 1); /* which may be empty */
    if (name) {
        name_encode(filter->name, filter->name_len, name);
        buf_commit(text, encoded);
    }
    if (filter->pack)
        buf_appendf(text, " pack=%" PRIu64 " offset=%" PRIu64, filter->pack, filter->pack_offset);
    buf_appendf(text, " capacity=%" PRIu64 " error-rate=%s expansion=%" PRIu32 " variant=%s", filter->params.capacity,
                rate, filter->params.expansion, bloom_variant_name(filter->variant));
    if (bloom_layout_of(filter->variant)->own_numbers)
        buf_appendf(text, " options=%u", filter->params.redisbloom);
    if (filter->params.window)
        buf_appendf(text, " window=%" PRIu64 " parts=%u window-flags=%u", filter->params.window,
                    filter->params.window_parts, filter->params.window_flags);
    if (bloom_params_is_cuckoo(&filter->params))
        buf_appendf(text, " iterations=%u", filter->params.iterations);
    if (filter->params.key)
        buf_appendf(text, " key=%016" PRIx64, filter->params.key);
    if (bloom_params_have_seed(&filter->params)) {
        manifest_format_rate(filter->params.tightening, rate);
        buf_appendf(text, " tightening=%s seed=", rate);
        for (unsigned i = 0; i < BLOOM_SEED_BYTES; i++)
            buf_appendf(text, "%02x", filter->params.seed.bytes[i]);
    }
    buf_appendf(text, " expires-ms=%" PRId64 " layers=%u\n", filter->expires_ms, filter->nlayers);
    for (unsigned i = 0; i < filter->nlayers; i++) {
        const struct manifest_layer *layer = &filter->layers[i];
        buf_appendf(text, "layer k=%u words=%" PRIu64 " items=%" PRIu64 " xxh3=%016" PRIx64, layer->shape.k,
                    layer->shape.nwords, layer->items, layer->xxh3);
        if (!filter->pack)
            buf_appendf(text, " file=%" PRIu64, layer->file);
        if (bloom_layout_of(filter->variant)->own_numbers)
            format_redisbloom(text, layer);
        if (bloom_params_have_turns(&filter->params))
            buf_appendf(text, " level=%u turn=%" PRIu64 " base=%" PRIu64 " started-us=%" PRId64, layer->shape.level,
                        layer->turn.number, layer->turn.base, layer->turn.started_us);
        buf_append(text, "\n", 1);
    }
}

void manifest_format_gone(struct buf *text, uint64_t id)
{
    buf_appendf(text, "gone id=%" PRIu64 "\n", id);
}

void manifest_format_save(struct buf *text, const struct manifest_save *save)
{
    for (unsigned i = 0; i < DATABASES_MAX; i++)
        if (save->databases.is[i] != 0)
            buf_appendf(text, "database number=%u is=%u\n", i, databases_get(&save->databases, i));
    buf_appendf(text,
                "save number=%" PRIu64 " next-id=%" PRIu64 " log=%" PRIu64 " control=%" PRIu64 " frame=%" PRIu64
                " accepted=%" PRIu64 "\n",
                save->number, save->next_id, save->log, save->control, save->frame, save->accepted);
}

void manifest_format_end(struct buf *text, uint64_t nfilters, uint64_t xxh3)
{
    buf_appendf(text, "end filters=%" PRIu64 " xxh3=%016" PRIx64 "\n", nfilters, xxh3);
}
