/* An add took 17 to 21 bytes: a group had its numbers in as few bytes as they need, and of an ordinal the difference to
 * the one before. Control records were one behind the other. */
#include "log_payload_internal.h"

#define ADD_LEAST  17 /* bytes */
#define LAYER_BITS 10

static uint64_t unzigzag(uint64_t value)
{
    return value >> 1 ^ (0 - (value & 1));
}

static int decode_controls(struct cursor *c, const struct log_visitor *visitor, struct errbuf *err)
{
    uint64_t len = cursor_number(c);
    struct cursor part = *c;

    if (c->bad || len > (uint64_t)(c->end - c->at) || len == 0)
        return log_payload_damaged(c, "the length of the control records", err);
    part.end = c->at + len;
    c->at = part.end;
    uint64_t number = log_get_counted(&part, 1);
    if (part.bad || part.at == part.end)
        return log_payload_damaged(&part, "the number of a control record", err);
    for (; part.at < part.end; number++) {
        struct log_control control;

        log_get_control(&part, &control);
        if (part.bad)
            return log_payload_damaged(&part, "a control record", err);
        int rc = visitor->on_control ? visitor->on_control(visitor->ctx, number, &control, err) : 0;
        if (rc != 0)
            return rc;
    }
    return LOG_OK;
}

static int decode_group(struct cursor *c, const struct log_visitor *visitor, struct errbuf *err)
{
    struct bloom_replay_item items[LOG_ADDS_BATCH];
    uint64_t id = log_get_counted(c, 1);
    uint64_t head = cursor_number(c);
    uint64_t left = (head >> LAYER_BITS) + 1;
    unsigned layer = (unsigned)(head & ((1u << LAYER_BITS) - 1));
    uint64_t ordinal = 0;

    if (c->bad || left > (uint64_t)(c->end - c->at) / ADD_LEAST)
        return log_payload_damaged(c, "a group of adds", err);
    while (left) {
        size_t n = left < LOG_ADDS_BATCH ? (size_t)left : LOG_ADDS_BATCH;

        for (size_t i = 0; i < n; i++) {
            uint64_t h1 = cursor_u64(c);
            uint64_t h2 = cursor_u64(c);
            ordinal += unzigzag(cursor_number(c));
            items[i] = (struct bloom_replay_item){{h1, h2}, ordinal};
        }
        if (c->bad)
            return log_payload_damaged(c, "an add", err);
        int rc = visitor->on_adds ? visitor->on_adds(visitor->ctx, id, layer, items, n) : 0;
        if (rc != 0)
            return rc;
        left -= n;
    }
    return LOG_OK;
}

int log_old_decode(const unsigned char *bytes, size_t len, bool has_controls, const struct log_visitor *visitor,
                   struct errbuf *err)
{
    struct cursor c = cursor_of(bytes, len);
    int rc = has_controls ? decode_controls(&c, visitor, err) : LOG_OK;

    while (rc == LOG_OK && c.at < c.end)
        rc = decode_group(&c, visitor, err);
    return rc;
}
