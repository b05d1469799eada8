/* log_contents: the layers of a small filter as bytes, bits included, for the control record of a filter created with
 * contents. Memory to memory; docs/FORMAT.md section 12.
 *
 * Thread: any, on distinct objects; the filter that is encoded may be added to. */
#ifndef BLOOMERY_LOG_CONTENTS_H
#define BLOOMERY_LOG_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "log_payload.h"

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

#endif
