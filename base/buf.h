/* buf: a growable byte buffer with a hard cap, written at the end and consumed at the front. Replies are built in one.
 *
 * Failure is sticky: when memory runs out or the content would pass the cap, the buffer is marked failed and takes
 * nothing more. The owner asks once, at the end (buf_failed()); hence a reply never fails half-way in the caller's
 * code. Earlier content stays readable. Only buf_deinit() clears the failure.
 *
 * Lifetime: the caller's storage, buf_init() to buf_deinit(). Thread: any, on distinct objects. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data;   /* malloc'ed, or NULL while nothing has been written */
    size_t start; /* first byte not consumed */
    size_t end;   /* one past the last byte written */
    size_t size;  /* allocated */
    size_t cap;   /* size never grows beyond this */
    bool failed;
    _Atomic size_t *size_shown; /* NULL, or where `size` can be read by other threads; the owner's, as the buffer */
};

void buf_init(struct buf *buf, size_t cap);

/* Frees the memory and clears a failure; the cap stays, so the buffer is as after buf_init(). Idempotent. Also gives
 * memory back after unusually large content. */
void buf_deinit(struct buf *buf);

static inline size_t buf_len(const struct buf *buf)
{
    return buf->end - buf->start;
}

/* The first of buf_len() bytes; valid until the next call that writes. NULL is possible while the buffer is empty. */
static inline const char *buf_head(const struct buf *buf)
{
    return buf->start == 0 ? buf->data : buf->data + buf->start;
}

static inline bool buf_failed(const struct buf *buf)
{
    return buf->failed;
}

/* The part of buf_reserve() that must move or allocate. */
char *buf_make_room(struct buf *buf, size_t n);

/* Makes room for `n` >= 1 more bytes and returns a pointer to it, or NULL after marking the buffer failed. The pointer
 * is valid until the next call on the buffer. Inline, because every reply calls it and nearly always finds room. */
static inline char *buf_reserve(struct buf *buf, size_t n)
{
    if (__builtin_expect(n <= buf->size - buf->end && !buf->failed, 1))
        return buf->data + buf->end;
    return buf_make_room(buf, n);
}

/* Says that `n` of the reserved bytes have been written. */
static inline void buf_commit(struct buf *buf, size_t n)
{
    buf->end += n;
}

/* Appends malloc'ed bytes, which pass to the buffer, beyond its cap if it must be; without a copy if it is empty. */
void buf_take(struct buf *buf, char *data, size_t n);

void buf_append(struct buf *buf, const void *data, size_t n); /* data may be NULL when n is 0 */

/* Appends formatted text, however long it becomes. A format that cannot be encoded is a failure. */
void buf_appendf(struct buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vappendf(struct buf *buf, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));

/* Drops `n` <= buf_len() bytes from the front. An emptied buffer starts over at the beginning of its memory. */
void buf_consume(struct buf *buf, size_t n);

/* Cuts the content back to `len` <= buf_len() bytes, to withdraw a reply. Does not clear a failure. */
void buf_truncate(struct buf *buf, size_t len);
