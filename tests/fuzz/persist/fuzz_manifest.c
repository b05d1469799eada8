/* A MANIFEST, in pieces of the size in the first byte: an accepted one has the same bytes when written again, with
 * any size of the pieces.
 *
 * Few inputs have a right checksum. So that the lines before it are checked, too, a last line that begins with "end"
 * is replaced by the right one when the second byte is odd. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    struct buf text;
    uint64_t nfilters;
};

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct seen *seen = ctx;

    (void)err;
    seen->nfilters++;
    manifest_format_filter(&seen->text, filter);
    return 0;
}

static int on_gone(void *ctx, uint64_t id, struct errbuf *err)
{
    struct seen *seen = ctx;

    (void)err;
    seen->nfilters--;
    manifest_format_gone(&seen->text, id);
    return 0;
}

/* Parses; the parsed content is in `seen`, with the last two lines if all was accepted. */
static int parse(const char *bytes, size_t len, size_t piece, struct seen *seen)
{
    struct manifest_sink sink = {on_filter, on_gone, seen};
    struct manifest_parser parser;
    struct errbuf err = {{0}};
    int rc = 0;

    manifest_format_magic(&seen->text);
    CHECK(manifest_parser_init(&parser, &sink) == 0);
    for (size_t at = 0; at < len && rc == 0; at += piece)
        rc = manifest_parser_feed(&parser, bytes + at, len - at < piece ? len - at : piece, &err);
    if (rc == 0)
        rc = manifest_parser_finish(&parser, &err);
    CHECK((rc == 0) == (err.text[0] == '\0'));
    if (rc == 0) {
        manifest_format_save(&seen->text, &parser.save);
        manifest_format_end(&seen->text, seen->nfilters, XXH3_64bits(seen->text.data, seen->text.end));
    }
    manifest_parser_deinit(&parser);
    return rc;
}

static size_t count_lines(const char *bytes, size_t len, const char *begin)
{
    size_t n = 0;

    for (const char *line = bytes; line < bytes + len;) {
        const char *end = memchr(line, '\n', (size_t)(bytes + len - line));
        size_t line_len = (size_t)((end ? end : bytes + len) - line);
        n += line_len >= strlen(begin) && memcmp(line, begin, strlen(begin)) == 0;
        line += line_len + 1;
    }
    return n;
}

/* The text up to its last line, and the right last line. */
static struct buf with_right_end(const char *bytes, size_t len)
{
    struct buf text = {.cap = SIZE_MAX};
    size_t body = len;

    while (body > 0 && !(len - body >= 4 && memcmp(bytes + body, "end ", 4) == 0 && bytes[body - 1] == '\n'))
        body--;
    text.size = len + 512;
    text.data = malloc(text.size);
    CHECK(text.data != NULL);
    if (body == 0)
        body = len;
    memcpy(text.data, bytes, body);
    text.end = body;
    manifest_format_end(&text, count_lines(bytes, body, "filter ") - count_lines(bytes, body, "gone "),
                        XXH3_64bits(bytes, body));
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = {.text.cap = SIZE_MAX}, pieces = {.text.cap = SIZE_MAX};
    struct buf text = {.cap = SIZE_MAX};

    if (size < 3)
        return 0;
    const char *bytes = (const char *)data + 2;
    size_t len = size - 2;
    if (data[1] % 2) {
        text = with_right_end(bytes, len);
        bytes = text.data;
        len = text.end;
    }
    int rc = parse(bytes, len, len, &whole);
    CHECK(parse(bytes, len, 1u + data[0], &pieces) == rc);
    CHECK(whole.text.end == pieces.text.end &&
          (whole.text.end == 0 || memcmp(whole.text.data, pieces.text.data, whole.text.end) == 0));
    if (rc == 0)
        CHECK(whole.text.end == len && memcmp(whole.text.data, bytes, len) == 0);
    buf_deinit(&whole.text);
    buf_deinit(&pieces.text);
    buf_deinit(&text);
    return 0;
}
