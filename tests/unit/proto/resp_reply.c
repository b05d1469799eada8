/* Replies as a client reads them: every vector whole and byte by byte. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resp_reply.h"

/* A reply as one line: nodes in their order, "+OK", ":1", "'text'", "nil", "[2" for an aggregate of two. */
static void describe(const struct resp_reply *reply, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < reply->count; i++) {
        const struct resp_reply_node *node = &reply->nodes[i];
        struct slice text = resp_reply_text(reply, i);
        const char *space = i ? " " : "";
        int n = 0;
        switch (node->kind) {
        case RESP_REPLY_STATUS:
            n = snprintf(out + len, size - len, "%s+%.*s", space, (int)text.len, text.ptr);
            break;
        case RESP_REPLY_ERROR:
            n = snprintf(out + len, size - len, "%s-%.*s", space, (int)text.len, text.ptr);
            break;
        case RESP_REPLY_INTEGER:
            n = snprintf(out + len, size - len, "%s:%" PRId64, space, node->number);
            break;
        case RESP_REPLY_TEXT:
            n = snprintf(out + len, size - len, "%s'%.*s'", space, (int)text.len, text.ptr);
            break;
        case RESP_REPLY_NULL:
            n = snprintf(out + len, size - len, "%snil", space);
            break;
        case RESP_REPLY_ARRAY:
        case RESP_REPLY_PUSH:
            n = snprintf(out + len, size - len, "%s%c%" PRId64, space, node->kind == RESP_REPLY_PUSH ? '>' : '[',
                         node->number);
            break;
        }
        cr_assert(n > 0 && (size_t)n < size - len);
        len += (size_t)n;
    }
}

struct vector {
    char bytes[64];
    char expected[64]; /* "": malformed */
};

ParameterizedTestParameters(resp_reply, is_read_however_it_is_cut)
{
    static struct vector vectors[] = {
        {"+OK\r\n", "+OK"},
        {"-ERR no\r\n", "-ERR no"},
        {":-17\r\n", ":-17"},
        {"$5\r\na\r\nbc\r\n", "'a\r\nbc'"},
        {"$0\r\n\r\n", "''"},
        {"$-1\r\n", "nil"},
        {"*-1\r\n", "nil"},
        {"_\r\n", "nil"},
        {"*0\r\n", "[0"},
        {"*2\r\n:1\r\n*2\r\n+a\r\n$1\r\nb\r\n", "[2 :1 [2 +a 'b'"},
        {"*3\r\n*0\r\n*-1\r\n:3\r\n", "[3 [0 nil :3"},
        {"%1\r\n+a\r\n#t\r\n", "[2 +a :1"},
        {"~2\r\n#f\r\n,1.5\r\n", "[2 :0 '1.5'"},
        {"=7\r\ntxt:abc\r\n", "'abc'"},
        {"!5\r\nERR a\r\n", "-ERR a"},
        {"(123456789012345678901\r\n", "'123456789012345678901'"},
        {">2\r\n+message\r\n+x\r\n", ">2 +message +x"},
        {"", ""},
        {"OK\r\n", ""},
        {"+OK\n", ""},
        {"\r\n", ""},
        {":x\r\n", ""},
        {":\r\n", ""},
        {"$-2\r\n", ""},
        {"$3\r\nabcde", ""},
        {"=-1\r\n", ""},
        {"*-2\r\n", ""},
        {"*1048577\r\n", ""},
        {"%524289\r\n", ""},
        {"$1073741825\r\n", ""},
        {"$99999999999999999999\r\n", ""},
        {"#x\r\n", ""},
        {"_x\r\n", ""},
        {"*1\r\n>1\r\n+a\r\n", ""}, /* a push stands alone */
        {"|1\r\n+a\r\n+b\r\n", ""},
    };
    return cr_make_param_array(struct vector, vectors, sizeof(vectors) / sizeof(vectors[0]));
}

ParameterizedTest(struct vector *vector, resp_reply, is_read_however_it_is_cut)
{
    size_t len = strlen(vector->bytes), consumed = 0, needs = 0;
    for (int by_byte = 0; by_byte < 2; by_byte++) {
        struct resp_reply_reader reader = {0};
        struct resp_reply reply;
        enum resp_reply_status status = RESP_REPLY_NEED_MORE;
        char text[128] = "";
        for (size_t have = by_byte ? 1 : len; have <= len && status == RESP_REPLY_NEED_MORE; have++) {
            char *copy = malloc(have ? have : 1); /* of exact size: a sanitizer detects reads after it */
            memcpy(copy, vector->bytes, have);
            status = resp_reply_next(&reader, copy, have, &consumed, &needs, &reply);
            if (status == RESP_REPLY_WHOLE)
                describe(&reply, text, sizeof(text));
            else if (status == RESP_REPLY_NEED_MORE)
                cr_assert_gt(needs, have);
            free(copy);
        }
        if (vector->expected[0]) {
            cr_assert_eq(status, RESP_REPLY_WHOLE, "%s", vector->bytes);
            cr_assert_eq(consumed, len);
            cr_assert_str_eq(text, vector->expected);
        } else if (len > 0) {
            cr_assert_eq(status, RESP_REPLY_MALFORMED, "%s", vector->bytes);
        }
        resp_reply_reader_deinit(&reader);
    }
}

/* The next reply begins where the last one ends. */
Test(resp_reply, follows_another)
{
    static const char bytes[] = "*1\r\n:1\r\n$2\r\nab\r\n+x\r\n";
    struct resp_reply_reader reader = {0};
    struct resp_reply reply;
    size_t at = 0, consumed, needs, len = strlen(bytes);
    char text[64];
    static const char *const expected[] = {"[1 :1", "'ab'", "+x"};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(resp_reply_next(&reader, bytes + at, len - at, &consumed, &needs, &reply), RESP_REPLY_WHOLE);
        describe(&reply, text, sizeof(text));
        cr_assert_str_eq(text, expected[i]);
        at += consumed;
    }
    cr_assert_eq(at, len);
    resp_reply_reader_deinit(&reader);
}

/* The missing length of a large string is known, so that one read can get it. */
Test(resp_reply, tells_how_much_of_a_string_is_missing)
{
    struct resp_reply_reader reader = {0};
    struct resp_reply reply;
    size_t consumed, needs;
    cr_assert_eq(resp_reply_next(&reader, "*2\r\n:1\r\n$1000\r\nabc", 18, &consumed, &needs, &reply),
                 RESP_REPLY_NEED_MORE);
    cr_assert_eq(needs, 15 + 1000 + 2);
    resp_reply_reader_deinit(&reader);
}

/* Lines without an end, and arrays that announce more than they have, take no memory. */
Test(resp_reply, limits_hold)
{
    struct resp_reply_reader reader = {0};
    struct resp_reply reply;
    size_t consumed, needs, len = 70000;
    char *line = malloc(len);
    memset(line, 'x', len);
    line[0] = '+';
    cr_assert_eq(resp_reply_next(&reader, line, len, &consumed, &needs, &reply), RESP_REPLY_MALFORMED);
    resp_reply_reader_deinit(&reader);

    static const char item[] = "*1000000\r\n";
    for (size_t i = 0; i < 7000; i++)
        memcpy(line + i * 10, item, 10);
    cr_assert_eq(resp_reply_next(&reader, line, len, &consumed, &needs, &reply), RESP_REPLY_MALFORMED);
    cr_assert_leq(reader.size, 16);
    resp_reply_reader_deinit(&reader);
    free(line);
}
