/* http_head: the head of an HTTP/1 request, which is its request line and fields (RFC 9112), taken apart in place.
 *
 * It refuses bytes that two programs could read in two ways: folded lines, a space before a colon, control characters,
 * a second Host or Content-Length. Numbers of fields and arguments are bounded.
 *
 * Texts are in the bytes of the request and stay valid as long as these do. Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

#define HTTP_FIELDS_MAX    64 /* a browser sends 15 */
#define HTTP_ARGUMENTS_MAX 16 /* the status page sends 6 */

/* Statuses, as the first line of a reply has them. */
#define HTTP_OK                    "200 OK"
#define HTTP_NOT_MODIFIED          "304 Not Modified"
#define HTTP_BAD_REQUEST           "400 Bad Request"
#define HTTP_UNAUTHORIZED          "401 Unauthorized"
#define HTTP_FORBIDDEN             "403 Forbidden"
#define HTTP_NOT_FOUND             "404 Not Found"
#define HTTP_METHOD_NOT_ALLOWED    "405 Method Not Allowed"
#define HTTP_CONTENT_TOO_LARGE     "413 Content Too Large"
#define HTTP_FIELDS_TOO_LARGE      "431 Request Header Fields Too Large"
#define HTTP_UNAVAILABLE           "503 Service Unavailable"
#define HTTP_VERSION_NOT_SUPPORTED "505 HTTP Version Not Supported"

struct http_field {
    const char *name, *value; /* the value without spaces around it */
};

struct http_argument {
    struct slice name, value; /* decoded: any bytes */
};

struct http_head {
    const char *method;
    const char *path; /* decoded; without the query */
    struct http_field fields[HTTP_FIELDS_MAX];
    size_t nfields;
    struct http_argument arguments[HTTP_ARGUMENTS_MAX]; /* of the query */
    size_t narguments;
};

/* The length of the head at the front of text[0..len), with its empty line; 0: it is not complete. `seen` is how many
 * bytes an earlier call has checked. */
size_t http_head_length(const char *text, size_t len, size_t seen);

/* Takes a complete head apart and changes its bytes. NULL, or the status to refuse it with. */
const char *http_head_parse(char *text, size_t len, struct http_head *head_out);

/* The first field with this name in any case; NULL: none. */
const char *http_field(const struct http_head *head, const char *name);

/* The first argument with this name; false, and no output, if there is none. */
bool http_argument(const struct http_head *head, const char *name, struct slice *value_out);
