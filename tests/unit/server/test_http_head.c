/* Heads of HTTP requests: their ends, the parsed parts, and the refused forms. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "http_head.h"

static struct http_head head;

/* Parses a copy of the text, which is exactly as long as the head, so that a sanitizer sees a byte read after it. */
static char *parse(const char *text, size_t len, const char **status_out)
{
    char *copy = malloc(len);
    cr_assert_not_null(copy);
    memcpy(copy, text, len);
    *status_out = http_head_parse(copy, len, &head);
    return copy;
}

static const char *status_of(const char *text, size_t len)
{
    const char *status;
    cr_assert_eq(http_head_length(text, len, 0), len, "%.*s", (int)len, text);
    free(parse(text, len, &status));
    return status;
}

#define STATUS(text)          status_of(text, sizeof(text) - 1)
#define REFUSED(status, text) cr_expect_str_eq(STATUS(text), status)
#define HOST                  "Host: localhost\r\n"

/* The end is found with any cuts. */
Test(http_head, the_end_is_found_in_any_pieces)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /more HTTP/1.1\r\n\r\n";
    size_t len = strlen("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for (size_t seen = 0; seen < sizeof(text); seen++)
        for (size_t n = seen; n < sizeof(text); n++) {
            size_t found = http_head_length(text, n, seen < len ? seen : 0);
            cr_assert_eq(found, n < len ? 0 : len, "%zu of %zu: %zu", seen, n, found);
        }
    cr_assert_eq(http_head_length("GET / HTTP/1.0\n\n", 16, 0), 16);
    cr_assert_eq(http_head_length("\r\n\r\n", 4, 0), 4);
    cr_assert_eq(http_head_length("\r\r\n\r", 4, 0), 0);
}

Test(http_head, parts_are_decoded)
{
    static const char text[] = "GET /a%2fb%zz?q=x+y%26z&&sort=&flag&%71=second&nul=a%00b HTTP/1.1\r\n"
                               "hOST:\t localhost \t\r\nAccept:\r\nX-Two: 1\r\nX-Two: 2\r\n\r\n";
    struct slice value;
    const char *status;
    char *copy = parse(text, sizeof(text) - 1, &status);
    cr_assert_null(status);
    cr_expect_str_eq(head.method, "GET");
    cr_expect_str_eq(head.path, "/a/b%zz");
    cr_expect_str_eq(http_field(&head, "Host"), "localhost");
    cr_expect_str_eq(http_field(&head, "accept"), "");
    cr_expect_str_eq(http_field(&head, "X-Two"), "1");
    cr_expect_null(http_field(&head, "X"));
    cr_expect(http_argument(&head, "q", &value) && value.len == 5 && memcmp(value.ptr, "x y&z", 5) == 0);
    cr_expect(http_argument(&head, "sort", &value) && value.len == 0);
    cr_expect(http_argument(&head, "flag", &value) && value.len == 0);
    cr_expect(http_argument(&head, "nul", &value) && value.len == 3 && memcmp(value.ptr, "a\0b", 3) == 0);
    cr_expect_not(http_argument(&head, "Q", &value));
    cr_expect_eq(head.narguments, 5);
    free(copy);
}

/* Forms that another program could read differently, and forms that smuggle in a second request. */
Test(http_head, ambiguous_heads_are_refused)
{
    cr_expect_null(STATUS("GET / HTTP/1.1\r\n" HOST "\r\n"));
    REFUSED(HTTP_BAD_REQUEST, "GET http://there/ HTTP/1.1\r\n" HOST "\r\n");
    cr_expect_null(STATUS("GET / HTTP/1.0\n\n"));
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST HOST "\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "Content-Length: 0\r\ncontent-length: 5\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\nHost : localhost\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "X: 1\r\n folded\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "X: a\rY: b\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "\rX: a\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "\0\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "X: \x7f\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST ": a\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1\r\n" HOST "no colon\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET  / HTTP/1.1\r\n" HOST "\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.1 \r\n" HOST "\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET /\tHTTP/1.1\r\n" HOST "\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET /%00 HTTP/1.1\r\n" HOST "\r\n");
    REFUSED(HTTP_BAD_REQUEST, "G@T / HTTP/1.1\r\n" HOST "\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET /\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / HTTP/1.11\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "GET / http/1.1\r\n" HOST "\r\n");
    REFUSED(HTTP_VERSION_NOT_SUPPORTED, "GET / HTTP/2.0\r\n" HOST "\r\n");
    REFUSED(HTTP_BAD_REQUEST, "\r\n\r\n");
    REFUSED(HTTP_BAD_REQUEST, "\n\n");
}

/* At the bound and one beyond it. */
Test(http_head, fields_and_arguments_are_bounded)
{
    for (int over = 0; over < 2; over++) {
        char fields[4096] = "GET / HTTP/1.0\r\n", query[8 * HTTP_ARGUMENTS_MAX] = "GET /?a=0";
        for (int i = 0; i < HTTP_FIELDS_MAX + over; i++)
            strcat(fields, "X: y\r\n");
        strcat(fields, "\r\n");
        for (int i = 1; i < HTTP_ARGUMENTS_MAX + over; i++)
            strcat(query, "&a=1");
        strcat(query, " HTTP/1.0\r\n\r\n");
        cr_expect_eq(status_of(fields, strlen(fields)) != NULL, over);
        cr_expect_eq(status_of(query, strlen(query)) != NULL, over);
    }
}
