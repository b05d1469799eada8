/* golden: reads tests/golden: lines, tab-separated fields, items in hexadecimal, whole files. A test that cannot read
 * its data must not pass, so every error here ends the process with a message. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GOLDEN_FIELDS_MAX 8

/* A text file, line by line. */
struct golden_lines {
    char *text;
    char *at;
    char *fields[GOLDEN_FIELDS_MAX]; /* of the current line, NUL-terminated, valid until close */
    size_t nfields;
};

void golden_lines_open(struct golden_lines *lines, const char *path_fmt, ...) __attribute__((format(printf, 2, 3)));
bool golden_lines_next(struct golden_lines *lines); /* skips lines that start with '#' */
void golden_lines_close(struct golden_lines *lines);

uint64_t golden_u64(const char *field);
int64_t golden_i64(const char *field);

/* The bytes of a hexadecimal field, in place of the field. */
size_t golden_unhex(char *field);

/* A number from a flat JSON object: "name": 12.5 */
double golden_json_number(const char *json, const char *name);

/* A string from a flat JSON object into `out`. */
void golden_json_string(const char *json, const char *name, char *out, size_t size);

/* A whole file; to be freed. A NUL follows the content. */
unsigned char *golden_file(size_t *len_out, const char *path_fmt, ...) __attribute__((format(printf, 2, 3)));

/* The header of a Filter.db, and its words in the form in memory (FORMAT.md section 1). */
struct golden_filter {
    uint32_t k;
    uint32_t nwords;
    uint64_t *words;
};

void golden_filter_parse(struct golden_filter *filter, const unsigned char *file, size_t len, bool big_endian_words);
