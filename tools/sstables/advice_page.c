#include "advice_page.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log_text.h"

void advice_name(const struct advice_table *table, char out[ADVICE_NAME])
{
    snprintf(out, ADVICE_NAME, "%.120s%s%.120s", table->keyspace, table->keyspace[0] ? "." : "", table->name);
}

/* "(2 missing, 1 oversized)" */
static void describe_faults(const struct advice_faults *faults, char out[100])
{
    const struct {
        uint64_t n;
        const char *what;
    } rows[] = {{faults->missing, "missing"}, {faults->overfull, "overfull"}, {faults->oversized, "oversized"}};
    int at = 0;
    out[0] = '\0';
    for (int i = 0; i < 3; i++) {
        if (rows[i].n)
            at += snprintf(out + at, 100 - (size_t)at, "%s%" PRIu64 " %s", at ? ", " : " (", rows[i].n, rows[i].what);
    }
    if (at)
        snprintf(out + at, 100 - (size_t)at, ")");
}

void advice_describe(const struct advice_change *change, char out[ADVICE_SENTENCE])
{
    struct advice_faults faults = advice_faults(change->table);
    char name[ADVICE_NAME], why[100] = "";
    advice_name(change->table, name);
    if (change->kind == ADVICE_REPAIR)
        describe_faults(&faults, why);
    int n = snprintf(out, ADVICE_SENTENCE, "%s: rebuild %s at %.3g%s: %s %s, %s %.2g useless reads per absent key",
                     name, log_count(change->filters, "filter").text, change->rate, why,
                     change->saved.bytes >= 0 ? "saves" : "adds", log_bytes((uint64_t)fabs(change->saved.bytes)).text,
                     change->saved.reads >= 0 ? "saves" : "adds", fabs(change->saved.reads));
    if (change->table->counted)
        snprintf(out + n, ADVICE_SENTENCE - (size_t)n, ", %.0f %s of those %s", fabs(change->disk_reads),
                 change->disk_reads >= 0 ? "less" : "more",
                 change->table->estimated ? "estimated from the counted reads" : "counted");
}

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>Filters of SSTables</title>\n<style>\n"
    "body{font:16px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222;background:#fff}\n"
    "h2{margin:2em 0 .3em;font-size:1.1em}table{border-collapse:collapse;width:100%}td{padding:.15em .5em .15em 0;"
    "white-space:nowrap}td:last-child{width:60%}.bar{height:.9em;background:#9bb8d3}.now{background:#2b6ca3}"
    ".bad{background:#c0392b}code{background:#f2f2f2;padding:.1em .3em;overflow-wrap:anywhere}\n"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code{background:#2a2a2a}}\n"
    "</style></head><body>\n<h1>Filters of SSTables</h1>\n";

/* Text of a directory or a name. */
static void put_text(FILE *page, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", page);
            break;
        case '>':
            fputs("&gt;", page);
            break;
        case '&':
            fputs("&amp;", page);
            break;
        default:
            putc(*text, page);
        }
    }
}

static void put_bar(FILE *page, const char *label, struct advice_cost cost, double most, const char *kind)
{
    fprintf(page, "<tr><td>%s<td>%s<td>%.2g useless reads<td><div class=\"bar %s\" style=\"width:%.1f%%\"></div>\n",
            label, log_bytes((uint64_t)cost.bytes).text, cost.reads, kind, most > 0 ? 100 * cost.bytes / most : 0);
}

static void put_table(FILE *page, const struct advice_table *table)
{
    const struct advice_cost costs[] = {advice_now(table), advice_at(table, 0.1), advice_at(table, 0.01),
                                        advice_at(table, 0.001)};
    static const char *const labels[] = {"now", "at 0.1", "at 0.01", "at 0.001"};
    struct advice_faults faults = advice_faults(table);
    double most = 0;
    char name[ADVICE_NAME], text[100];
    advice_name(table, name);
    for (int i = 0; i < 4; i++)
        most = costs[i].bytes > most ? costs[i].bytes : most;
    fputs("<h2>", page);
    put_text(page, name);
    fprintf(page, "</h2>\n<p>%s", log_count(table->n, "SSTable").text);
    if (table->requested > 0)
        fprintf(page, ", bloom_filter_fp_chance %.3g", table->requested);
    if (table->copies > 0)
        fprintf(page, ", a key is in %.1f of them", table->copies);
    describe_faults(&faults, text);
    fprintf(page, "%s", text);
    fputs("</p>\n<table>\n", page);
    for (int i = 0; i < 4; i++)
        put_bar(page, labels[i], costs[i], most, i ? "" : faults.overfull + faults.oversized ? "bad" : "now");
    fputs("</table>\n", page);
}

int advice_write_page(int fd, const struct advice *advice, const struct advice_change *changes, size_t n)
{
    int own = dup(fd);
    FILE *page = own >= 0 ? fdopen(own, "w") : NULL;
    char text[ADVICE_SENTENCE];
    if (!page) {
        int rc = -errno;
        if (own >= 0)
            close(own);
        return rc;
    }
    fputs(head, page);
    fputs(n ? "<p>The changes that save most:</p>\n<ol>\n" : "", page);
    for (size_t i = 0; i < n; i++) {
        advice_describe(&changes[i], text);
        fputs("<li>", page);
        put_text(page, text);
        fprintf(page, "<br><code>bloomery rebuild --error %.3g '", changes[i].rate);
        put_text(page, changes[i].table->directory);
        fputs("'/*-Data.db</code>\n", page);
    }
    fputs(n ? "</ol>\n" : "<p>No change saves a hundredth of the memory or of the useless reads.</p>\n", page);
    for (size_t i = 0; i < advice->n; i++)
        put_table(page, &advice->tables[i]);
    fputs("</body></html>\n", page);
    bool bad = ferror(page);
    return fclose(page) != 0 || bad ? -EIO : 0;
}
