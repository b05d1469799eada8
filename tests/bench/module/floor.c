/* The engine's own floor: a module whose commands take the arguments of BF.EXISTS, BF.MEXISTS, BF.ADD and BF.MADD,
 * open the key, and answer 0 for every item. The additional time of bloomery.so is the filter's. See
 * scripts/bench_module. */
#include "engine.h"

int RedisModule_OnLoad(struct engine_ctx *ctx, struct engine_string **argv, int argc);

/* Reads every item, as a command that checks them must. */
static int answer(struct engine_ctx *ctx, struct engine_string **argv, int argc, int mode, bool array)
{
    struct engine_key *key = engine.OpenKey(ctx, argv[1], mode);
    int type = key ? engine.KeyType(key) : ENGINE_KEY_EMPTY;
    if (array)
        engine.ReplyWithArray(ctx, argc - 2);
    for (int i = 2; i < argc; i++) {
        size_t len;
        const char *item = engine.StringPtrLen(argv[i], &len);
        engine.ReplyWithLongLong(ctx, len == 0 && item == NULL && type);
    }
    if (key)
        engine.CloseKey(key);
    return ENGINE_OK;
}

static int floor_exists(struct engine_ctx *ctx, struct engine_string **argv, int argc)
{
    return answer(ctx, argv, argc, ENGINE_READ, false);
}

static int floor_mexists(struct engine_ctx *ctx, struct engine_string **argv, int argc)
{
    return answer(ctx, argv, argc, ENGINE_READ, true);
}

static int floor_add(struct engine_ctx *ctx, struct engine_string **argv, int argc)
{
    return answer(ctx, argv, argc, ENGINE_READ | ENGINE_WRITE, false);
}

static int floor_madd(struct engine_ctx *ctx, struct engine_string **argv, int argc)
{
    return answer(ctx, argv, argc, ENGINE_READ | ENGINE_WRITE, true);
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(struct engine_ctx *ctx, struct engine_string **argv,
                                                              int argc)
{
    (void)argv, (void)argc;
    if (engine_load(ctx))
        return ENGINE_ERR;
    engine.SetModuleAttribs(ctx, "floor", 1, ENGINE_API_VERSION);
    if (engine.SetModuleOptions)
        engine.SetModuleOptions(ctx, ENGINE_SIGNALS_BY_HAND);
    if (engine.CreateCommand(ctx, "fl.exists", floor_exists, "readonly fast", 1, 1, 1) != ENGINE_OK ||
        engine.CreateCommand(ctx, "fl.mexists", floor_mexists, "readonly fast", 1, 1, 1) != ENGINE_OK ||
        engine.CreateCommand(ctx, "fl.add", floor_add, "write deny-oom", 1, 1, 1) != ENGINE_OK ||
        engine.CreateCommand(ctx, "fl.madd", floor_madd, "write deny-oom", 1, 1, 1) != ENGINE_OK)
        return ENGINE_ERR;
    return ENGINE_OK;
}
