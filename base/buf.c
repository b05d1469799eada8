/* The buffer first uses the room after the content. Then it moves the content to the front, if the content is no longer
 * than the consumed bytes (so each consumed byte pays for a moved one). Then it doubles, up to the cap. At the cap it
 * always moves, because content that fits must be accepted. */
#include "buf.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_SIZE_MIN 256 /* a handful of small replies */

void buf_init(struct buf *buf, size_t cap)
{
    *buf = (struct buf){.cap = cap};
}

static void show_size(const struct buf *buf)
{
    if (buf->size_shown)
        atomic_store_explicit(buf->size_shown, buf->size, memory_order_relaxed);
}

void buf_deinit(struct buf *buf)
{
    _Atomic size_t *shown = buf->size_shown;

    free(buf->data);
    buf_init(buf, buf->cap);
    buf->size_shown = shown;
    show_size(buf);
}

static void move_to_front(struct buf *buf)
{
    size_t len = buf_len(buf);

    if (buf->start > 0) {
        memmove(buf->data, buf->data + buf->start, len);
        buf->start = 0;
        buf->end = len;
    }
}

/* The next size that holds `needed` <= cap bytes. */
static size_t grown_size(const struct buf *buf, size_t needed)
{
    size_t size = buf->size < BUF_SIZE_MIN ? BUF_SIZE_MIN : buf->size;

    while (size < needed)
        size = size > buf->cap / 2 ? buf->cap : size * 2;
    return size < buf->cap ? size : buf->cap;
}

char *buf_make_room(struct buf *buf, size_t n)
{
    size_t len = buf_len(buf);

    if (buf->failed)
        return NULL;
    if (n > buf->cap || len > buf->cap - n) {
        buf->failed = true;
        return NULL;
    }
    if (len + n <= buf->size && (buf->start >= len || buf->size == buf->cap)) {
        move_to_front(buf);
        return buf->data + buf->end;
    }

    size_t size = grown_size(buf, len + n <= buf->size ? buf->size + 1 : len + n);
    move_to_front(buf); /* before realloc, which would copy the consumed bytes too */
    char *data = realloc(buf->data, size);
    if (!data) {
        buf->failed = true;
        return NULL;
    }
    buf->data = data;
    buf->size = size;
    show_size(buf);
    return buf->data + buf->end;
}

void buf_take(struct buf *buf, char *data, size_t n)
{
    if (buf_len(buf) + n > buf->cap)
        buf->cap = buf_len(buf) + n;
    if (buf_len(buf) > 0 || buf->failed) {
        buf_append(buf, data, n);
        free(data);
        return;
    }
    free(buf->data);
    buf->data = data;
    buf->start = 0;
    buf->end = buf->size = n;
    show_size(buf);
}

void buf_append(struct buf *buf, const void *data, size_t n)
{
    if (n == 0)
        return;

    char *room = buf_reserve(buf, n);
    if (room) {
        memcpy(room, data, n);
        buf_commit(buf, n);
    }
}

void buf_vappendf(struct buf *buf, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);

    size_t size = buf->failed ? 0 : buf->size - buf->end;
    int len = vsnprintf(size ? buf->data + buf->end : NULL, size, fmt, args);
    char *room = len >= 0 ? buf_reserve(buf, (size_t)len + 1) : NULL;
    if (room && (size_t)len >= size)
        vsnprintf(room, (size_t)len + 1, fmt, again);
    if (room)
        buf_commit(buf, (size_t)len);
    else
        buf->failed = true;
    va_end(again);
}

void buf_appendf(struct buf *buf, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    buf_vappendf(buf, fmt, args);
    va_end(args);
}

void buf_consume(struct buf *buf, size_t n)
{
    assert(n <= buf_len(buf));
    buf->start += n;
    if (buf->start == buf->end)
        buf->start = buf->end = 0;
}

void buf_truncate(struct buf *buf, size_t len)
{
    assert(len <= buf_len(buf));
    buf->end = buf->start + len;
    if (len == 0)
        buf->start = buf->end = 0;
}
