#include "rdb_file.h"

#include <string.h>

#include "errbuf.h"

/* Bytes that may stand in place of a key's type. */
enum opcode {
    OPCODE_RAM_LRU = 107, /* Redis Enterprise */
    OPCODE_SLOT_NUMBER = 121,
    OPCODE_HASH_TEMPLATE = 242, /* Redis */
    OPCODE_KEY_META = RDB_OPCODE_KEY_META,
    OPCODE_SLOT_IMPORT = 243, /* Valkey */
    OPCODE_SLOT_INFO = 244,
    OPCODE_FUNCTION = 245,
    OPCODE_FUNCTION_OLD = 246, /* release candidates of 7.0 */
    OPCODE_MODULE_AUX = 247,
    OPCODE_IDLE = 248,
    OPCODE_FREQ = 249,
    OPCODE_AUX = 250,
    OPCODE_RESIZE = 251,
    OPCODE_EXPIRE_MS = 252,
    OPCODE_EXPIRE_S = 253,
    OPCODE_SELECT = 254,
    OPCODE_END = 255,
};

#define OPCODES_FIRST OPCODE_HASH_TEMPLATE /* apart from those of Redis Enterprise */
#define WITH_CHECKSUM 5                    /* versions of RDB from here on */
#define HEADER_BYTES  9                    /* REDIS0011 or VALKEY080 */
#define END_OF_FILE   (-1)

struct walk {
    struct rdb_reader *reader;
    rdb_key_fn *on_key;
    void *ctx;
    struct rdb_summary *summary;
    uint64_t db;
    int64_t expires_ms; /* of the key that comes next */
    struct rdb_templates templates;
    bool in_key;
    int name_len; /* of the latest key, as much as a message shows */
    uint64_t key_db;
    char name[RDB_MAX_NAME];
};

/* ---- the header ---- */

static bool read_digits(const unsigned char *digits, size_t n, unsigned *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return false;
        *out = *out * 10 + (unsigned)(digits[i] - '0');
    }
    return true;
}

static int read_header(struct walk *walk)
{
    struct rdb_summary *summary = walk->summary;
    unsigned char header[HEADER_BYTES];
    TRY(rdb_bytes(walk->reader, header, sizeof(header), "the header of an RDB file"));
    if (memcmp(header, "REDIS", 5) == 0 && read_digits(header + 5, 4, &summary->version))
        return RDB_OK;
    summary->valkey = true;
    if (memcmp(header, "VALKEY", 6) == 0 && read_digits(header + 6, 3, &summary->version))
        return RDB_OK;
    return errbuf_fail(walk->reader->err, RDB_BAD,
                       "not an RDB file: it does not begin with REDIS or VALKEY and a version");
}

/* ---- contents between keys ---- */

static int skip_numbers(struct rdb_reader *reader, uint64_t n, const char *what)
{
    for (uint64_t ignored; n > 0; n--)
        TRY(rdb_length(reader, &ignored, what));
    return RDB_OK;
}

/* A fact about the file, and its value. */
static int read_aux(struct walk *walk)
{
    struct rdb_summary *summary = walk->summary;
    char name[16], value[sizeof(summary->engine) - 1];
    uint64_t name_len, len;
    TRY(rdb_string_copy(walk->reader, name, sizeof(name), &name_len, "an auxiliary field"));
    TRY(rdb_string_copy(walk->reader, value, sizeof(value), &len, "an auxiliary field"));
    if (len <= sizeof(value) && ((name_len == 9 && memcmp(name, "redis-ver", 9) == 0) ||
                                 (name_len == 10 && memcmp(name, "valkey-ver", 10) == 0))) {
        memcpy(summary->engine, value, (size_t)len);
        summary->engine[len] = '\0';
    }
    return RDB_OK;
}

static int read_expiry(struct walk *walk, enum opcode opcode)
{
    if (opcode == OPCODE_EXPIRE_MS) {
        uint64_t ms;
        int rc = rdb_u64(walk->reader, &ms, "a time to live");

        walk->expires_ms = (int64_t)ms;
        return rc;
    }
    uint32_t s;
    int rc = rdb_u32(walk->reader, &s, "a time to live");
    walk->expires_ms = (int64_t)(int32_t)s * 1000;
    return rc;
}

static int skip_slot_import(struct rdb_reader *reader)
{
    uint64_t ranges;
    TRY(rdb_string_skip(reader, "an import of slots"));
    TRY(rdb_length(reader, &ranges, "an import of slots"));
    for (; ranges > 0; ranges--)
        TRY(skip_numbers(reader, 2, "an import of slots"));
    return RDB_OK;
}

