/* log_pending: the file log/<process>.pending, which holds the records on their way to the log. The process maps the
 * file, and its threads keep their queues in it: a record is in the file once it is in its queue, and stays until a
 * segment that has it is synced. A frame states how far it takes each stream, so the next start finds the records of a
 * killed process that no frame has, and takes them as the next one (log_reader.h). The file is never synced, so a power
 * failure may leave any bytes in it: each record has a check.
 *
 * docs/DECISIONS.md ("The log") says why records are not written before the reply. Bytes: docs/FORMAT.md section 13.
 *
 * The file is made of chunks, each of which belongs to a stream at a time: one for the adds of each worker, and the
 * last for control records. A stream's chunks are numbered from 1.
 *
 * Lifetime: log_pending_create() to log_pending_destroy(). Thread: any, except where noted. */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"
#include "log_payload.h"

#define PENDING_CHUNK_BYTES 65536
#define PENDING_CHUNK_HEAD  32
#define PENDING_CHUNK_WORDS ((PENDING_CHUNK_BYTES - PENDING_CHUNK_HEAD - 8) / 8)

struct pending_chunk {
    struct pending_chunk *_Atomic next; /* this and `used` are of the process alone: for its queues */
    _Atomic uint32_t used;
    uint32_t stream;
    uint64_t number;
    uint64_t check; /* of stream and number; the seed of the records' checks */
    uint64_t words[PENDING_CHUNK_WORDS];

    /* The number of transactions that had begun when the latest one began in this chunk, or when the chunk began. It
     * detects a copy of the file made during a transaction. A copy reads front to back, so a copy with records of the
     * transaction has the new number here and an older number in the head of the file. A crash leaves no such file. */
    _Atomic uint64_t holds;
};
_Static_assert(sizeof(struct pending_chunk) == PENDING_CHUNK_BYTES, "a chunk's size");

struct log_pending;

struct log_pending_options {
    const struct fsops *fs;
    const char *dir;  /* the data directory */
    uint64_t process; /* as in struct log_header, this and the next */
    uint64_t generation;
    uint64_t salt;     /* random */
    unsigned nstreams; /* workers, and one for control records */
    uint64_t frame;    /* the last frame of the log that is synced */
    uint64_t control;  /* the number of the next control record */
};

/* Makes no file yet. 0 or -ENOMEM. */
int log_pending_create(struct log_pending **pending_out, const struct log_pending_options *options)
    __attribute__((warn_unused_result));

/* `remove`: all records are in the log, so TAIL states its end and the file is deleted. NULL is fine. */
void log_pending_destroy(struct log_pending *pending, bool remove);

/* Makes the file, unless it exists. 0 or -errno. */
int log_pending_make(struct log_pending *pending) __attribute__((warn_unused_result));

/* The files of earlier processes are not needed any more: TAIL names the last frame, and this process's file. 0 or
 * -errno. */
int log_pending_settled(struct log_pending *pending) __attribute__((warn_unused_result));

/* A save has begun. If another program has removed the file, no start can miss it: what a kill loses of the records in
 * it cannot be told. */
void log_pending_look(struct log_pending *pending);

/* Chunks that a queue keeps for its next records: zero-initialise. Thread: the queue's. */
struct pending_spare {
    struct pending_chunk *first; /* linked by next */
    size_t n;
};

/* Reserves n chunks. When none is free the file grows, by 1 MB at a time. 0, -ENOMEM or another -errno. */
int log_pending_reserve(struct log_pending *pending, struct pending_spare *spare, size_t n)
    __attribute__((warn_unused_result));

/* Frees the chunks from `first` to before `end`, linked by `next`: their records are in the log. */
void log_pending_put(struct log_pending *pending, struct pending_chunk *first, const struct pending_chunk *end);

/* Turns a spare chunk, which must exist, into the chunk of the stream with this number. */
struct pending_chunk *log_pending_begin(const struct log_pending *pending, struct pending_spare *spare, unsigned stream,
                                        uint64_t number);

uint64_t log_pending_salt(const struct log_pending *pending);

/* Called when frames up to this one are synced, before the chunks of their records are freed: the places, of all
 * streams, to which they reach. `control` is the number of the next control record. */
void log_pending_synced(struct log_pending *pending, uint64_t frame, uint64_t control, const struct log_place *places);

/* A control record with this number is complete. */
void log_pending_noted(const struct log_pending *pending, uint64_t number);

/* Between the two calls the records of this stream and of the control records are one transaction, of which a crash in
 * between leaves nothing. `last` are the current chunks of the two streams; NULL: none. One thread at a time. */
void log_pending_hold(struct log_pending *pending, unsigned stream, struct log_place adds, struct log_place controls,
                      struct pending_chunk *const last[2]);
void log_pending_release(struct log_pending *pending);

/* ---- records ---- */

