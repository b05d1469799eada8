/* A reply begins at data[0]; reader->pos counts its bytes that have become nodes. An element is read when its header
 * line, and the body of a string, are complete. So the only state between two calls is that position, the number of
 * missing elements, and the searched part of the current line. */
#include "resp_reply.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

#define LINE_MAX_BYTES (64 * 1024) /* of a header line: an error text has no other limit */

void resp_reply_reader_deinit(struct resp_reply_reader *reader)
{
    free(reader->nodes);
    *reader = (struct resp_reply_reader){0};
}

/* The kinds of elements by their first byte. */
enum form { FORM_NONE, FORM_LINE, FORM_NUMBER, FORM_BOOL, FORM_NULL, FORM_STRING, FORM_ERROR_STRING, FORM_ITEMS };

static const unsigned char forms[1 + UCHAR_MAX] = {
    ['+'] = FORM_LINE,  ['-'] = FORM_LINE,  [','] = FORM_LINE,         ['('] = FORM_LINE,   [':'] = FORM_NUMBER,
    ['#'] = FORM_BOOL,  ['_'] = FORM_NULL,  ['!'] = FORM_ERROR_STRING, ['$'] = FORM_STRING, ['='] = FORM_STRING,
    ['*'] = FORM_ITEMS, ['~'] = FORM_ITEMS, ['%'] = FORM_ITEMS,        ['>'] = FORM_ITEMS,
};

/* An element whose place in the reply is not known yet. */
struct element {
    struct resp_reply_node node;
    size_t bytes; /* all of it: header and body */
    size_t items; /* that follow */
};

static bool read_string(struct slice value, size_t header, char first, struct element *element)
{
    int64_t len;
    if (!slice_to_int64(value, &len) || len < -1 || len > RESP_REPLY_MAX_TEXT)
        return false;
    if (len == -1) {
        element->node.kind = RESP_REPLY_NULL;
        return first == '$';
    }
    element->node = (struct resp_reply_node){.kind = RESP_REPLY_TEXT, .off = header, .len = (size_t)len};
    element->bytes = header + (size_t)len + 2;
    if (first == '=' && len >= 4) { /* "txt:" and its like */
        element->node.off += 4;
        element->node.len -= 4;
    }
    return true;
}

static bool read_items(struct slice value, char first, struct element *element)
{
    int64_t n;
    if (!slice_to_int64(value, &n) || n < -1 || n > RESP_REPLY_MAX_NODES)
        return false;
    if (n == -1) {
        element->node.kind = RESP_REPLY_NULL;
        return first == '*';
    }
    element->items = (size_t)n * (first == '%' ? 2 : 1);
    element->node = (struct resp_reply_node){.kind = first == '>' ? RESP_REPLY_PUSH : RESP_REPLY_ARRAY,
                                             .number = (int64_t)element->items};
    return true;
}

/* Reads a header line without its end; `header` are its bytes with it. False: malformed. */
static bool read_element(const char *line, size_t len, size_t header, struct element *element)
{
    struct slice value = {line + 1, len - 1};
    *element = (struct element){.bytes = header};
    switch ((enum form)forms[(unsigned char)line[0]]) {
    case FORM_LINE:
        element->node = (struct resp_reply_node){.kind = line[0] == '+'   ? RESP_REPLY_STATUS
                                                         : line[0] == '-' ? RESP_REPLY_ERROR
                                                                          : RESP_REPLY_TEXT,
                                                 .off = 1,
                                                 .len = len - 1};
        return true;
    case FORM_NUMBER:
        element->node.kind = RESP_REPLY_INTEGER;
        return slice_to_int64(value, &element->node.number);
    case FORM_BOOL:
        element->node.kind = RESP_REPLY_INTEGER;
        element->node.number = len == 2 && line[1] == 't';
        return len == 2 && (line[1] == 't' || line[1] == 'f');
    case FORM_NULL:
        element->node.kind = RESP_REPLY_NULL;
        return len == 1;
    case FORM_STRING:
        return read_string(value, header, line[0], element);
    case FORM_ERROR_STRING:
        if (!read_string(value, header, line[0], element))
            return false;
        element->node.kind = RESP_REPLY_ERROR;
        return true;
    case FORM_ITEMS:
        return read_items(value, line[0], element);
    default:
        return false;
    }
}

/* Finds the element at reader->pos. RESP_REPLY_WHOLE: it is there with its body. */
static enum resp_reply_status next_element(struct resp_reply_reader *reader, const char *data, size_t len,
                                           size_t *needs_out, struct element *element)
{
    const char *line = data + reader->pos;
    if (len - reader->pos >= 4 && line[0] == ':' && memcmp(line + 2, "\r\n", 2) == 0 && (line[1] | 1) == '1') {
        *element = (struct element){{.kind = RESP_REPLY_INTEGER, .number = line[1] == '1'}, .bytes = 4}; /* most are */
        return RESP_REPLY_WHOLE;
    }
    const char *end = memchr(data + reader->looked, '\n', len - reader->looked);
    if (!end) {
        reader->looked = len;
        *needs_out = len + 1;
        return len - reader->pos > LINE_MAX_BYTES ? RESP_REPLY_MALFORMED : RESP_REPLY_NEED_MORE;
    }
    size_t header = (size_t)(end - line) + 1;
    if (header < 3 || end[-1] != '\r' || !read_element(line, header - 2, header, element))
        return RESP_REPLY_MALFORMED;
    if (element->bytes > len - reader->pos) {
        *needs_out = reader->pos + element->bytes;
        return RESP_REPLY_NEED_MORE;
    }
    if (element->bytes > header && memcmp(line + element->bytes - 2, "\r\n", 2) != 0)
        return RESP_REPLY_MALFORMED;
    return RESP_REPLY_WHOLE;
}

enum resp_reply_status resp_reply_next(struct resp_reply_reader *reader, const char *data, size_t len,
                                       size_t *consumed_out, size_t *needs_out, struct resp_reply *reply_out)
{
    if (!reader->begun) {
        reader->count = reader->pos = reader->looked = 0;
        reader->due = 1;
        reader->begun = true;
    }
    while (reader->due > 0) {
        struct element element;
        enum resp_reply_status status = next_element(reader, data, len, needs_out, &element);
        if (status != RESP_REPLY_WHOLE)
            return status;
        if (element.node.kind == RESP_REPLY_PUSH && reader->count > 0)
            return RESP_REPLY_MALFORMED;
        reader->due += element.items - 1;
        if (reader->count + reader->due > RESP_REPLY_MAX_NODES)
            return RESP_REPLY_MALFORMED;
        struct resp_reply_node *node =
            GROW(reader->nodes, reader->count, reader->size) == 0 ? &reader->nodes[reader->count++] : NULL;
        if (!node)
            return RESP_REPLY_NO_MEMORY;
        *node = element.node;
        node->off += reader->pos;
        reader->pos += element.bytes;
        reader->looked = reader->pos;
    }
    *consumed_out = reader->pos;
    *reply_out = (struct resp_reply){data, reader->nodes, reader->count};
    reader->begun = false;
    return RESP_REPLY_WHOLE;
}
