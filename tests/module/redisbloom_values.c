/* A module for an engine that keeps RedisBloom's values: it loads and saves the fields of the type MBbloom-- as they
 * are, and knows no command. With it a real engine does all that stands around a value: RESTORE and DUMP, MIGRATE, RDB
 * files with strings that it has compressed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The engine's interface, as far as it is used here. */
#define EXPORTED __attribute__((visibility("default")))
#define OK       0
#define ERR      1

struct type_methods {
    uint64_t version;
    void *(*rdb_load)(void *io, int encver);
    void (*rdb_save)(void *io, void *value);
    void (*aof_rewrite)(void *aof, void *key, void *value);
    size_t (*mem_usage)(const void *value);
    void (*digest)(void *digest, void *value);
    void (*free)(void *value);
};

static int (*get_api)(const char *name, void *function_out);
static uint64_t (*load_unsigned)(void *io);
static void (*save_unsigned)(void *io, uint64_t value);
static double (*load_double)(void *io);
static void (*save_double)(void *io, double value);
static char *(*load_string)(void *io, size_t *len_out);
static void (*save_string)(void *io, const char *bytes, size_t len);
static void (*free_memory)(void *memory);

#define ENCVER     4
#define LAYERS_MAX 64

struct layer {
    uint64_t entries, hashes, bits, n2, count;
    double error, bpe;
    char *string;
    size_t len;
};

struct value {
    uint64_t size, nlayers, options, growth;
    struct layer layers[LAYERS_MAX];
};

static void free_value(void *memory)
{
    struct value *value = memory;

    for (uint64_t i = 0; i < value->nlayers; i++)
        free_memory(value->layers[i].string);
    free(value);
}

static void *load_value(void *io, int encver)
{
    struct value *value = calloc(1, sizeof(*value));

    if (!value || encver != ENCVER)
        abort();
    value->size = load_unsigned(io);
    value->nlayers = load_unsigned(io);
    value->options = load_unsigned(io);
    value->growth = load_unsigned(io);
    if (value->nlayers > LAYERS_MAX)
        abort();
    for (uint64_t i = 0; i < value->nlayers; i++) {
        struct layer *layer = &value->layers[i];

        layer->entries = load_unsigned(io);
        layer->error = load_double(io);
        layer->hashes = load_unsigned(io);
        layer->bpe = load_double(io);
        layer->bits = load_unsigned(io);
        layer->n2 = load_unsigned(io);
        layer->string = load_string(io, &layer->len);
        layer->count = load_unsigned(io);
    }
    return value;
}

static void save_value(void *io, void *memory)
{
    const struct value *value = memory;

    save_unsigned(io, value->size);
    save_unsigned(io, value->nlayers);
    save_unsigned(io, value->options);
    save_unsigned(io, value->growth);
    for (uint64_t i = 0; i < value->nlayers; i++) {
        const struct layer *layer = &value->layers[i];

        save_unsigned(io, layer->entries);
        save_double(io, layer->error);
        save_unsigned(io, layer->hashes);
        save_double(io, layer->bpe);
        save_unsigned(io, layer->bits);
        save_unsigned(io, layer->n2);
        save_string(io, layer->string, layer->len);
        save_unsigned(io, layer->count);
    }
}

EXPORTED int RedisModule_OnLoad(void *ctx, void **argv, int argc);

EXPORTED int RedisModule_OnLoad(void *ctx, void **argv, int argc)
{
    static const struct type_methods methods = {
        .version = 1, .rdb_load = load_value, .rdb_save = save_value, .free = free_value};
    void (*set_attributes)(void *ctx, const char *name, int version, int api_version);
    void *(*create_type)(void *ctx, const char *name, int encver, const struct type_methods *methods);

    (void)argv, (void)argc;
    memcpy(&get_api, ctx, sizeof(get_api)); /* the context begins with it */
    if (get_api("RedisModule_SetModuleAttribs", &set_attributes) ||
        get_api("RedisModule_CreateDataType", &create_type) || get_api("RedisModule_LoadUnsigned", &load_unsigned) ||
        get_api("RedisModule_SaveUnsigned", &save_unsigned) || get_api("RedisModule_LoadDouble", &load_double) ||
        get_api("RedisModule_SaveDouble", &save_double) || get_api("RedisModule_LoadStringBuffer", &load_string) ||
        get_api("RedisModule_SaveStringBuffer", &save_string) || get_api("RedisModule_Free", &free_memory))
        return ERR;
    set_attributes(ctx, "redisbloom-values", 1, 1);
    return create_type(ctx, "MBbloom--", ENCVER, &methods) ? OK : ERR;
}
