#include "csv_reader.h"

#include <inttypes.h>
#include <string.h>

#include "tool.h"

#define HEADER_SHOWN 100 /* bytes of the names of columns */

enum state {
    AT_FIELD, /* where one begins */
    PLAIN,
    QUOTED,
    QUOTE, /* after one within QUOTED: the end, or the first of two */
    RETURN,
};

static const char byte_order_mark[3] = "\xef\xbb\xbf";

void csv_reader_init(struct csv_reader *csv, const char *column)
{
    *csv = (struct csv_reader){.column = column};
}

static enum csv_status bad(uint64_t line, const char *reason, struct errbuf *err)
{
    errbuf_set(err, "line %" PRIu64 ": %s", line + 1, reason);
    return CSV_BAD;
}

/* Makes doubled quotes single ones; returns the new length. */
static size_t halve_quotes(char *text, size_t len)
{
    size_t kept = 0;

    for (size_t i = 0; i < len; i++) {
        text[kept++] = text[i];
        i += text[i] == '"';
    }
    return kept;
}

/* ---- fields ---- */

/* A field of the header. False: two have the name of the column. */
static bool take_name(struct csv_reader *csv, char *bytes)
{
    size_t len = csv->end - csv->begin;

    if (csv->has_quotes)
        len = halve_quotes(bytes + csv->begin, len);
    if (len != strlen(csv->column) || memcmp(bytes + csv->begin, csv->column, len) != 0)
        return true;
    if (csv->number)
        return false;
    csv->number = csv->field;
    return true;
}

static enum csv_status end_field(struct csv_reader *csv, char *bytes, struct errbuf *err)
{
    csv->field++;
    if (csv->fields == 0 && !take_name(csv, bytes)) {
        errbuf_set(err, "line 1: two columns have the name '%s'; use the column's number", csv->column);
        return CSV_BAD;
    }
    if (csv->fields > 0 && csv->field == csv->number) {
        csv->item = csv->begin;
        csv->item_end = csv->end;
        csv->item_has_quotes = csv->has_quotes;
    }
    csv->state = AT_FIELD;
    return CSV_NEED_MORE;
}

static enum csv_status end_header(struct csv_reader *csv, const char *bytes, struct errbuf *err)
{
    size_t at = csv->end >= 3 && memcmp(bytes, byte_order_mark, 3) == 0 ? 3 : 0, len = csv->end - at;

    csv->fields = csv->field;
    if (csv->number || tool_parse_u64(csv->column, 1, csv->fields, &csv->number))
        return CSV_HEADER;
    errbuf_set(err, "line 1: no column '%s'; the header has %" PRIu64 ": %.*s%s", csv->column, csv->fields,
               (int)(len < HEADER_SHOWN ? len : HEADER_SHOWN), bytes + at, len <= HEADER_SHOWN ? "" : "...");
    return CSV_BAD;
}

static enum csv_status end_record(struct csv_reader *csv, char *bytes, struct errbuf *err)
{
    if (end_field(csv, bytes, err) == CSV_BAD)
        return CSV_BAD;
    if (csv->fields == 0)
        return end_header(csv, bytes, err);
    if (csv->field == csv->fields)
        return CSV_RECORD;
    errbuf_set(err, "line %" PRIu64 ": the record has %zu fields, the header %" PRIu64, csv->began + 1, csv->field,
               csv->fields);
    return CSV_BAD;
}

/* ---- bytes ---- */

/* Goes to the next quote. */
static void skip_quoted(struct csv_reader *csv, const char *bytes, size_t len)
{
    const char *at = bytes + csv->pos, *quote = memchr(at, '"', len - csv->pos), *end = quote ? quote : bytes + len;

    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        csv->line++;
        at++;
    }
    csv->pos = (size_t)(end - bytes);
}

/* A byte at which a field can end: in PLAIN, QUOTE and RETURN. */
static enum csv_status end_or_go_on(struct csv_reader *csv, char *bytes, struct errbuf *err)
{
    char c = bytes[csv->pos];

    if (csv->state == RETURN && c != '\n')
        return bad(csv->line, "a carriage return outside of quotes", err);
    if (csv->state == PLAIN && c == '"')
        return bad(csv->line, "a quote in a field that does not begin with one", err);
    if (csv->state == PLAIN && (c == ',' || c == '\n' || c == '\r'))
        csv->end = csv->pos;
    csv->pos++;
    if (c == ',')
        return end_field(csv, bytes, err);
    if (c == '\r')
        csv->state = RETURN;
    if (c == '\n') {
        csv->line++;
        return end_record(csv, bytes, err);
    }
    if (csv->state == QUOTE && c != '"')
        return bad(csv->line, "text after a closing quote", err);
    if (csv->state == QUOTE)
        csv->state = QUOTED;
    return CSV_NEED_MORE;
}

/* Takes a step. CSV_NEED_MORE: to be called again, while there are bytes. */
static enum csv_status step(struct csv_reader *csv, char *bytes, size_t len, struct errbuf *err)
{
    if (csv->state == AT_FIELD) {
        csv->has_quotes = bytes[csv->pos] == '"';
        csv->state = csv->has_quotes ? QUOTED : PLAIN;
        csv->quoted = csv->line;
        csv->pos += csv->has_quotes;
        csv->begin = csv->pos;
        return CSV_NEED_MORE;
    }
    if (csv->state != QUOTED)
        return end_or_go_on(csv, bytes, err);
    skip_quoted(csv, bytes, len);
    if (csv->pos < len) {
        csv->end = csv->pos++;
        csv->state = QUOTE;
    }
    return CSV_NEED_MORE;
}

/* Called when no bytes follow the ones that were read. */
static enum csv_status at_end(struct csv_reader *csv, char *bytes, struct errbuf *err)
{
    if (csv->pos == 0)
        return csv->fields ? CSV_END : bad(csv->line, "the header is missing", err);
    if (csv->state == QUOTED)
        return bad(csv->quoted, "a quote is not closed", err);
    if (csv->state == RETURN)
        return bad(csv->line, "a carriage return outside of quotes", err);
    if (csv->state == AT_FIELD) /* after a comma */
        csv->begin = csv->pos;
    if (csv->state != QUOTE)
        csv->end = csv->pos;
    return end_record(csv, bytes, err);
}

enum csv_status csv_next(struct csv_reader *csv, char *bytes, size_t len, bool is_last, size_t *taken_out,
                         char **item_out, size_t *item_len_out, struct errbuf *err)
{
    enum csv_status status = CSV_NEED_MORE;

    if (csv->pos == 0 && csv->fields == 0) {
        if (len < sizeof(byte_order_mark) && !is_last)
            return CSV_NEED_MORE;
        if (len >= sizeof(byte_order_mark) && memcmp(bytes, byte_order_mark, sizeof(byte_order_mark)) == 0)
            csv->pos = sizeof(byte_order_mark);
    }
    if (csv->pos == 0)
        csv->began = csv->line;
    while (status == CSV_NEED_MORE && csv->pos < len)
        status = step(csv, bytes, len, err);
    if (status == CSV_NEED_MORE && is_last)
        status = at_end(csv, bytes, err);
    if (status == CSV_RECORD) {
        *item_out = bytes + csv->item;
        *item_len_out = csv->item_end - csv->item;
        if (csv->item_has_quotes)
            *item_len_out = halve_quotes(*item_out, *item_len_out);
    }
    if (status == CSV_RECORD || status == CSV_HEADER) {
        *taken_out = csv->pos;
        csv->pos = csv->field = 0;
    }
    return status;
}
