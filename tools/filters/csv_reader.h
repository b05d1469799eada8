/* csv_reader: one column of a CSV file, record by record.
 *
 * Source: RFC 4180, with a header line. Records end with CRLF or LF, the last one also with the input. A byte order
 * mark at the beginning is skipped. An empty line is a record with one empty field. A violation of the RFC is an error
 * with the line number. Violations are a quote within an unquoted field, text after a closing quote, a missing closing
 * quote, a carriage return outside of quotes, and a record with another number of fields than the header.
 *
 * The caller keeps the bytes of an incomplete record contiguous and passes them again with more after them; none is
 * parsed twice. They may move between calls.
 *
 * Lifetime: caller's storage; `column` is borrowed. Thread: one. */
#ifndef BLOOMERY_CSV_READER_H
#define BLOOMERY_CSV_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"

enum csv_status {
    CSV_HEADER,
    CSV_RECORD,
    CSV_NEED_MORE, /* bytes, or that there are none */
    CSV_END,
    CSV_BAD, /* the reason is in `err` */
};

struct csv_reader {
    const char *column; /* its name in the header; if none has this name, its number from 1 */

    /* internal */
    uint64_t number, fields;       /* of the column; of the header, 0 before it is read */
    uint64_t line, began, quoted;  /* from 0: of the next byte, of the record, of the last opening quote */
    size_t pos, field, begin, end; /* in the record: the next byte, the fields before it, where the last one is */
    int state;
    bool has_quotes;       /* the field */
    size_t item, item_end; /* the field of the column */
    bool item_has_quotes;
};

void csv_reader_init(struct csv_reader *csv, const char *column);

/* Reads on in a record, which begins at bytes[0]; `is_last`: no bytes will follow. CSV_HEADER and CSV_RECORD: it takes
 * *taken_out bytes, at whose end the next one begins. Of a record, *item_out is the field of the column, within
 * `bytes`, in which doubled quotes have become single ones. */
enum csv_status csv_next(struct csv_reader *csv, char *bytes, size_t len, bool is_last, size_t *taken_out,
                         char **item_out, size_t *item_len_out, struct errbuf *err);

#endif