struct pending_head {
    uint64_t id;
    uint32_t layer;       /* and above its 10 bits the check of the head */
    _Atomic uint32_t end; /* end of the run, in words; 0: it continues. Of the process alone */
};
#define PENDING_LAYER_BITS  10
#define PENDING_ADD_WORDS   3
#define PENDING_HEAD_WORDS  2
#define PENDING_MOST_WORDS  (PENDING_HEAD_WORDS + PENDING_ADD_WORDS) /* of one add: the first of a run */
#define PENDING_LAYER(head) ((head)->layer & ((1u << PENDING_LAYER_BITS) - 1))

_Static_assert(BLOOM_MAX_LAYERS <= 1 << PENDING_LAYER_BITS, "a layer's index shares a number with a check");
_Static_assert(sizeof(struct bloom_replay_item) == PENDING_ADD_WORDS * sizeof(uint64_t), "an add's size in words");
_Static_assert(sizeof(struct pending_head) == PENDING_HEAD_WORDS * sizeof(uint64_t), "a head's size in words");

/* Mixes a seed and three numbers into the 64 bits of a check. It distinguishes a record from other bytes after a power
 * failure, but is no protection against a forged record. */
static inline uint64_t pending_mix(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = (a ^ seed) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32) ^ b) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 32) ^ c) * UINT64_C(0x94d049bb133111eb);
    return x;
}

/* `seed` of the chunk, `at` in words. */
static inline uint32_t pending_head_layer(uint64_t seed, uint32_t at, uint64_t id, unsigned layer)
{
    uint64_t check = pending_mix(seed, id, layer, at) >> (32 + PENDING_LAYER_BITS);
    return (uint32_t)check << PENDING_LAYER_BITS | layer;
}

static inline uint64_t pending_run_seed(uint64_t seed, uint64_t id, unsigned layer)
{
    return pending_mix(seed, id, layer, UINT64_MAX);
}

/* `seed` of the run. */
static inline uint64_t pending_ordinal(uint64_t seed, uint32_t at, struct bloom_hash hash, uint64_t ordinal)
{
    uint64_t check = pending_mix(seed, hash.h1, hash.h2, ordinal ^ (uint64_t)at << 48);
    return (check & ~LOG_ORDINAL_MASK) | ordinal;
}

/* Of a control record, whose head and bytes may continue in the stream's next chunk. An ordinal has its check above. */
uint32_t pending_control_check(uint64_t salt, uint64_t number, const void *bytes, size_t len);

/* ---- contents after a start ---- */

/* How far the log has the process: its frames end with `frame`, at these places. */
struct pending_known {
    bool here; /* TAIL names the file: all of it must be here, and the frames before it in the log */
    uint64_t frame;
    const struct log_place *places;
    size_t nplaces;
    uint64_t control; /* the number that follows the last control record in these frames; 0: they have none */
};

struct pending_found {
    uint64_t process;
    uint64_t generation;
    uint64_t salt;
    uint64_t frame;           /* up to this one frames were in the log */
    bool fits;                /* the log has them */
    struct log_bytes payload; /* of the next frame; empty: there is none. The caller frees it */
    bool has_controls;
};

/* Reads the file of a process. 0, LOG_DAMAGED (not a valid file: a copy or a power failure may leave this), LOG_NEWER,
 * -ENOMEM or another -errno. */
int log_pending_read(const struct fsops *fs, const char *path, const struct pending_known *known,
                     struct pending_found *found_out, struct errbuf *err) __attribute__((warn_unused_result));

/* ---- the file, for log_pending.c and log_pending_read.c ---- */

#define PENDING_MAGIC     "BLOOMPND"
#define PENDING_HEAD_PART 4096 /* the header and the hold; then two states, then the chunks */
#define PENDING_HOLD_AT   2048
#ifndef PENDING_GROWTH /* a test may have few adds */
#define PENDING_GROWTH (1u << 20)
#endif

struct pending_header {
    char magic[8];
    uint32_t version;
    uint32_t nstreams;
    uint64_t process;
    uint64_t generation;
    uint64_t salt;
    uint64_t check; /* XXH3-64 of the bytes before it */
};

struct pending_hold {
    uint32_t stream;
    _Atomic uint32_t active;
    _Atomic uint64_t begun; /* transactions so far */
    struct log_place adds;
    struct log_place controls;
    _Atomic uint64_t size;  /* of the file; this and the next two: 0 in the files of LOG_VERSION_OLD */
    _Atomic uint64_t noted; /* the number of the last complete control record */
    _Atomic uint64_t first; /* how many streams have begun their first chunk */
};

struct pending_state {
    uint64_t check; /* XXH3-64, with the salt, of the bytes after it */
    uint64_t frame;
    uint64_t control;
    struct log_place places[];
};

size_t pending_state_bytes(unsigned nstreams); /* of one, used */
uint64_t pending_state_check(const struct pending_state *state, unsigned nstreams, uint64_t salt);
size_t pending_state_room(unsigned nstreams);  /* of one, with the free space after it */
uint64_t pending_chunks_at(unsigned nstreams); /* where the chunks begin */
uint64_t pending_chunk_seed(uint64_t salt, unsigned stream, uint64_t number);
