/* Most types are a number of entries and, for each entry, a few fields, one after the other. So a type is a row: the
 * fields before the number, and the fields of an entry, a letter each. Types that do not fit into a row (streams,
 * arrays, modules) have a function. */
#include "rdb_reader.h"

#include <string.h>

#include "errbuf.h"
#include "bytes.h"
#include "crc64.h"

/* A field of a type:
 *   s  string             l  length, or another number in that form
 *   8  eight bytes: a double, or a time in milliseconds
 *   t  a double as text: one byte for its length, or for a value without text
 *   x  16 bytes: the id of an entry of a stream
 *   #  a length: this many times the letters in the parentheses that follow */
struct type {
    const char *name;
    const char *fields; /* NULL: skip() */
    int (*skip)(struct rdb_reader *reader, unsigned type, const struct rdb_templates *templates);
};

static int skip_array(struct rdb_reader *reader, unsigned type, const struct rdb_templates *templates);
static int skip_module(struct rdb_reader *reader, unsigned type, const struct rdb_templates *templates);
static int skip_template_array(struct rdb_reader *reader, unsigned type, const struct rdb_templates *templates);

/* Of streams: listpacks by their first id; number of entries, last id; groups with their pending entries and consumers.
 * Later versions add ids and counters, and the state of producers, so that an entry sent twice is stored once. */
#define STREAM_HEAD  "#(ss)lll"
#define STREAM_IDS   "lllll"                       /* first id, largest deleted id, number of entries ever */
#define GROUP(times) "slll#(x8l)#(s" times "#(x))" /* name, last delivered id, number of read entries */
#define PRODUCERS    "ll#(s#(sll))ll"

static const struct type redis_types[RDB_TYPES] = {
    [0] = {"string", "s", NULL},
    [1] = {"list", "#(s)", NULL},
    [2] = {"set", "#(s)", NULL},
    [3] = {"sorted set", "#(st)", NULL},
    [4] = {"hash", "#(ss)", NULL},
    [5] = {"sorted set", "#(s8)", NULL},
    [RDB_TYPE_MODULE_2] = {"module's value", NULL, skip_module},
    [9] = {"hash", "s", NULL},                                            /* zipmap */
    [10] = {"list", "s", NULL},                                           /* ziplist */
    [11] = {"set", "s", NULL},                                            /* intset */
    [12] = {"sorted set", "s", NULL},                                     /* ziplist */
    [13] = {"hash", "s", NULL},                                           /* ziplist */
    [14] = {"list", "#(s)", NULL},                                        /* quicklist of ziplists */
    [15] = {"stream", STREAM_HEAD "#(sll#(x8l)#(s8#(x)))", NULL},         /* Redis 5.0 */
    [16] = {"hash", "s", NULL},                                           /* listpack */
    [17] = {"sorted set", "s", NULL},                                     /* listpack */
    [18] = {"list", "#(ls)", NULL},                                       /* quicklist of plain nodes and listpacks */
    [19] = {"stream", STREAM_HEAD STREAM_IDS "#(" GROUP("8") ")", NULL},  /* 7.0 */
    [20] = {"set", "s", NULL},                                            /* listpack */
    [21] = {"stream", STREAM_HEAD STREAM_IDS "#(" GROUP("88") ")", NULL}, /* 7.2 */
    [22] = {"hash", "#(lss)", NULL},  /* with times of fields, release candidates of 7.4 */
    [23] = {"hash", "s", NULL},       /* the same, listpack */
    [24] = {"hash", "8#(lss)", NULL}, /* 7.4 */
    [25] = {"hash", "8s", NULL},      /* the same, listpack */
    [26] = {"stream", STREAM_HEAD STREAM_IDS "#(" GROUP("88") ")" PRODUCERS, NULL},     /* 8.6 */
    [27] = {"stream", STREAM_HEAD STREAM_IDS "#(" GROUP("88") "#(x))" PRODUCERS, NULL}, /* 8.8, with refused entries */
    [28] = {"array", NULL, skip_array},                                                 /* 8.8 */
    [30] = {"hash", "s", NULL},                 /* listpack that refers to a template, 8.10 */
    [32] = {"hash", NULL, skip_template_array}, /* values that refer to a template */
    [33] = {"rate limiter", "l", NULL},         /* GCRA */
};

/* Types that differ in Valkey. */
static const struct type valkey_hash_2 = {"hash", "#(ss8)", NULL}; /* with times of fields */
#define VALKEY_HASH_2    22
#define VALKEY_FIRST_OWN 22 /* types from here on are Valkey's own, or not known */

static const struct type *find_type(unsigned type, bool valkey)
{
    if (valkey && type >= VALKEY_FIRST_OWN)
        return type == VALKEY_HASH_2 ? &valkey_hash_2 : NULL;
    return type < RDB_TYPES && redis_types[type].name ? &redis_types[type] : NULL;
}

bool rdb_knows_type(unsigned type, bool valkey)
{
    return find_type(type, valkey) != NULL;
}

