/* rdb_module: the values of modules in RDB: each field follows an opcode. A dump, the result of DUMP, is a value
 * between its type and a footer: the version of RDB and a checksum.
 *
 * Statuses are those of rdb_reader.h; the text of RDB_BAD names the field `what`. Thread: any, on distinct objects. */
#ifndef BLOOMERY_RDB_MODULE_H
#define BLOOMERY_RDB_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rdb_reader.h"

/* A module type is nine characters of six bits, and the encoding version in the low ten. */
#define RDB_MODULE_VERSION(id) ((unsigned)((id)&0x3ff))
#define RDB_MODULE_TYPE(id)    ((id) & ~UINT64_C(0x3ff))

/* ---- reading ---- */

int rdb_module_unsigned(struct rdb_reader *reader, uint64_t *out, const char *what) __attribute__((warn_unused_result));
int rdb_module_double(struct rdb_reader *reader, double *out, const char *what) __attribute__((warn_unused_result));

/* Like rdb_string_pieces(). */
int rdb_module_string(struct rdb_reader *reader, uint64_t len, bytes_sink_fn *sink, void *ctx, const char *what)
    __attribute__((warn_unused_result));

/* Like rdb_string_copy(). */
int rdb_module_copy(struct rdb_reader *reader, unsigned char *buf, size_t max, uint64_t *len_out, const char *what)
    __attribute__((warn_unused_result));

int rdb_module_end(struct rdb_reader *reader) __attribute__((warn_unused_result));

/* ---- the result of DUMP ---- */

/* Whether this has the checksum of a DUMP of Redis, which zero bytes behind it do not change (rdb_close_dump()). */
bool rdb_is_dump(const void *data, size_t len);

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
unsigned char *rdb_put_field_string(unsigned char *at, const unsigned char *bytes, uint64_t len, bool compress);
unsigned char *rdb_put_field_string_head(unsigned char *at, uint64_t len); /* of one whose bytes the caller writes */

/* Ends the dump that begins at `dump`. */
unsigned char *rdb_put_dump_end(unsigned char *at, const unsigned char *dump, unsigned rdb_version);

#endif
