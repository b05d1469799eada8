/* rdb_value: the other values of an RDB file: skips them, and names their types.
 *
 * It knows the types of Redis up to RDB version 15, those of Valkey up to 81, and all earlier ones. The meaning of a
 * type's number depends on the engine: `valkey` says that the file begins with VALKEY, not REDIS.
 *
 * Statuses are those of rdb_reader.h. Thread: any, on distinct objects. */
#ifndef BLOOMERY_RDB_VALUE_H
#define BLOOMERY_RDB_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "rdb_reader.h"

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

#endif