const char *rdb_type_name(unsigned type, bool valkey)
{
    const struct type *row = find_type(type, valkey);

    if (row)
        return row->name;
    return !valkey && (type == 29 || type == 31) ? "hash" : "value of an unknown type"; /* these are in dumps only */
}

void rdb_module_name(uint64_t id, char name[RDB_MODULE_NAME_BYTES])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    for (unsigned i = 0; i < RDB_MODULE_NAME_BYTES - 1; i++)
        name[i] = letters[id >> (58 - 6 * i) & 63];
    name[RDB_MODULE_NAME_BYTES - 1] = '\0';
}

/* ---- rows ---- */

static int skip_number(struct rdb_reader *reader, const char *what)
{
    uint64_t ignored;

    return rdb_length(reader, &ignored, what);
}

static int skip_text_double(struct rdb_reader *reader)
{
    unsigned char len;

    TRY(rdb_byte(reader, &len, "a score"));
    return len >= 253 ? RDB_OK : rdb_skip(reader, len, "a score"); /* these are not a number and the infinities */
}

static int skip_field(struct rdb_reader *reader, char field)
{
    switch (field) {
    case 's':
        return rdb_string_skip(reader, "a string of a value");
    case 'l':
        return skip_number(reader, "a number of a value");
    case '8':
        return rdb_skip(reader, 8, "a number of a value");
    case 'x':
        return rdb_skip(reader, 16, "an id of a value");
    default:
        return skip_text_double(reader);
    }
}

static int skip_fields(struct rdb_reader *reader, const char *fields, const char *end)
{
    for (const char *field = fields; field < end; field++) {
        uint64_t entries;
        int depth = 0;

        if (*field != '#') {
            TRY(skip_field(reader, *field));
            continue;
        }
        const char *group = field + 2;
        do {
            field++;
            depth += (*field == '(') - (*field == ')');
        } while (depth > 0);
        TRY(rdb_length(reader, &entries, "the number of entries of a value"));
        for (; entries > 0; entries--)
            TRY(skip_fields(reader, group, field));
    }
    return RDB_OK;
}

int rdb_skip_value(struct rdb_reader *reader, unsigned type, bool valkey, const struct rdb_templates *templates)
{
    const struct type *row = find_type(type, valkey);

    if (!row)
        return rdb_bad(reader, "values of type %u are not known", type);
    return row->fields ? skip_fields(reader, row->fields, row->fields + strlen(row->fields))
                       : row->skip(reader, type, templates);
}

/* ---- arrays ---- */

enum array_tag { ARRAY_STRING = 0, ARRAY_INTEGER = 1, ARRAY_DOUBLE = 2, ARRAY_SMALL_STRING = 3 };

static int skip_array(struct rdb_reader *reader, unsigned type, const struct rdb_templates *templates)
{
    uint64_t n, cursor, tag;

    (void)type, (void)templates;
    TRY(rdb_length(reader, &n, "the number of elements of an array"));
    TRY(rdb_length(reader, &cursor, "the cursor of an array"));
    if (cursor > 1)
        return rdb_bad(reader, "the cursor of an array: %llu is neither 0 nor 1", (unsigned long long)cursor);
    if (cursor == 1)
        TRY(skip_number(reader, "the cursor of an array"));
    for (; n > 0; n--) {
        TRY(skip_number(reader, "an index of an array"));
        TRY(rdb_length(reader, &tag, "an element of an array"));
        if (tag == ARRAY_STRING || tag == ARRAY_SMALL_STRING)
            TRY(rdb_string_skip(reader, "an element of an array"));
        else if (tag == ARRAY_INTEGER || tag == ARRAY_DOUBLE)
            TRY(rdb_skip(reader, 8, "an element of an array"));
        else
            return rdb_bad(reader, "an element of an array: tag %llu is not known", (unsigned long long)tag);
    }
    return RDB_OK;
}

/* ---- templates of hashes ---- */

int rdb_read_template(struct rdb_reader *reader, struct rdb_templates *templates)
{
    struct rdb_template template;

    TRY(rdb_length(reader, &template.id, "a template of hashes"));
    TRY(rdb_length(reader, &template.fields, "a template of hashes"));
    for (uint64_t i = 0; i < template.fields; i++)
        TRY(rdb_string_skip(reader, "a template of hashes"));
    if (templates->n == RDB_TEMPLATES_MAX)
        return rdb_bad(reader, "more than %d templates of hashes", RDB_TEMPLATES_MAX);
    templates->list[templates->n++] = template;
    return RDB_OK;
}

static int skip_template_array(struct rdb_reader *reader, unsigned type, const struct rdb_templates *templates)
{
    uint64_t id;

    (void)type;
    TRY(rdb_length(reader, &id, "a hash's template"));
    for (unsigned i = 0; i < templates->n; i++) {
        if (templates->list[i].id != id)
            continue;
        for (uint64_t n = templates->list[i].fields; n > 0; n--)
            TRY(rdb_string_skip(reader, "a value of a hash"));
        return RDB_OK;
    }
    return rdb_bad(reader, "a hash's template: there is none with the number %llu", (unsigned long long)id);
}

