/* log_payload: the payload of a frame: how far it takes each stream, control records (filters are made, deleted,
 * renamed, grow) and adds. Memory to memory; the bytes are docs/FORMAT.md section 12. Opens no file.
 *
 * Lifetime: caller's storage, init (or zeroed) to deinit. Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "bloom_window.h"
#include "errbuf.h"

/* Ids, and the numbers of control records, frames and segments, are below this. No real count reaches it. It is half of
 * the range of a MANIFEST, so numbers after those of a forged log still fit. */
#define LOG_NUMBER_END (UINT64_C(1) << 61)

/* A growing string of bytes. Zeroed: empty. */
struct log_bytes {
    unsigned char *ptr; /* owned */
    size_t len;
    size_t size;
};

int log_bytes_reserve(struct log_bytes *bytes, size_t more) __attribute__((warn_unused_result)); /* 0 or -ENOMEM */
int log_bytes_append(struct log_bytes *bytes, const void *from, size_t len) __attribute__((warn_unused_result));
void log_bytes_deinit(struct log_bytes *bytes);

/* ---- control records ---- */

enum log_control_kind {
    LOG_CREATE = 1, /* an empty filter: name, replaced_id, expires_ms, params, shape */
    LOG_LOADED = 2, /* a filter with contents in files: record (store.h, struct store_record), replaced_id */
    LOG_DELETE = 3,
    LOG_RENAME = 4, /* name: the new one; replaced_id */
    LOG_EXPIRY = 5, /* expires_ms */
    LOG_CLEAR = 6,  /* all filters are deleted; no id */
    LOG_GROW = 7,   /* layer, shape */
    LOG_FORGET = 8, /* as LOG_DELETE; versions up to 0.3.2 wrote it */
    LOG_BREAK = 9,  /* a change before it is not in the log; no id. The later records of the same process are valid only
                     * with a save that has this record */
    LOG_FILLED = 10,         /* a filter with its contents: name, replaced_id, expires_ms, params, record (below) */
    LOG_CLEAR_DATABASE = 11, /* all filters of one database are deleted: database; no id */
    LOG_SWAP = 12,           /* two of the clients' numbers of databases represent other ones now: swap; no id */
    LOG_TURN = 13,           /* a part of a window takes a layer: layer, shape, turn (bloom_window.h) */
};
#define LOG_KINDS_END (LOG_TURN + 1)

/* Of segments and of files of pending records: raised with each kind of record, each variant or option, and each field,
 * so that a version that does not know them refuses the file. */
#define LOG_VERSION     2
#define LOG_VERSION_OLD 1 /* of 0.3.2 and before: log_old_decode() */
_Static_assert(LOG_VERSION > 2 || LOG_KINDS_END == 14, "a further kind of record needs a higher version");

/* A client's number of a database and the internal one (database.h) that it represents from now on. */
struct log_database {
    unsigned number, database;
};

/* Fields that the kind does not have are 0. */
struct log_control {
    enum log_control_kind kind;
    uint64_t id;
    uint64_t replaced_id; /* the filter that it replaced; 0: none */
    const char *name;     /* a key (database.h): `name_len` bytes, at most 65535; borrowed */
    size_t name_len;
    int64_t expires_ms; /* unix time; 0: never */
    struct bloom_params params;
    struct bloom_shape shape;
    unsigned layer;
    struct bloom_turn turn;
    const char *record; /* `record_len` bytes; borrowed */
    size_t record_len;
    unsigned database; /* internal number */
    struct log_database swap[2];
};

/* Before each record in its stream, and in a payload. */
struct log_control_head {
    uint32_t len;
    uint32_t check; /* in the file of pending records only (log_pending.h) */
};

/* Appends one record, with its head. 0 or -ENOMEM (nothing appended). */
int log_control_encode(struct log_bytes *bytes, const struct log_control *control) __attribute__((warn_unused_result));

/* ---- payloads: a head, the places, the control records, the groups of adds ---- */

/* A place in a stream of records on their way to the log (log_pending.h): after those of the frame, or of a state. */
struct log_place {
    uint64_t chunk; /* its number; 0: before the first */
    uint32_t used;  /* words of it, bytes in the stream of control records */
    uint32_t stream;
};

