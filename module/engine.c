#include "engine.h"

#define REQUIRED true
#define OPTIONAL false

struct engine engine;

static const struct function {
    const char *name;
    size_t at; /* of its pointer in struct engine */
    bool required;
} functions[] = {
#define ENGINE(presence, result, name, parameters) {"RedisModule_" #name, offsetof(struct engine, name), presence},
#include "engine.def"
#undef ENGINE
};

_Static_assert(sizeof(void (*)(void)) == sizeof(void *), "pointers to functions are written as pointers to data");

const char *engine_load(const struct engine_ctx *ctx)
{
    const char *missing = NULL;

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *slot = (char *)&engine + functions[i].at;
        bool found = ctx->get_api(functions[i].name, slot) == ENGINE_OK;

        if (!found)
            *(void **)slot = NULL;
        if (!found && functions[i].required && !missing)
            missing = functions[i].name;
    }
    return missing;
}

bool engine_is_valkey(const struct engine_ctx *ctx)
{
    void *function;
    return ctx->get_api("ValkeyModule_SetModuleOptions", &function) == ENGINE_OK;
}