/* ---- modules ---- */

/* Each field of a value follows one of these. */
enum module_opcode {
    MODULE_END = 0,
    MODULE_SIGNED = 1,
    MODULE_UNSIGNED = 2,
    MODULE_FLOAT = 3,
    MODULE_DOUBLE = 4,
    MODULE_STRING = 5,
};

int rdb_skip_module_fields(struct rdb_reader *reader)
{
    uint64_t opcode;

    for (;;) {
        TRY(rdb_length(reader, &opcode, "a module's value"));
        switch (opcode) {
        case MODULE_END:
            return RDB_OK;
        case MODULE_SIGNED:
        case MODULE_UNSIGNED:
            TRY(skip_number(reader, "a number in a module's value"));
            break;
        case MODULE_FLOAT:
            TRY(rdb_skip(reader, 4, "a number in a module's value"));
            break;
        case MODULE_DOUBLE:
            TRY(rdb_skip(reader, 8, "a number in a module's value"));
            break;
        case MODULE_STRING:
            TRY(rdb_string_skip(reader, "a string in a module's value"));
            break;
        default:
            return rdb_bad(reader, "a module's value: opcode %llu is not known", (unsigned long long)opcode);
        }
    }
}

static int skip_module(struct rdb_reader *reader, unsigned type, const struct rdb_templates *templates)
{
    (void)type, (void)templates;
    TRY(skip_number(reader, "a module's type"));
    return rdb_skip_module_fields(reader);
}

int rdb_skip_key_meta(struct rdb_reader *reader)
{
    uint64_t classes;

    TRY(rdb_length(reader, &classes, "the number of a key's notes"));
    for (; classes > 0; classes--) {
        TRY(rdb_skip(reader, 4, "a key's notes")); /* the id of their class */
        TRY(rdb_skip_module_fields(reader));
    }
    return RDB_OK;
}

/* ---- values of modules ---- */

#define CRC_BYTES    8
#define FOOTER_BYTES (2 + CRC_BYTES)

static int read_opcode(struct rdb_reader *reader, enum module_opcode opcode, const char *what)
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
    TRY(read_opcode(reader, MODULE_UNSIGNED, what));
    return rdb_length(reader, out, what);
}

int rdb_module_double(struct rdb_reader *reader, double *out, const char *what)
{
    if (reader->fields)
        return reader->fields->real(reader, out, what);
    TRY(read_opcode(reader, MODULE_DOUBLE, what));
    return rdb_double(reader, out, what);
}

int rdb_module_string(struct rdb_reader *reader, uint64_t *len, bytes_sink_fn *sink, void *ctx, const char *what)
{
    if (reader->fields)
        return reader->fields->string(reader, len, sink, ctx, what);
    TRY(read_opcode(reader, MODULE_STRING, what));
    return rdb_string_pieces(reader, len, sink, ctx, what);
}

int rdb_module_copy(struct rdb_reader *reader, unsigned char *buf, size_t max, uint64_t *len_out, const char *what)
{
    TRY(read_opcode(reader, MODULE_STRING, what));
    return rdb_string_copy(reader, buf, max, len_out, what);
}

int rdb_module_end(struct rdb_reader *reader)
{
    return reader->fields ? RDB_OK : read_opcode(reader, MODULE_END, "the end of the value");
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
    if (len <= FOOTER_BYTES)
        return errbuf_fail(err, RDB_BAD, "%zu bytes are too few for a dump", len);
    rdb_reader_memory(reader, data, len - FOOTER_BYTES, err);
    TRY(rdb_byte(reader, &type, "the type"));
    if (type == RDB_OPCODE_KEY_META) {
        TRY(rdb_skip_key_meta(reader));
        TRY(rdb_byte(reader, &type, "the type"));
    }
    if (type == RDB_TYPE_MODULE_2)
        return rdb_length(reader, id_out, "the module type");
    return errbuf_fail(err, RDB_BAD, "the value is a %s, not a Bloom filter", rdb_type_name(type, false));
}

uint64_t rdb_dump_type(const void *data, size_t len)
{
    struct errbuf err = {""};
    struct rdb_reader reader;
    uint64_t id;

    return rdb_is_dump(data, len) && rdb_open_dump(&reader, data, len, &id, &err) == RDB_OK ? RDB_MODULE_TYPE(id) : 0;
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
    *at++ = MODULE_UNSIGNED;
    return rdb_put_length(at, value);
}

unsigned char *rdb_put_double(unsigned char *at, double value)
{
    *at++ = MODULE_DOUBLE;
    return le_double_put(at, value);
}

unsigned char *rdb_put_string_head(unsigned char *at, uint64_t len)
{
    *at++ = MODULE_STRING;
    return rdb_put_length(at, len);
}

unsigned char *rdb_put_dump_end(unsigned char *at, const unsigned char *dump)
{
    *at++ = MODULE_END;
    at = le16_put(at, RDB_DUMP_VERSION);
    return le64_put(at, crc64(0, dump, (size_t)(at - dump)));
}
