/* dump: a filter as bytes for transport: in chunks of bounded size (BF.SCANDUMP, BF.LOADCHUNK) or in one piece (DUMP,
 * RESTORE). The bytes are described in docs/DUMP.md.
 *
 * It knows no key and no client, and it allocates nothing: the loader makes the filter that a plan asks for, and so
 * decides which sizes are too large.
 *
 * A dump during adds has every item that was added before it began. It has the layers of that moment, each word read
 * once. The item counts are read last, so they are never below the items in the bits.
 *
 * Chunks are chained: each chunk has a digest of 23 bits of all earlier chunks. Its iterator consists of that digest,
 * the number of layers and its own number. So the server keeps no state between two chunks, and the loader knows that
 * this chunk follows exactly the earlier ones. Each chunk has its own checksum of 128 bits.
 *
 * Thread: any, on distinct objects; the filter that is read may be added to. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "bloom_window.h"
#include "errbuf.h"

#define DUMP_DATA_BYTES  (512u * 1024) /* bits in one chunk: some tenths of a millisecond of copying and checking */
#define DUMP_CHUNK_MAX   (DUMP_DATA_BYTES + 64) /* the longest chunk */
#define DUMP_FRAME_BYTES 48                     /* of every chunk: the bytes before and after its content */
#define DUMP_HEADER_MAX \
    (DUMP_FRAME_BYTES + 80 + (16 + 24 + DUMP_TURN_BYTES) * BLOOM_MAX_LAYERS) /* the longest header */

enum dump_status {
    DUMP_OK = 0,
    DUMP_BAD = 1,     /* damaged, forged, or not the expected chunk; the errbuf has the reason */
    DUMP_FOREIGN = 2, /* no dump of ours */
};

/* The parts of a filter in a dump. */
struct dump_plan {
    struct bloom_params params;
    unsigned nlayers; /* 1..BLOOM_MAX_LAYERS */
    struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    uint64_t bytes; /* of the words of all layers */
    uint64_t items; /* of a cuckoo filter, as its numbers say; of others 0 */

    /* Of a window only. A dump has ages, for a machine with another clock; the time of day tells when it was taken. */
    int64_t taken_ms; /* Unix time */
    struct dump_turn {
        uint64_t number; /* as in struct bloom_turn */
        uint64_t age_us; /* of the part, when the dump was taken */
    } turns[BLOOM_MAX_LAYERS];
};

/* The plan of the oldest `nlayers` layers of the filter, 1..bloom_filter_nlayers(). Of a window, the turns are noted
 * before the bits are read: a layer that is taken by a new part meanwhile keeps its old age. */
void dump_plan_of(const struct bloom_filter *filter, unsigned nlayers, struct dump_plan *plan_out);

/* ---- chunks: number 0 is the header, then the bits, the last one has the item counts ---- */

/* The position in a dump: the number of the next chunk, and the digest of the chunks before it. */
struct dump_place {
    unsigned nlayers;
    uint32_t next;
    uint32_t chain;
};

#define DUMP_MAX_CHUNKS (UINT32_C(1) << 22) /* numbers that an iterator has room for: 2 TB */

/* The iterator of a place, 1..2^53-1 (clients keep it in a double), and back: false when the number is no iterator. */
int64_t dump_iterator(const struct dump_place *place);
bool dump_place_from(int64_t iterator, struct dump_place *place_out);

uint32_t dump_chunks(const struct dump_plan *plan); /* their number */
size_t dump_chunk_bytes(const struct dump_plan *plan, uint32_t index);

/* Writes chunk place->next to `out`, which has room for dump_chunk_bytes(), and moves the place on. `identity` is the
 * same for all chunks of a dump and different for another filter, or another life of the process. `nonce` is for the
 * header: any number not used before. */
void dump_write_chunk(const struct dump_plan *plan, const struct bloom_filter *filter, uint64_t identity,
                      uint64_t nonce, struct dump_place *place, unsigned char *out);

/* A load under way. With its identity and nonce, dump_write_chunk() writes the loaded chunks again, unchanged, from a
 * filter without adds since then. */
struct dump_load {
    struct dump_plan plan;
    uint64_t identity, nonce;
    struct dump_place place; /* the expected chunk */
};

/* Reads the header of a dump. `*iterator` came with the header; NULL, here and below: there is none to check. DUMP_OK,
 * DUMP_BAD or DUMP_FOREIGN. */
int dump_load_begin(struct dump_load *load, const int64_t *iterator, const void *data, size_t len, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Takes the next chunk into `filter`, which was made by load->plan. DUMP_OK or DUMP_BAD, after which the load must be
 * given up. *complete_out: this was the last chunk. */
int dump_load_chunk(struct dump_load *load, struct bloom_filter *filter, const int64_t *iterator, const void *data,
                    size_t len, bool *complete_out, struct errbuf *err) __attribute__((warn_unused_result));

bool dump_is_header(const void *data, size_t len); /* whether these bytes have the mark of the beginning of a dump */

/* ---- one piece (dump_value.c) ---- */

/* The result of DUMP: a value of the module's type as RDB has it, with RDB's version and checksum. So an engine with
 * the module takes it, and the daemon takes the engine's. The value is the number of chunks, then each of them. */

/* The module's type: nine characters, and the version of this encoding. */
#define DUMP_TYPE_NAME    "bloomery1"
#define DUMP_TYPE_VERSION 1

uint64_t dump_whole_bytes(const struct dump_plan *plan);
void dump_write_whole(const struct dump_plan *plan, const struct bloom_filter *filter, unsigned char *out);

/* Verifies the checksum and reads the plan of a piece. DUMP_OK, DUMP_BAD or DUMP_FOREIGN. */
int dump_read_plan(const void *data, size_t len, struct dump_plan *plan_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Takes the bits and counts of a piece, which dump_read_plan() has read, into a filter made after its plan. DUMP_OK,
 * DUMP_BAD or -ENOMEM; after these the filter must be given up. */
int dump_read_whole(const void *data, size_t len, struct bloom_filter *filter, struct errbuf *err)
    __attribute__((warn_unused_result));

/* ---- the part of a header that only windows have (dump_value.c). Internal to the dumps ---- */

#define DUMP_WINDOW_BYTES 24 /* the window; then */
#define DUMP_TURN_BYTES   16 /* for each layer */

void dump_write_window(const struct dump_plan *plan, unsigned char *at);

/* Reads the window, which may be an impossible one; then, once the rest of the plan has been checked, the turns. */
void dump_read_window(const unsigned char *at, struct bloom_params *params);
int dump_read_turns(const unsigned char *at, struct dump_plan *plan, struct errbuf *err); /* DUMP_OK or DUMP_BAD */

/* Gives the layers of the filter, which has the dump's bits and counts, their turns. */
void dump_take_turns(const struct dump_plan *plan, struct bloom_filter *filter);
