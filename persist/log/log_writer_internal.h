/* Shared between log_writer.c (frames) and log_writer_segments.c (the files they are in) only.
 *
 * A segment's life:
 *
 *     a number is taken                         being made; as a draft if it gets frames before its name
 *     its header and these frames are synced,
 *     and then its name                         current: frames are appended
 *     it is full, or a save begins              closed
 *     a save has its changes                    deleted
 *     an operation on it fails                  abandoned: never written again; a later one has its frames
 */
#ifndef BLOOMERY_LOG_WRITER_INTERNAL_H
#define BLOOMERY_LOG_WRITER_INTERNAL_H

#include "log_frame.h"
#include "log_writer.h"

#define ZEROS_BYTES (256u << 10)

struct open_segment {
    int fd; /* -1: none */
    struct log_header header;
    uint64_t offset; /* where the next frame goes */
    uint64_t filled; /* the file is zeros or frames up to here */
};

struct kept_frames {
    struct log_bytes bytes; /* the frames after `synced`, a struct kept_head and the payload each; then the next one */
    size_t frames;          /* bytes of the frames: the next one is behind them, if it has been begun */
    size_t carried;         /* bytes that are of earlier processes */
};

struct log_writer {
    const struct fsops *fs;
    struct log_writer_options options; /* `dir` is a copy; defaults in place of 0; next_segment: the process */
    struct path log_dir;
    struct open_segment segment;
    uint64_t next_segment;
    uint64_t previous; /* the last segment that was current, of this process or an earlier one; 0: none */
    bool dir_is_durable;
    bool failed;
    int error; /* of the failure */
    bool unsure;

    uint64_t sequence; /* of the last frame appended */
    uint64_t synced;
    uint64_t marked; /* the log itself says that it is synced up to this frame */
    uint64_t written;
    struct kept_frames kept;
    unsigned char *zeros;
};

/* The process whose frames a segment has. */
struct origin {
    uint64_t process;
    uint64_t generation;
    bool ends_process;
};

/* The path of a file in log/. */
void writer_path(const struct log_writer *writer, const char *name, struct path *path);

void writer_close_segment(struct log_writer *writer);

/* Abandons the segment, because its contents on the disk are unknown. Returns `rc`, with a text. */
int writer_fail(struct log_writer *writer, int rc, const char *what, struct errbuf *err);

/* Writes zeros ahead, so that there is room for a frame of `len` bytes. 0 or -errno. */
int writer_make_room(struct log_writer *writer, uint64_t len);

/* Creates and syncs log/. 0 or -errno. */
int writer_make_log_dir(struct log_writer *writer);

/* Fills in the header of the next segment. */
void writer_number_segment(struct log_writer *writer, const struct origin *origin);

/* Creates the file at this path, with its header. 0 or -errno. */
int writer_open_segment(struct log_writer *writer, const char *path);

/* Whether the segment that is being written is the file of its name, and whole. It is lost also when its name leads to
 * another file, or when it was cut; a file that cannot be examined counts as present. */
bool writer_current_is_there(const struct log_writer *writer);

/* Begins an empty segment. 0, or -errno: the log has failed. */
int writer_begin_segment(struct log_writer *writer, struct errbuf *err);

#endif
