#include "rdb_module.h"

#include "bytes.h"
#include "crc64.h"
#include "rdb_value.h"
#include "errbuf.h"

/* Each field follows one of these. */
enum opcode { OPCODE_END = 0, OPCODE_UNSIGNED = 2, OPCODE_DOUBLE = 4, OPCODE_STRING = 5 };

#define CRC_BYTES    8
#define FOOTER_BYTES (2 + CRC_BYTES)

static int read_opcode(struct rdb_reader *reader, enum opcode opcode, const char *what)
{
    uint64_t found;
    TRY(rdb_length(reader, &found, what));
    if (found != opcode)
        return rdb_bad(reader, "%s: opcode %llu, expected %d", what, (unsigned long long)found, (int)opcode);
    return RDB_OK;
}

int rdb_module_unsigned(struct rdb_reader *reader, uint64_t *out, const char *what)
{
    if (reader->fields)
        return reader->fields->number(reader, out, what);
    TRY(read_opcode(reader, OPCODE_UNSIGNED, what));
    return rdb_length(reader, out, what);
}

int rdb_module_double(struct rdb_reader *reader, double *out, const char *what)
{
    if (reader->fields)
        return reader->fields->real(reader, out, what);
    TRY(read_opcode(reader, OPCODE_DOUBLE, what));
    return rdb_double(reader, out, what);
}

int rdb_module_string(struct rdb_reader *reader, uint64_t len, bytes_sink_fn *sink, void *ctx, const char *what)
{
    if (reader->fields)
        return reader->fields->string(reader, len, sink, ctx, what);
    TRY(read_opcode(reader, OPCODE_STRING, what));
    return rdb_string_pieces(reader, len, sink, ctx, what);
}

int rdb_module_copy(struct rdb_reader *reader, unsigned char *buf, size_t max, uint64_t *len_out, const char *what)
{
    TRY(read_opcode(reader, OPCODE_STRING, what));
    return rdb_string_copy(reader, buf, max, len_out, what);
}

int rdb_module_end(struct rdb_reader *reader)
{
    return reader->fields ? RDB_OK : read_opcode(reader, OPCODE_END, "the end of the value");
}

/* ---- the result of DUMP ---- */

bool rdb_is_dump(const void *data, size_t len)
{
    return len > FOOTER_BYTES &&
           le64_get((const unsigned char *)data + len - CRC_BYTES) == crc64(0, data, len - CRC_BYTES);
}

int rdb_open_dump(struct rdb_reader *reader, const void *data, size_t len, uint64_t *id_out, struct errbuf *err)
{
    unsigned char type;
    if (len <= FOOTER_BYTES) {
        errbuf_set(err, "%zu bytes are too few for a dump", len);
        return RDB_BAD;
    }
    rdb_reader_memory(reader, data, len - FOOTER_BYTES, err);
    TRY(rdb_byte(reader, &type, "the type"));
    if (type == RDB_OPCODE_KEY_META) {
        TRY(rdb_skip_key_meta(reader));
        TRY(rdb_byte(reader, &type, "the type"));
    }
    if (type == RDB_TYPE_MODULE_2)
        return rdb_length(reader, id_out, "the module type");
    errbuf_set(err, "the value is a %s, not a Bloom filter", rdb_type_name(type, false));
    return RDB_BAD;
}

int rdb_close_dump(struct rdb_reader *reader)
{
    bool more = false;
    int rc = rdb_more(reader, &more);
    return rc == RDB_OK && more ? rdb_bad(reader, "the value ends before the dump") : rc;
}

/* ---- writing ---- */

unsigned char *rdb_put_module(unsigned char *at, uint64_t id)
{
    *at++ = RDB_TYPE_MODULE_2;
    return rdb_put_length(at, id);
}

unsigned char *rdb_put_unsigned(unsigned char *at, uint64_t value)
{
    *at++ = OPCODE_UNSIGNED;
    return rdb_put_length(at, value);
}

unsigned char *rdb_put_double(unsigned char *at, double value)
{
    *at++ = OPCODE_DOUBLE;
    return le_double_put(at, value);
}

unsigned char *rdb_put_field_string(unsigned char *at, const unsigned char *bytes, uint64_t len, bool compress)
{
    *at++ = OPCODE_STRING;
    return rdb_put_string(at, bytes, len, compress);
}

unsigned char *rdb_put_field_string_head(unsigned char *at, uint64_t len)
{
    *at++ = OPCODE_STRING;
    return rdb_put_length(at, len);
}

unsigned char *rdb_put_dump_end(unsigned char *at, const unsigned char *dump, unsigned rdb_version)
{
    *at++ = OPCODE_END;
    at = le16_put(at, (uint16_t)rdb_version);
    return le64_put(at, crc64(0, dump, (size_t)(at - dump)));
}
