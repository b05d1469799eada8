/* rdb_reader: the primitives of Redis's RDB encoding (lengths, strings, numbers), from memory or from a source that
 * hands out bytes piece by piece.
 *
 * It allocates nothing, for any announced length: strings are copied into bounded memory, handed out in pieces, or
 * skipped.
 *
 * Errors: 0; RDB_BAD, with a text that names the field and the place; or the status of the source. After an error the
 * reader cannot read on. `what` is always the name of a field, for that text.
 *
 * Thread: any, on distinct objects. */
#ifndef BLOOMERY_RDB_READER_H
#define BLOOMERY_RDB_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "lzf.h"

enum rdb_status {
    RDB_OK = 0,
    RDB_BAD = 1, /* not RDB, or damaged */
};

/* Up to `len` bytes to `buf`; 0 in `n_out` at the end. 0, or -errno, which is passed on. */
typedef int rdb_source_fn(void *ctx, void *buf, size_t len, size_t *n_out);

struct rdb_reader;

/* The fields of a module's value where an engine decodes RDB; the functions are those of rdb_module.h. */
struct rdb_fields {
    int (*number)(struct rdb_reader *reader, uint64_t *out, const char *what);
    int (*real)(struct rdb_reader *reader, double *out, const char *what);
    int (*string)(struct rdb_reader *reader, uint64_t len, bytes_sink_fn *sink, void *ctx, const char *what);
};

/* In the caller's storage; the fields are internal. */
struct rdb_reader {
    const struct rdb_fields *fields; /* NULL: the reader decodes by itself */
    rdb_source_fn *source;           /* NULL: all input is in memory */
    void *ctx;
    unsigned char *buffer;
    size_t buffer_size;
    const unsigned char *at;
    const unsigned char *end;
    const unsigned char *summed; /* the bytes before it are in `crc` */
    uint64_t behind;             /* offset of `end` in all bytes that were read */
    uint64_t crc;
    struct errbuf *err;
};

/* Reads the `len` bytes at `data`, which are borrowed. */
void rdb_reader_memory(struct rdb_reader *reader, const void *data, size_t len, struct errbuf *err);

/* Reads the bytes of the source, through a buffer of the caller's. `offset` is the position of the source, for texts
 * and rdb_reader_offset(). */
void rdb_reader_stream(struct rdb_reader *reader, rdb_source_fn *source, void *ctx, void *buffer, size_t buffer_size,
                       uint64_t offset, struct errbuf *err);

/* Reads the fields of one value of a module from an engine, and nothing else. */
void rdb_reader_fields(struct rdb_reader *reader, const struct rdb_fields *fields, void *ctx, struct errbuf *err);

uint64_t rdb_reader_offset(const struct rdb_reader *reader); /* of the next byte */
uint64_t rdb_reader_crc(struct rdb_reader *reader);          /* crc64() of all bytes that have been read */

/* Sets the error's text, "<what> ... at byte N" (without a place if an engine reads), and returns RDB_BAD. */
int rdb_bad(const struct rdb_reader *reader, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Whether there is another byte: 0 and the answer, or the status of the source. */
int rdb_more(struct rdb_reader *reader, bool *more_out) __attribute__((warn_unused_result));

int rdb_bytes(struct rdb_reader *reader, void *out, size_t len, const char *what) __attribute__((warn_unused_result));
int rdb_skip(struct rdb_reader *reader, uint64_t len, const char *what) __attribute__((warn_unused_result));
int rdb_byte(struct rdb_reader *reader, unsigned char *out, const char *what) __attribute__((warn_unused_result));
int rdb_u32(struct rdb_reader *reader, uint32_t *out, const char *what) __attribute__((warn_unused_result));
int rdb_u64(struct rdb_reader *reader, uint64_t *out, const char *what) __attribute__((warn_unused_result));
int rdb_double(struct rdb_reader *reader, double *out, const char *what) __attribute__((warn_unused_result));

/* A length, or another number in that form; the mark of a specially encoded string is RDB_BAD. */
int rdb_length(struct rdb_reader *reader, uint64_t *out, const char *what) __attribute__((warn_unused_result));

/* ---- strings: plain, a small number, or compressed ---- */

int rdb_string_skip(struct rdb_reader *reader, const char *what) __attribute__((warn_unused_result));

/* The string's length, and as much of it as fits into `max` bytes; the rest is skipped. */
int rdb_string_copy(struct rdb_reader *reader, void *buf, size_t max, uint64_t *len_out, const char *what)
    __attribute__((warn_unused_result));

/* A string of exactly `len` bytes, handed to the sink in pieces. A nonzero status of the sink is passed on. */
int rdb_string_pieces(struct rdb_reader *reader, uint64_t len, bytes_sink_fn *sink, void *ctx, const char *what)
    __attribute__((warn_unused_result));

/* ---- writing, to memory that is large enough ---- */

#define RDB_LENGTH_MAX_BYTES 9

/* Each returns the end of the written bytes. */
unsigned char *rdb_put_length(unsigned char *at, uint64_t value);

/* A string; compressed if the caller asks for it and it makes the string smaller. Never longer than its length and the
 * string. */
unsigned char *rdb_put_string(unsigned char *at, const unsigned char *bytes, uint64_t len, bool compress);

#endif