struct log_payload_head {
    uint32_t nplaces;
    uint32_t control_bytes;
    uint64_t first_control; /* number of the first control record; 0: there is none */
};

/* A group: this head, and n items. */
struct log_group {
    uint64_t id;
    uint32_t layer;
    uint32_t n;
};

_Static_assert(sizeof(struct log_place) == 16 && sizeof(struct log_payload_head) == 16 &&
                   sizeof(struct log_group) == 16,
               "as in the file");

/* The bits of an item's ordinal. Above them can be its check. No layer has so many items. */
#define LOG_ORDINAL_BITS 40
#define LOG_ORDINAL_MASK ((UINT64_C(1) << LOG_ORDINAL_BITS) - 1)

/* Starts the payload with control records, encoded one after the other in `records`; their numbers are first_number,
 * first_number + 1, ... 0 or -ENOMEM. To be called at most once, on an empty payload. */
int log_payload_controls(struct log_bytes *payload, uint64_t first_number, const struct log_bytes *records)
    __attribute__((warn_unused_result));

/* Appends n >= 1 adds to one layer. 0 or -ENOMEM (nothing appended). */
int log_payload_adds(struct log_bytes *payload, uint64_t id, unsigned layer, const struct bloom_replay_item *items,
                     size_t n) __attribute__((warn_unused_result));

#define LOG_ADDS_BATCH 512 /* adds that a visitor gets at most at a time */

/* Slices are valid during the call. A nonzero return ends the decoding and is returned by it. Each may be NULL. */
struct log_visitor {
    int (*on_control)(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err);
    int (*on_adds)(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n);
    int (*on_place)(void *ctx, const struct log_place *place);
    void *ctx;
};

enum log_status {
    LOG_OK = 0,
    LOG_DAMAGED = 1, /* damaged, or not written by Bloomery; the errbuf has the place and the reason */
    LOG_NEWER = 2,   /* written by a newer version; likewise. Never passed over, in no mode of reading */
};

/* Reads each of these bytes at most once, and no others. An enum log_status or the result of the visitor. */
int log_payload_decode(const unsigned char *bytes, size_t len, bool has_controls, const struct log_visitor *visitor,
                       struct errbuf *err);

/* log_payload_decode() of payloads of LOG_VERSION_OLD, from 0.3.2 (log_old.c). They are only read; the next save ends
 * the last segment with them. */
int log_old_decode(const unsigned char *bytes, size_t len, bool has_controls, const struct log_visitor *visitor,
                   struct errbuf *err);

/* ---- the layers of a small filter as bytes, bits included, for the control record of a filter created with contents.
 * Memory to memory; the filter that is encoded may be added to ---- */

/* Bytes of bits, all layers together, that a record may have. */
#define LOG_CONTENTS_MAX 65536

#define LOG_CONTENTS_LARGE 1 /* the layers have more bytes of bits than the limit */

/* Appends the layers of the filter. Items that are added meanwhile may be in them in whole or in part. The count of a
 * layer is read after its bits and is never below the items in them. 0; otherwise nothing has been appended: -ENOMEM,
 * or LOG_CONTENTS_LARGE when the layers have more than `max_bytes` <= LOG_CONTENTS_MAX bytes of bits. */
int log_contents_encode(struct log_bytes *bytes, const struct bloom_filter *filter, size_t max_bytes)
    __attribute__((warn_unused_result));

struct log_layer {
    struct bloom_shape shape;
    uint64_t items;
    struct bloom_turn turn;     /* of a window or a cuckoo filter */
    const unsigned char *words; /* 8 * shape.nwords of the decoded bytes, in the form of a BLOOM_NA file */
};

struct log_contents {
    unsigned nlayers; /* 1..BLOOM_MAX_LAYERS */
    bool turns;       /* the layers have turns */
    struct log_layer layers[BLOOM_MAX_LAYERS];
};

/* Whether exactly these bytes are layers. Reads no other bytes, for any contents. */
bool log_contents_decode(const void *bytes, size_t len, struct log_contents *contents_out);

/* Loading: puts the contents into a filter that was made with the shape of the first layer and is empty. 0, -ENOMEM,
 * BLOOM_REFUSED or BLOOM_LIMIT, with the reason. */
int log_contents_fill(const struct log_contents *contents, struct bloom_filter *filter, struct errbuf *err)
    __attribute__((warn_unused_result));
