/* wire: a plain connection to a RESP server on 127.0.0.1, for tests of the bytes: it sends bytes unchanged, and keeps a
 * reply as the lines that were received. RESP2 and RESP3.
 *
 * Without memory or sockets the test fails; functions return what the server does. Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Texts in the order they were added, each NUL-terminated. Zero-initialise. */
struct lines {
    char **items;
    size_t count, size;
};

void lines_add(struct lines *lines, const char *text,
               size_t len); /* bytes outside ' '..'~' become \xHH, '\' becomes '\\' */
void lines_truncate(struct lines *lines, size_t count);
void lines_deinit(struct lines *lines); /* idempotent */

struct wire {
    int fd; /* -1: not connected */
    bool drips;
    struct wire_tls *tls; /* wire_tls.h; NULL: none */
    /* internal: bytes received and not yet taken */
    char *data;
    size_t start, end, size;
};

enum wire_status {
    WIRE_OK,
    WIRE_CLOSED,  /* by the server */
    WIRE_SILENCE, /* nothing (more) came in time */
};

/* How long a certain reply may take, on slow machines and with sanitizers, too. */
#define WIRE_PATIENCE_MS 300000

void wire_open(struct wire *wire, int port);
struct wire wire_to(int port); /* the same as a value */

/* Connects to a Unix socket. Sends byte by byte, each when the server has read the previous one; only the inside of
 * a long argument goes at once. */
void wire_open_dripping(struct wire *wire, const char *path);
void wire_close(struct wire *wire); /* idempotent; a wire still open at the end of a test ends with it */

/* False when the connection is gone. */
bool wire_send(struct wire *wire, const void *data, size_t len);
bool wire_send_text(struct wire *wire, const char *text);

/* An argument of a command. */
struct word {
    const char *ptr;
    size_t len;
};
bool wire_send_command(struct wire *wire, const struct word *words, size_t n);

/* Takes one whole reply and adds its lines as they were sent: "*2", ":1", "$3", "abc". Adds no part of a reply. */
enum wire_status wire_reply(struct wire *wire, int timeout_ms, struct lines *out);

/* Takes a line that is not of RESP and compares it; false when it is another one, or none comes. */
bool wire_takes_line(struct wire *wire, const char *expected);

/* Whether the server closes the connection within the time, without sending anything before. */
bool wire_closes(struct wire *wire, int timeout_ms);

/* Waits for one reply and returns it in compact form: [:1,#t,"bulk",nil,{+key:,1.5}]; "(closed)" or "(silence)" if none
 * comes. Valid until the thread's next call on any wire. */
const char *wire_text(struct wire *wire);

/* Sends a command given as words separated by single spaces, and returns its reply as wire_text() does. */
const char *wire_ask(struct wire *wire, const char *command);

/* Demands that the next reply is this one; that this is the reply to the command. */
#define expect_text(wire, expected)                                                           \
    do {                                                                                      \
        const char *text_got = wire_text(wire);                                               \
        cr_assert_str_eq(text_got, expected, "got '%s' instead of '%s'", text_got, expected); \
    } while (0)

#define expect_ask(wire, command, expected)                                                                \
    do {                                                                                                   \
        const char *text_got = wire_ask(wire, command);                                                    \
        cr_assert_str_eq(text_got, expected, "%s: got '%s' instead of '%s'", command, text_got, expected); \
    } while (0)
