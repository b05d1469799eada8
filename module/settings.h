/* settings: the settings of the module. settings.def has the list.
 *
 * Thread: the engine's main thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bf_request.h"
#include "bloom_keyring.h"
#include "cuckoo_shape.h"
#include "engine.h"
#include "errbuf.h"

/* In cluster mode a filter above this is not created unless bf-max-filter-bytes allows it. Engines move slots by DUMP
 * and RESTORE, which accept values up to their proto-max-bulk-len, by default 512 MB. */
#define SETTINGS_CLUSTER_BYTES ((long long)500 << 20)

#define SETTINGS_PREFIX_MAX 32

#define SETTINGS_PATH_SIZE 4096

struct settings {
    char prefix[SETTINGS_PREFIX_MAX + 1];                    /* of the commands' names, in lower case: "bf" */
    char cuckoo_prefix[SETTINGS_PREFIX_MAX + sizeof("-cf")]; /* "cf"; with another prefix "<prefix>-cf" */
    int take_over;                                           /* whose types are the module's */
#define SETTING_RATE(field, ...)   double field;
#define SETTING_NUMBER(field, ...) long long field;
#define SETTING_BOOL(field, ...)   int field;
#define SETTING_WORD(field, ...)   int field;
#define SETTING_FILE(field, ...)   char field[SETTINGS_PATH_SIZE];
#include "settings.def"
#undef SETTING_RATE
#undef SETTING_NUMBER
#undef SETTING_BOOL
#undef SETTING_WORD
#undef SETTING_FILE
};

enum { TAKE_NOTHING, TAKE_REDISBLOOM, TAKE_VALKEY }; /* settings.take_over */

extern struct settings settings;

/* The names that the prefix gives to commands, in lower case. */
struct names {
    char reserve[48], insert[48], madd[48], merge[48], load[48], loadchunk[48], apply[48];
    char cf_reserve[48], cf_insert[48], cf_loadchunk[48];
};

extern struct names names;

/* Initial values, then the words after `loadmodule bloomery.so`: pairs of a name and a value, "prefix" and "take-over"
 * among the names: these hold until the end. False with a text. */
bool settings_read(struct engine_ctx *ctx, struct engine_string **argv, int argc, struct errbuf *err);

/* Registers them with CONFIG, if the engine has that, and takes their values from its file. False with a text. */
bool settings_register(struct engine_ctx *ctx, struct errbuf *err);

enum { LAYOUT_NA, LAYOUT_REDISBLOOM, LAYOUT_VALKEY, LAYOUT_BLOCKED }; /* settings.layout */

/* The settings for filters that a command creates, and the time. */
struct bf_defaults settings_defaults(void);

struct cuckoo_numbers settings_cuckoo_numbers(void);

enum bf_missing settings_missing(void);

/* ---- keys of KEYED filters, from the file of bf-key-file ---- */

/* The pool that gets the keys, and the file of the setting at the start. False with a text. */
bool keys_init(struct bloom_pool *pool, const char *path, struct errbuf *err);
