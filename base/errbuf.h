/* errbuf: a fixed-size error message. The function that finds an error writes it, and each caller prefixes it. So the
 * top sees all causes: "load filter 'urls': layer 0: 0-Filter.db: short file".
 *
 * No allocation; a message that does not fit is cut and ends in "...". Lifetime: the caller's storage; a zeroed errbuf
 * is empty. Thread: any, on distinct objects. */
#pragma once

#define ERRBUF_SIZE 512

struct errbuf {
    char text[ERRBUF_SIZE]; /* always NUL-terminated, printable ASCII: bytes outside 0x20..0x7e are written as \xHH */
};

/* Replaces the message; does nothing if `err` is NULL. */
void errbuf_set(struct errbuf *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sets the message, and is the code: return errbuf_fail(err, -ENOMEM, "out of memory"). */
#define errbuf_fail(err, code, ...) (errbuf_set(err, __VA_ARGS__), (code))

/* Puts "<prefix>: " before the message. `err` may be NULL. */
void errbuf_prefix(struct errbuf *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Calls, and returns the result from the calling function unless it is 0: for a sequence of steps, in functions that
 * hold nothing that they would have to give back. */
#define TRY(call)         \
    do {                  \
        int rc_ = (call); \
        if (rc_ != 0)     \
            return rc_;   \
    } while (0)

/* A step in a function that has something to give back: it is called unless an earlier one has failed. */
#define STEP(rc, call) ((rc) = (rc) != 0 ? (rc) : (call))
