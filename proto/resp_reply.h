/* resp_reply: a push parser for the replies of a RESP server, RESP2 and RESP3, for clients.
 *
 * A reply becomes a list of nodes in the order of its bytes. An aggregate's node precedes the nodes of its elements, so
 * nested replies need no recursion, here or in the reader. Texts are offsets into the caller's bytes; nothing is
 * copied. However the input is cut, only the header line of an incomplete string is read again. Memory grows with the
 * bytes that have arrived, never with the numbers that a server announces. Attributes (first byte '|') are malformed:
 * no server sends them unasked.
 *
 * The caller keeps the bytes of an incomplete reply contiguous and passes them again with more after them. They may
 * move between calls but not change.
 *
 * Reference: the Redis serialization protocol specification.
 *
 * Lifetime: caller's storage, zero-initialised, to resp_reply_reader_deinit(). Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

enum resp_reply_kind {
    RESP_REPLY_STATUS,
    RESP_REPLY_ERROR,   /* its text, without the dash */
    RESP_REPLY_INTEGER, /* `number`; of a boolean 1 or 0 */
    RESP_REPLY_TEXT,    /* a bulk or verbatim string; the digits of a double or a big number */
    RESP_REPLY_NULL,
    RESP_REPLY_ARRAY, /* `number` elements follow; of a map, twice its pairs */
    RESP_REPLY_PUSH,  /* like an array; only ever the first node */
};

struct resp_reply_node {
    enum resp_reply_kind kind;
    int64_t number;
    size_t off, len; /* of the text, from the first byte of the reply */
};

/* Limits of a reply. One that passes a limit is malformed. */
#define RESP_REPLY_MAX_TEXT  ((int64_t)1 << 30) /* bytes of a string: twice Redis's proto-max-bulk-len */
#define RESP_REPLY_MAX_NODES (1 << 20)          /* elements of all its arrays */

struct resp_reply_reader {
    /* internal */
    struct resp_reply_node *nodes;
    size_t count, size;
    size_t pos;    /* bytes of this reply that are parsed */
    size_t looked; /* bytes of it searched for the end of a line */
    size_t due;    /* elements still missing */
    bool begun;
};

/* A whole reply. Valid as long as its bytes are, and until the next call of the reader. */
struct resp_reply {
    const char *base;
    const struct resp_reply_node *nodes;
    size_t count; /* >= 1 */
};

enum resp_reply_status {
    RESP_REPLY_WHOLE = 0,
    RESP_REPLY_NEED_MORE = 1,
    RESP_REPLY_MALFORMED = 2, /* not RESP, or over a limit; the rest cannot be read */
    RESP_REPLY_NO_MEMORY = 3,
};

/* Looks for one reply at the front of data[0..len). RESP_REPLY_WHOLE: it takes *consumed_out bytes, and *reply_out is
 * filled; call again with the bytes after them. RESP_REPLY_NEED_MORE: *needs_out is the number of bytes, counted from
 * data[0] and more than len, that the next call needs to make progress. */
enum resp_reply_status resp_reply_next(struct resp_reply_reader *reader, const char *data, size_t len,
                                       size_t *consumed_out, size_t *needs_out, struct resp_reply *reply_out);

void resp_reply_reader_deinit(struct resp_reply_reader *reader); /* idempotent; ready for another connection */

static inline struct slice resp_reply_text(const struct resp_reply *reply, size_t node)
{
    return (struct slice){reply->base + reply->nodes[node].off, reply->nodes[node].len};
}
