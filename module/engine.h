/* engine: the interface of Redis and Valkey to their modules, as far as this module uses it. These are our own
 * declarations of a binary interface: names, numbers and the order of fields are the engine's. engine.def has the
 * functions.
 *
 * An engine is known by the functions that it has, never by its version.
 *
 * Lifetime: engine_load() once, when the module is loaded; `engine` does not change afterwards. Thread: the engine's
 * main thread, or the process that it has forked to save; Free() any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first field of every context finds functions: 0 if there is one of that name. */
struct engine_ctx {
    int (*get_api)(const char *name, void *function_out);
};

struct engine_command;
struct engine_digest;
struct engine_io;
struct engine_key;
struct engine_server_info;
struct engine_string;
struct engine_type;

/* ---- numbers ---- */

enum { ENGINE_OK = 0, ENGINE_ERR = 1, ENGINE_API_VERSION = 1 };

enum { ENGINE_READ = 1 << 0, ENGINE_WRITE = 1 << 1 }; /* OpenKey() */

enum { ENGINE_KEY_EMPTY = 0, ENGINE_KEY_MODULE = 6 }; /* KeyType() */

enum { /* SetModuleOptions() */
       ENGINE_HANDLES_IO_ERRORS = 1 << 0,
       ENGINE_SIGNALS_BY_HAND = 1 << 1,
       ENGINE_HANDLES_ASYNC_LOAD = 1 << 2,
       ENGINE_HANDLES_SLOT_MIGRATION = 1 << 5, /* Valkey's */
};

enum { /* GetContextFlags() */
       ENGINE_CTX_REPLICA = 1 << 3,
       ENGINE_CTX_CLUSTER = 1 << 5,
       ENGINE_CTX_EVICTS = 1 << 9, /* maxmemory is set, with a policy that removes keys */
       ENGINE_CTX_OOM = 1 << 10,
       ENGINE_CTX_REPLICATED = 1 << 12,
       ENGINE_CTX_LOADING = 1 << 13,
       ENGINE_CTX_SYNCING = 1 << 16, /* it gets the values of its primary */
       ENGINE_CTX_RESP3 = 1 << 22,
};

enum { ENGINE_NOTIFY_MODULE = 1 << 13 };

enum { ENGINE_CONFIG_MEMORY = 1 << 7 };

/* In the format of Replicate(): for the engine's log alone, or for replicas alone. */
#define ENGINE_LOG_ONLY      "R"
#define ENGINE_REPLICAS_ONLY "A"

#define ENGINE_WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"

/* ---- callbacks ---- */

typedef int (*engine_command_fn)(struct engine_ctx *ctx, struct engine_string **argv, int argc);

typedef void (*engine_timer_fn)(struct engine_ctx *ctx, void *data);

typedef long long (*engine_get_number_fn)(const char *name, void *row);
typedef int (*engine_set_number_fn)(const char *name, long long value, void *row, struct engine_string **error);
typedef struct engine_string *(*engine_get_string_fn)(const char *name, void *row);
typedef int (*engine_set_string_fn)(const char *name, struct engine_string *value, void *row,
                                    struct engine_string **error);
typedef int (*engine_apply_fn)(struct engine_ctx *ctx, void *row, struct engine_string **error);

#define ENGINE_TYPE_VERSION 4

struct engine_type_methods {
    uint64_t version;
    void *(*rdb_load)(struct engine_io *io, int encoding_version);
    void (*rdb_save)(struct engine_io *io, void *value);
    void (*aof_rewrite)(struct engine_io *io, struct engine_string *key, void *value);
    size_t (*mem_usage)(const void *value);
    void (*digest)(struct engine_digest *digest, void *value);
    void (*free)(void *value);
    int (*aux_load)(struct engine_io *io, int encoding_version, int when);
    void (*aux_save)(struct engine_io *io, int when);
    int aux_save_triggers;
    size_t (*free_effort)(struct engine_string *key, const void *value);
    void (*unlink)(struct engine_string *key, const void *value);
    void *(*copy)(struct engine_string *from, struct engine_string *to, const void *value);
    int (*defrag)(void *ctx, struct engine_string *key, void **value);
    size_t (*mem_usage2)(void *key, const void *value, size_t samples);
    size_t (*free_effort2)(void *key, const void *value);
    void (*unlink2)(void *key, const void *value);
    void *(*copy2)(void *keys, const void *value);
};

/* ---- documentation of commands ---- */

enum engine_arg_type {
    ENGINE_ARG_STRING,
    ENGINE_ARG_INTEGER,
    ENGINE_ARG_DOUBLE,
    ENGINE_ARG_KEY,
    ENGINE_ARG_PATTERN,
    ENGINE_ARG_UNIX_TIME,
    ENGINE_ARG_PURE_TOKEN,
    ENGINE_ARG_ONEOF,
    ENGINE_ARG_BLOCK
};

enum { ENGINE_ARG_OPTIONAL = 1 << 0, ENGINE_ARG_MULTIPLE = 1 << 1 };

struct engine_command_arg {
    const char *name;
    enum engine_arg_type type;
    int key_spec; /* of a key, the index of its specification; otherwise -1 */
    const char *token, *summary, *since;
    int flags;
    const char *deprecated_since;
    struct engine_command_arg *subargs;
    const char *display_text;
};

enum { /* of a key specification */
       ENGINE_SPEC_RO = 1 << 0,
       ENGINE_SPEC_RW = 1 << 1,
       ENGINE_SPEC_ACCESS = 1 << 4,
       ENGINE_SPEC_UPDATE = 1 << 5,
       ENGINE_SPEC_INSERT = 1 << 6,
       ENGINE_SPEC_DELETE = 1 << 7,
};

enum { ENGINE_SPEC_BY_INDEX = 2, ENGINE_SPEC_BY_RANGE = 2 };

struct engine_key_spec {
    const char *notes;
    uint64_t flags;
    int begin_by;
    union {
        struct {
            int pos;
        } index;
        struct {
            const char *keyword;
            int start;
        } keyword;
    } begin;
    int find_by;
    union {
        struct {
            int last, step, limit;
        } range;
        struct {
            int count_at, first, step;
        } count;
    } find;
};

struct engine_history {
    const char *since, *changes;
};

struct engine_info_version {
    int version;
    size_t history_bytes, key_spec_bytes, arg_bytes;
};

/* Arrays end with an element that is all zero. */
struct engine_command_info {
    const struct engine_info_version *version;
    const char *summary, *complexity, *since;
    struct engine_history *history;
    const char *tips;
    int arity;
    struct engine_key_spec *key_specs;
    struct engine_command_arg *args;
};

/* ---- functions ---- */

struct engine {
#define ENGINE(presence, result, name, parameters) result(*name) parameters;
#include "engine.def"
#undef ENGINE
};

extern struct engine engine;

/* Whether the engine is Valkey: it has the functions under its own names, too. The number of an option may have another
 * meaning in Redis than in Valkey. */
bool engine_is_valkey(const struct engine_ctx *ctx);

/* Looks all functions up. NULL, or the name of a required one that the engine lacks. */
const char *engine_load(const struct engine_ctx *ctx);
