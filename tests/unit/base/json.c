#include <criterion/criterion.h>
#include <math.h>

#include "json.h"

#define SLICE(text) ((struct slice){(text), sizeof(text) - 1})

static void expect(struct buf *out, const char *wanted)
{
    buf_append(out, "", 1);
    cr_expect_str_eq(buf_head(out), wanted);
    buf_deinit(out);
}

Test(json, nested_values_have_their_commas)
{
    struct buf out;
    buf_init(&out, 4096);
    json_begin(&out, NULL, '{');
    json_count(&out, "n", UINT64_MAX);
    json_begin(&out, "list", '[');
    json_real(&out, NULL, 0.5);
    json_real(&out, NULL, NAN);
    json_begin(&out, NULL, '{');
    json_end(&out, '}');
    json_end(&out, ']');
    json_bool(&out, "yes", true);
    json_str(&out, "text", "a");
    json_end(&out, '}');
    expect(&out, "{\"n\":18446744073709551615,\"list\":[0.5,null,{}],\"yes\":true,\"text\":\"a\"}");
}

Test(json, text_is_escaped)
{
    struct buf out;
    buf_init(&out, 4096);
    json_text(&out, NULL, SLICE("\"\\<\n\x7f\xc3\xa9\xe9\xe2\x80\xa8"));
    expect(&out, "\"\\\"\\\\\\u003c\\u000a\\u007f\xc3\xa9\\ufffd\\u2028\"");
}

Test(json, bytes_are_text_or_hex)
{
    struct buf out;
    buf_init(&out, 4096);
    json_begin(&out, NULL, '[');
    json_bytes(&out, NULL, SLICE("<\xc3\xa9\n"));
    json_bytes(&out, NULL, SLICE("q\xc3"));
    json_bytes(&out, NULL, SLICE(""));
    json_end(&out, ']');
    expect(&out, "[\"<\xc3\xa9\\u000a\",{\"hex\":\"71c3\"},\"\"]");
}