static int read_end(struct walk *walk)
{
    uint64_t crc = rdb_reader_crc(walk->reader), stored = 0;

    if (walk->summary->version >= WITH_CHECKSUM)
        TRY(rdb_u64(walk->reader, &stored, "the checksum"));
    walk->summary->checked = stored != 0;
    walk->summary->end = rdb_reader_offset(walk->reader);
    if (stored != 0 && stored != crc)
        return errbuf_fail(walk->reader->err, RDB_BAD, "the checksum of the file is wrong: it is damaged");
    return END_OF_FILE;
}

/* END_OF_FILE: it was the last. */
static int read_opcode(struct walk *walk, enum opcode opcode)
{
    struct rdb_reader *reader = walk->reader;
    unsigned char ignored;

    switch (opcode) {
    case OPCODE_RAM_LRU:
        return skip_numbers(reader, 1, "the last access of a key");
    case OPCODE_SLOT_NUMBER:
        return skip_numbers(reader, 1, "the slot of a key");
    case OPCODE_HASH_TEMPLATE:
        if (walk->summary->valkey)
            break;
        return rdb_read_template(reader, &walk->templates);
    case OPCODE_KEY_META:
        return walk->summary->valkey ? skip_slot_import(reader) : rdb_skip_key_meta(reader);
    case OPCODE_SLOT_INFO:
        return skip_numbers(reader, 3, "the sizes of a slot");
    case OPCODE_FUNCTION:
        return rdb_string_skip(reader, "a library of functions");
    case OPCODE_MODULE_AUX:
        TRY(skip_numbers(reader, 3, "a module's own data")); /* type, opcode, when */
        return rdb_skip_module_fields(reader);
    case OPCODE_IDLE:
        return skip_numbers(reader, 1, "an idle time");
    case OPCODE_FREQ:
        return rdb_byte(reader, &ignored, "a frequency");
    case OPCODE_AUX:
        return read_aux(walk);
    case OPCODE_RESIZE:
        return skip_numbers(reader, 2, "the sizes of a database");
    case OPCODE_EXPIRE_MS:
    case OPCODE_EXPIRE_S:
        return read_expiry(walk, opcode);
    case OPCODE_SELECT:
        return rdb_length(reader, &walk->db, "the number of a database");
    case OPCODE_END:
        return read_end(walk);
    case OPCODE_FUNCTION_OLD:
        break;
    }
    return rdb_bad(reader, "unknown opcode %u", opcode);
}

/* ---- keys ---- */

static int read_key(struct walk *walk, unsigned type)
{
    struct rdb_reader *reader = walk->reader;
    char module[RDB_MODULE_NAME_BYTES];
    struct rdb_key key = {.db = walk->db, .name = walk->name, .expires_ms = walk->expires_ms, .type = type};
    uint64_t len;
    if (!rdb_knows_type(type, walk->summary->valkey))
        return rdb_bad(reader, "values of type %u are not known", type);
    TRY(rdb_string_copy(reader, walk->name, sizeof(walk->name), &len, "the name of a key"));
    key.name_cut = len > sizeof(walk->name);
    key.name_len = key.name_cut ? sizeof(walk->name) : (size_t)len;
    walk->in_key = true;
    walk->name_len = (int)(key.name_len < 200 ? key.name_len : 200);
    walk->key_db = walk->db;
    key.kind = rdb_type_name(type, walk->summary->valkey);
    if (type == RDB_TYPE_MODULE_2) {
        TRY(rdb_length(reader, &key.module, "a module's type"));
        rdb_module_name(key.module, module);
        key.kind = module;
    }
    key.at = rdb_reader_offset(reader);
    TRY(walk->on_key(walk->ctx, &key));
    TRY(type == RDB_TYPE_MODULE_2 ? rdb_skip_module_fields(reader)
                                  : rdb_skip_value(reader, type, walk->summary->valkey, &walk->templates));
    walk->in_key = false;
    walk->expires_ms = 0;
    walk->summary->keys++;
    return RDB_OK;
}

int rdb_file_walk(struct rdb_reader *reader, rdb_key_fn *on_key, void *ctx, struct rdb_summary *summary_out)
{
    struct walk walk = {.reader = reader, .on_key = on_key, .ctx = ctx, .summary = summary_out};
    int rc;

    *summary_out = (struct rdb_summary){0};
    rc = read_header(&walk);
    while (rc == RDB_OK) {
        unsigned char type;

        rc = rdb_byte(reader, &type, "the file, before its end");
        STEP(rc, type >= OPCODES_FIRST || type == OPCODE_RAM_LRU || type == OPCODE_SLOT_NUMBER
                     ? read_opcode(&walk, (enum opcode)type)
                     : read_key(&walk, type));
    }
    if (rc == RDB_BAD && walk.name_len > 0)
        errbuf_prefix(reader->err, "%s the key '%.*s' of database %llu", walk.in_key ? "in" : "after", walk.name_len,
                      walk.name, (unsigned long long)walk.key_db);
    return rc == END_OF_FILE ? RDB_OK : rc;
}
