#include "find_report.h"

#include <stdio.h>

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
