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
#pragma once

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

/* The fields of a module's value where an engine decodes RDB; the functions are below. */
struct rdb_fields {
    int (*number)(struct rdb_reader *reader, uint64_t *out, const char *what);
    int (*real)(struct rdb_reader *reader, double *out, const char *what);
    int (*string)(struct rdb_reader *reader, uint64_t *len, bytes_sink_fn *sink, void *ctx, const char *what);
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

/* A string of exactly *len bytes, handed to the sink in pieces. A nonzero status of the sink is passed on. With
 * RDB_ANY_LENGTH any string, whose length is in *len before the sink gets a piece; a compressed string may announce
 * more bytes than it has, which is an error at its end. */
#define RDB_ANY_LENGTH UINT64_MAX
int rdb_string_pieces(struct rdb_reader *reader, uint64_t *len, bytes_sink_fn *sink, void *ctx, const char *what)
    __attribute__((warn_unused_result));

/* Whether a string that has `got` bytes is the wanted one: RDB_OK, or RDB_BAD. */
int rdb_string_fits(const struct rdb_reader *reader, uint64_t got, uint64_t *len, const char *what)
    __attribute__((warn_unused_result));

/* ---- writing, to memory that is large enough ---- */

#define RDB_LENGTH_MAX_BYTES 9

/* Returns the end of the written bytes. */
unsigned char *rdb_put_length(unsigned char *at, uint64_t value);

/* ---- the other values of an RDB file: skips them, and names their types (rdb_value.c) ----
 *
 * It knows the types of Redis up to RDB version 15, those of Valkey up to 81, and all earlier ones. The meaning of a
 * type's number depends on the engine: `valkey` says that the file begins with VALKEY, not REDIS. */

#define RDB_TYPES           34  /* types of Redis are below this */
#define RDB_TYPE_MODULE_2   7   /* a module's value, each field after an opcode that states its kind */
#define RDB_OPCODE_KEY_META 243 /* before the type of a key: data of modules about the key */

bool rdb_knows_type(unsigned type, bool valkey);

/* "string", "list", ..., "value of an unknown type". */
const char *rdb_type_name(unsigned type, bool valkey);

/* The nine characters of a module type. */
#define RDB_MODULE_NAME_BYTES 10
void rdb_module_name(uint64_t id, char name[RDB_MODULE_NAME_BYTES]);

/* Templates of hashes: a hash that refers to one has as many values as it has fields. */
#define RDB_TEMPLATES_MAX 4096
struct rdb_templates {
    unsigned n;
    struct rdb_template {
        uint64_t id;
        uint64_t fields;
    } list[RDB_TEMPLATES_MAX];
};

/* Reads past a value of this type, from after the name of its key. `templates` are those of the file so far. */
int rdb_skip_value(struct rdb_reader *reader, unsigned type, bool valkey, const struct rdb_templates *templates)
    __attribute__((warn_unused_result));

/* Reads past the fields of a module, their end included. */
int rdb_skip_module_fields(struct rdb_reader *reader) __attribute__((warn_unused_result));

/* Reads past the data that follows RDB_OPCODE_KEY_META. */
int rdb_skip_key_meta(struct rdb_reader *reader) __attribute__((warn_unused_result));

/* Reads a template of a hash, after its opcode. */
int rdb_read_template(struct rdb_reader *reader, struct rdb_templates *templates) __attribute__((warn_unused_result));

/* ---- values of modules (rdb_value.c): each field follows an opcode. A dump, the result of DUMP, is a value between
 * its type and a footer: the version of RDB and a checksum ---- */

/* A module type is nine characters of six bits, and the encoding version in the low ten. */
#define RDB_MODULE_VERSION(id) ((unsigned)((id)&0x3ff))
#define RDB_MODULE_TYPE(id)    ((id) & ~UINT64_C(0x3ff))

int rdb_module_unsigned(struct rdb_reader *reader, uint64_t *out, const char *what) __attribute__((warn_unused_result));
int rdb_module_double(struct rdb_reader *reader, double *out, const char *what) __attribute__((warn_unused_result));

/* Like rdb_string_pieces(). */
int rdb_module_string(struct rdb_reader *reader, uint64_t *len, bytes_sink_fn *sink, void *ctx, const char *what)
    __attribute__((warn_unused_result));

/* Like rdb_string_copy(). */
int rdb_module_copy(struct rdb_reader *reader, unsigned char *buf, size_t max, uint64_t *len_out, const char *what)
    __attribute__((warn_unused_result));

int rdb_module_end(struct rdb_reader *reader) __attribute__((warn_unused_result));

/* Takes bytes of the bits of a layer of a filter in a value, from `offset` on. 0, or a status to pass on. */
typedef int rdb_bits_fn(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len);

/* ---- the result of DUMP ---- */

/* Whether this has the checksum of a DUMP of Redis, which zero bytes behind it do not change (rdb_close_dump()). */
bool rdb_is_dump(const void *data, size_t len);

/* The module type of its value, without the encoding version; 0: it is no dump, or the value of no module. */
uint64_t rdb_dump_type(const void *data, size_t len);

/* Makes a reader of a dump that stands after the type, which is in `id_out`. RDB_BAD also for a value of no module.
 * RDB's version says nothing about the value of a module: any is taken. */
int rdb_open_dump(struct rdb_reader *reader, const void *data, size_t len, uint64_t *id_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Called after the value has been read: whether the dump ends here. */
int rdb_close_dump(struct rdb_reader *reader) __attribute__((warn_unused_result));

/* ---- writing, to memory that is large enough; each returns the end of the written bytes ---- */

/* The version of RDB that our dumps state: the first with values of modules in this form. Every Redis and Valkey since
 * 4.0 takes it: it only must not be above their own version. */
#define RDB_DUMP_VERSION 8

#define RDB_MODULE_FIELD_MAX (1 + RDB_LENGTH_MAX_BYTES) /* bytes of a number, or of the head of a string */
#define RDB_DUMP_MAX         (1 + 9 + 1 + 2 + 8)        /* bytes of a dump apart from its fields */

unsigned char *rdb_put_module(unsigned char *at, uint64_t id);
unsigned char *rdb_put_unsigned(unsigned char *at, uint64_t value);
unsigned char *rdb_put_double(unsigned char *at, double value);
unsigned char *rdb_put_string_head(unsigned char *at, uint64_t len); /* the caller writes the bytes after it */

/* Ends the dump that begins at `dump`. */
unsigned char *rdb_put_dump_end(unsigned char *at, const unsigned char *dump);
