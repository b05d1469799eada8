#include "find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cql_key.h"
#include "murmur3.h"

#define KEYS                                                                                                \
    ((size_t)1 << 20) /* of a block: enough that reading all filters for it costs little beside asking them \
                       */
#define TEXT_BYTES ((size_t)64 << 20)

int find_keys_open(struct find_keys *keys, const struct tool_args *args)
{
    const char *path = tool_option(args, "--keys-from"), *command = args->command->name;
    *keys = (struct find_keys){.arguments = args->positional + 1, .narguments = args->npositional - 1};
    keys->from_file = path != NULL;
    buf_init(&keys->text, 2 * TEXT_BYTES);
    if (!path && !keys->narguments)
        return tool_misused(command, "KEY is missing; give keys, or --keys-from FILE");
    if (path && keys->narguments)
        return tool_misused(command, "give keys or --keys-from FILE, not both");
    const struct item_form form = {.keys = true};
    int rc = path ? item_input_open_as(&keys->input, path, args, &form) : TOOL_OK;
    if (rc != TOOL_OK)
        return rc;
    size_t n = path ? KEYS + BLOOM_BATCH : keys->narguments;
    keys->h1 = malloc(n * sizeof(*keys->h1));
    keys->h2 = malloc(n * sizeof(*keys->h2));
    keys->ends = malloc(n * sizeof(*keys->ends));
    if (keys->h1 && keys->h2 && keys->ends)
        return TOOL_OK;
    find_keys_close(keys);
    return tool_failed(command, "%s", strerror(ENOMEM));
}

void find_keys_close(struct find_keys *keys)
{
    if (keys->from_file)
        item_input_close(&keys->input);
    free(keys->h1);
    free(keys->h2);
    free(keys->ends);
    buf_deinit(&keys->text);
}

static void add(struct find_keys *keys, const void *key, size_t len, const void *text, size_t text_len)
{
    struct bloom_hash hash = murmur3_hash(key, len);
    keys->h1[keys->n] = hash.h1;
    keys->h2[keys->n] = hash.h2;
    buf_append(&keys->text, text, text_len);
    keys->ends[keys->n++] = buf_len(&keys->text);
}

/* All of the command line at once. */
static int take_arguments(struct find_keys *keys)
{
    static unsigned char key[CQL_KEY_MAX];
    struct errbuf err = {{0}};
    struct stat st;
    size_t len;
    for (; keys->narguments > 0; keys->narguments--, keys->arguments++) {
        const char *text = *keys->arguments;
        bool is_key = cql_key_parse(text, strlen(text), key, &len, &err) == CQL_KEY_OK;
        if (!is_key && stat(text, &st) == 0)
            return tool_misused("find", "'%s' is a file or directory, not a key: the command takes one directory",
                                text);
        if (!is_key)
            return tool_misused("find", "the key '%s': %s", text, err.text);
        add(keys, key, len, text, strlen(text));
    }
    return TOOL_OK;
}

static size_t line_length(const struct bloom_item *line)
{
    return line->len && line->ptr[line->len - 1] == '\n' ? line->len - 1 : line->len;
}

static int take_lines(struct find_keys *keys)
{
    static struct item_batch batch;
    int rc = TOOL_OK;
    do {
        rc = item_input_next(&keys->input, &batch);
        for (size_t i = 0; rc == TOOL_OK && i < batch.n; i++)
            add(keys, batch.items[i].ptr, batch.items[i].len, batch.lines[i].ptr, line_length(&batch.lines[i]));
    } while (rc == TOOL_OK && batch.n && keys->n < KEYS && buf_len(&keys->text) < TEXT_BYTES);
    return rc;
}

int find_keys_next(struct find_keys *keys)
{
    keys->n = 0;
    buf_truncate(&keys->text, 0);
    int rc = keys->from_file ? take_lines(keys) : take_arguments(keys);
    if (rc == TOOL_OK && buf_failed(&keys->text))
        rc = tool_failed("find", "%s", strerror(ENOMEM));
    return rc;
}

struct slice find_keys_text(const struct find_keys *keys, size_t i)
{
    size_t from = i ? keys->ends[i - 1] : 0;
    return (struct slice){buf_head(&keys->text) + from, keys->ends[i] - from};
}

static struct slice slice_of_part(struct sstable_part part)
{
    return (struct slice){part.ptr, part.len};
}

static void write_line(const struct find_report *report, struct slice text, struct slice place)
{
    if (report->name_keys) {
        tool_print_result(text.ptr, text.len);
        putchar('\t');
    }
    tool_print_result(place.ptr, place.len);
    putchar('\n');
}

void find_report_key(struct find_report *report, size_t key, const struct find_place *place, const char *filter)
{
    if (report->present) {
        report->present[key] = true;
        return;
    }
    struct buf *json = output_object(&report->out);
    struct slice text = find_keys_text(&report->keys, key);
    if (json) {
        json_bytes(json, "key", text);
        json_bytes(json, place->sstable ? "file" : "name", place->shown);
        if (place->sstable) {
            json_bytes(json, "keyspace", slice_of_part(place->sstable->keyspace));
            json_bytes(json, "table", slice_of_part(place->sstable->table));
            json_bytes(json, "generation", slice_of_part(place->sstable->generation));
        }
        json_str(json, "filter", filter);
        json_end(json, '}');
    } else {
        write_line(report, text, place->shown);
    }
    report->found++;
}

void find_report_all(struct find_report *report, const struct find_place *place, const char *filter)
{
    for (size_t i = 0; i < report->keys.n; i++)
        find_report_key(report, i, place, filter);
}

void find_report_absent(struct find_report *report)
{
    for (size_t i = 0; i < report->keys.n; i++) {
        if (report->present[i])
            continue;
        struct slice text = find_keys_text(&report->keys, i);
        struct buf *json = output_object(&report->out);
        report->found++;
        if (json) {
            json_bytes(json, "key", text);
            json_end(json, '}');
        } else {
            tool_print_result(text.ptr, text.len);
            putchar('\n');
        }
    }
}
