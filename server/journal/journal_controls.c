#include "journal_controls.h"

#include <string.h>

#define CHUNK_ROOM   (PENDING_CHUNK_WORDS * 8)
#define RECORD_EXTRA (sizeof(struct pending_control) + 128) /* at most, of a record beside its name and contents */

void controls_init(struct journal_controls *c, struct log_pending *pending, unsigned stream, uint64_t next)
{
    *c = (struct journal_controls){.pending = pending, .stream = stream, .next = next, .used = CHUNK_ROOM};
}

void controls_deinit(struct journal_controls *c)
{
    log_bytes_deinit(&c->bytes);
}

static int reserve_chunks(struct journal_controls *c, size_t bytes)
{
    size_t room = CHUNK_ROOM - c->used;
    return bytes <= room ? 0 : log_pending_reserve(c->pending, &c->spare, (bytes - room + CHUNK_ROOM - 1) / CHUNK_ROOM);
}

int controls_reserve(struct journal_controls *c, size_t bytes)
{
    int status = log_bytes_reserve(&c->bytes, bytes + 128);
    return status ? status : reserve_chunks(c, bytes + RECORD_EXTRA);
}

static void begin_chunk(struct journal_controls *c)
{
    struct pending_chunk *next = log_pending_begin(c->pending, &c->spare, c->stream, c->tail ? c->tail->number + 1 : 1);
    if (c->tail)
        atomic_store_explicit(&c->tail->next, next, memory_order_relaxed);
    else
        c->oldest = next;
    c->tail = next;
    c->used = 0;
}

static void store(struct journal_controls *c, const void *from, size_t len)
{
    const unsigned char *at = from;
    while (len) {
        if (c->used == CHUNK_ROOM)
            begin_chunk(c);
        size_t n = CHUNK_ROOM - c->used < len ? CHUNK_ROOM - c->used : len;
        memcpy((unsigned char *)c->tail->words + c->used, at, n);
        c->used += (uint32_t)n;
        at += n;
        len -= n;
    }
}

int controls_put(struct journal_controls *c, const struct log_control *control)
{
    size_t before = c->bytes.len;
    int status = log_control_encode(&c->bytes, control);
    if (status == 0)
        status = reserve_chunks(c, sizeof(struct pending_control) + c->bytes.len - before);
    if (status) {
        c->bytes.len = before;
        return status;
    }
    const unsigned char *record = c->bytes.ptr + before;
    size_t len = c->bytes.len - before;
    const struct pending_control head = {
        .len = (uint32_t)len, .check = pending_control_check(log_pending_salt(c->pending), c->next, record, len)};
    store(c, &head, sizeof(head));
    store(c, record, len);
    c->next++;
    return 0;
}

struct pending_place controls_end(const struct journal_controls *c)
{
    return c->tail ? (struct pending_place){.chunk = c->tail->number, .used = c->used} : (struct pending_place){0};
}

void controls_release(struct journal_controls *c, struct pending_place place)
{
    struct pending_chunk *end = c->oldest;
    while (end && end->number < place.chunk)
        end = atomic_load_explicit(&end->next, memory_order_relaxed);
    log_pending_put(c->pending, c->oldest, end);
    c->oldest = end;
}
