/* bloomery.so: the filters of Bloomery inside Redis and Valkey, with their replication, Sentinel and Cluster. */
#include <stdio.h>

#include "commands.h"
#include "engine.h"
#include "settings.h"
#include "value.h"

#define MODULE_NAME    "bloomery"
#define MODULE_VERSION 1

/* The engine finds the module by this name. */
__attribute__((visibility("default"))) int RedisModule_OnLoad(struct engine_ctx *ctx, struct engine_string **argv,
                                                              int argc);

static int failed(struct engine_ctx *ctx, const char *reason)
{
    if (engine.Log)
        engine.Log(ctx, "warning", "bloomery: %s", reason);
    else
        fprintf(stderr, "bloomery: %s\n", reason);
    return ENGINE_ERR;
}

/* A short read is an error of the module, not the engine's end. The module signals changes of keys itself, because
 * WATCH must not fail after an add without effect. */
static int options(const struct engine_ctx *ctx)
{
    int signals = engine.SignalModifiedKey ? ENGINE_SIGNALS_BY_HAND : 0;
    int migration = engine_is_valkey(ctx) ? ENGINE_HANDLES_SLOT_MIGRATION : 0;
    return ENGINE_HANDLES_IO_ERRORS | ENGINE_HANDLES_ASYNC_LOAD | migration | signals;
}

/* A second MODULE LOAD of the same file reaches this instance and its variables, which the running module needs: it is
 * refused before anything is written. So all steps below have these variables for themselves. */
int RedisModule_OnLoad(struct engine_ctx *ctx, struct engine_string **argv, int argc)
{
    static bool runs;
    struct errbuf err = {""};
    const char *missing = runs ? NULL : engine_load(ctx);
    if (missing) {
        errbuf_set(&err, "this engine has no %s, which the module needs", missing);
        return failed(ctx, err.text);
    }
    if (runs || (engine.IsModuleNameBusy && engine.IsModuleNameBusy(MODULE_NAME)))
        return failed(ctx, "the module is already loaded; CONFIG SET bloomery.<name> changes its settings");
    engine.SetModuleAttribs(ctx, MODULE_NAME, MODULE_VERSION, ENGINE_API_VERSION);
    if (!settings_read(ctx, argv, argc, &err))
        return failed(ctx, err.text);
    if (!values_init(&err) || !keys_init(values_pool(), settings.key_file, &err) || !types_init(ctx, &err) ||
        !commands_register(ctx, settings.prefix, settings.cuckoo_prefix, &err) || !settings_register(ctx, &err))
        return failed(ctx, err.text);
    if (engine.SetModuleOptions)
        engine.SetModuleOptions(ctx, options(ctx));
    runs = true;
    return ENGINE_OK;
}
