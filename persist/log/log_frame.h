/* log_frame: the frames of a log segment and the segment's header, memory to memory; docs/FORMAT.md section 11.
 *
 * A frame is valid at one place of one segment only: its number and the segment's salt are in the seed of its checksum.
 * So bytes of an earlier file, or bytes that a broken disk has put in another place, are never taken for a frame.
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "log_payload.h"

#define LOG_HEADER_BYTES   4096 /* of a segment; frames follow */
#define LOG_FRAME_HEAD_MAX 32
#define LOG_PAYLOAD_MAX    (UINT32_C(1) << 30)
#define LOG_FILE_NAME      32 /* bytes of a file's name, the NUL included */

/* ---- segments ---- */

struct log_header {
    uint64_t number; /* of the segment, as in its name */
    uint64_t first;  /* sequence number of its first frame. All frames before it are on the disk, in earlier segments;
                      * frames of earlier segments from this number on are void */
    uint64_t salt;
    uint64_t process;    /* that made its frames; not above the number of that process's first segment */
    uint64_t generation; /* the store's highest number when that process started (docs/FORMAT.md) */
    uint64_t sealed;     /* frames up to this number were in it and synced when it got its name; 0: none */
    uint64_t previous;   /* number of the segment before it, which has the last frames before `first`; 0: not known */
    bool ends_process;   /* it has the pending records (log_pending.h) of that process, too: the last of its records */
    bool old;            /* decoded: its frames are of LOG_VERSION_OLD. None is written */
};

void log_header_encode(const struct log_header *header, unsigned char bytes_out[LOG_HEADER_BYTES]);

/* LOG_OK, LOG_DAMAGED or LOG_NEWER. */
int log_header_decode(const unsigned char bytes[LOG_HEADER_BYTES], struct log_header *header_out, struct errbuf *err);

/* The names of the log's files: a number, as "00000001", and their kind. And back: 0 if it is no such name. */
#define LOG_SEGMENT ".log"
#define LOG_DRAFT   ".log.new" /* a segment that is being made */
#define LOG_PENDING ".pending" /* log_pending.h; the number is that of the process */
void log_file_name(uint64_t number, const char *kind, char name_out[LOG_FILE_NAME]);
uint64_t log_file_number(const char *name, const char *kind);

/* ---- frames ---- */

/* A frame without a payload is a mark: it has the number of the next frame, and states only how far the log is
 * synced; with has_controls also that its process has ended, and has no pending records. */
struct log_frame {
    uint64_t sequence;
    uint64_t synced;   /* frames up to this number were on the disk when this one was written; below `sequence` */
    bool has_controls; /* the payload begins with control records */
    const unsigned char *payload;
    size_t payload_len; /* at most LOG_PAYLOAD_MAX */
};

/* Writes the bytes before the payload; returns their length. The frame is these bytes and the payload. */
size_t log_frame_head(const struct log_frame *frame, uint64_t salt, unsigned char head_out[LOG_FRAME_HEAD_MAX]);

/* log_frame_head() for a payload that comes in pieces. The caller fills in the checksum, the first four bytes: the low
 * half of the XXH3-64 of the payload with this seed. */
size_t log_frame_open(const struct log_frame *frame, uint64_t salt, unsigned char head_out[LOG_FRAME_HEAD_MAX],
                      uint64_t *seed_out);

/* The frame with this sequence number at the beginning of bytes[0..len): its length in bytes, or 0 if it is missing. */
size_t log_frame_parse(const unsigned char *bytes, size_t len, uint64_t salt, uint64_t sequence,
                       struct log_frame *frame_out);

/* The least distance from an invalid frame to the next possible one, at most `len`. The head of a long frame has its
 * own checksum. If the head is valid, no frame can begin within the payload, although some of its bytes may look like a
 * short frame. Otherwise 1. */
size_t log_frame_skip(const unsigned char *bytes, size_t len, uint64_t salt, uint64_t sequence);

/* The first valid frame at or after `from` whose number is above `after`: its offset, and its length in `len_out`; or
 * `len` if there is none. Looks at every offset; zeros cost next to nothing. */
size_t log_frame_find(const unsigned char *bytes, size_t len, size_t from, uint64_t salt, uint64_t after,
                      struct log_frame *frame_out, size_t *len_out);
