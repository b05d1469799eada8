#include "settings.h"

#include "valkey.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "key_file.h"
#include "reply.h"
#include "slice.h"

struct settings settings;
struct names names;

static const char *const layouts[] = {"na", "redisbloom", "valkey", "blocked"};
static const char *const missing_filter_replies[] = {"absent", "null", "error"};
static const char *const yes_no[] = {"no", "yes"};

enum kind { KIND_RATE, KIND_NUMBER, KIND_WORD, KIND_FILE };

struct row {
    const char *name;
    enum kind kind;
    void *value;
    long long initial, min, max;
    double initial_rate;
    unsigned flags;
    const char *const *words;
};

#define WORDS_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct row rows[] = {
#define SETTING_RATE(field, text, start) \
    {.name = text, .kind = KIND_RATE, .value = &settings.field, .initial_rate = start},
#define SETTING_NUMBER(field, text, start, least, most, how) \
    {.name = text,                                           \
     .kind = KIND_NUMBER,                                    \
     .value = &settings.field,                               \
     .initial = start,                                       \
     .min = least,                                           \
     .max = most,                                            \
     .flags = how},
#define SETTING_BOOL(field, text, start) SETTING_WORD(field, text, start, yes_no)
#define SETTING_WORD(field, text, start, all) \
    {.name = text,                            \
     .kind = KIND_WORD,                       \
     .value = &settings.field,                \
     .initial = start,                        \
     .max = WORDS_OF(all) - 1,                \
     .words = all},
#define SETTING_FILE(field, text) {.name = text, .kind = KIND_FILE, .value = settings.field},
#include "settings.def"
#undef SETTING_FILE
#undef SETTING_RATE
#undef SETTING_NUMBER
#undef SETTING_BOOL
#undef SETTING_WORD
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- keys ---- */

static struct bloom_pool *keyed_pool; /* NULL: before keys_init() */

/* Puts the keys of the file into force; without one ("") there are none. False, with nothing changed, and a text. */
static bool keys_read(const char *path, struct errbuf *err)
{
    struct key_file *file = NULL;
    struct errbuf text;
    if (path[0] && key_file_read(fsops_posix(), path, &file, err) != 0)
        return false;
    int rc = bloom_keyring_set(keyed_pool, file ? file->secrets : NULL, file ? file->n : 0);
    key_file_free(file);
    if (rc != 0)
        errbuf_set(err, "out of memory");
    if (rc == 0 && path[0] && engine.Log && key_file_is_exposed(path, &text))
        engine.Log(NULL, "warning", "bloomery: %s", text.text);
    return rc == 0;
}

bool keys_init(struct bloom_pool *pool, const char *path, struct errbuf *err)
{
    keyed_pool = pool;
    return keys_read(path, err);
}

/* ---- values ---- */

static struct slice text_of(const struct engine_string *string)
{
    struct slice text;
    text.ptr = engine.StringPtrLen(string, &text.len);
    return text;
}

static bool read_rate(struct slice text, double *rate_out, struct errbuf *err)
{
    double rate;
    if (slice_to_double(text, &rate) && rate > 0 && rate < 1) {
        *rate_out = rate;
        return true;
    }
    return errbuf_fail(err, false, "it must be above 0 and below 1");
}

static bool read_word(const struct row *row, struct slice text, struct errbuf *err)
{
    const char *const *words = row->words;
    long long most = row->max;
    for (int i = 0; i <= most; i++) {
        if (slice_is(text, words[i])) {
            *(int *)row->value = i;
            return true;
        }
    }
    return errbuf_fail(err, false, "it must be %s, %s%s%s", words[0], words[1], most > 1 ? " or " : "",
                       most > 1 ? words[2] : "");
}

static bool read_number(const struct row *row, struct slice text, struct errbuf *err)
{
    int64_t number;
    if (slice_to_int64(text, &number) && number >= row->min && number <= row->max) {
        *(long long *)row->value = number;
        return true;
    }
    return errbuf_fail(err, false, "it must be a number from %lld to %lld", row->min, row->max);
}

/* ---- keys ---- */

/* The pool does not exist at first; the keys come later then. */
static bool read_path(char *path_out, struct slice text, struct errbuf *err)
{
    char path[SETTINGS_PATH_SIZE];
    if (text.len >= sizeof(path) || memchr(text.ptr, 0, text.len))
        return errbuf_fail(err, false, "it must be a path");
    memcpy(path, text.ptr, text.len);
    path[text.len] = '\0';
    if (keyed_pool && !keys_read(path, err))
        return false;
    memcpy(path_out, path, text.len + 1);
    return true;
}

static bool read_value(const struct row *row, struct slice text, struct errbuf *err)
{
    switch (row->kind) {
    case KIND_RATE:
        return read_rate(text, row->value, err);
    case KIND_NUMBER:
        return read_number(row, text, err);
    case KIND_FILE:
        return read_path(row->value, text, err);
    default:
        return read_word(row, text, err);
    }
}

/* ---- words behind loadmodule ---- */

static void set_initial(struct engine_ctx *ctx)
{
    strcpy(settings.prefix, "bf");
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].kind == KIND_RATE)
            *(double *)rows[i].value = rows[i].initial_rate;
        else if (rows[i].kind == KIND_NUMBER)
            *(long long *)rows[i].value = rows[i].initial;
        else if (rows[i].kind == KIND_FILE)
            *(char *)rows[i].value = '\0';
        else
            *(int *)rows[i].value = (int)rows[i].initial;
    }
    if (engine.GetContextFlags(ctx) & ENGINE_CTX_CLUSTER)
        settings.max_filter_bytes = SETTINGS_CLUSTER_BYTES;
}

static bool read_prefix(struct slice text, struct errbuf *err)
{
    bool fits = text.len >= 1 && text.len <= SETTINGS_PREFIX_MAX;
    for (size_t i = 0; fits && i < text.len; i++)
        fits = isalnum((unsigned char)text.ptr[i]) || text.ptr[i] == '-' || text.ptr[i] == '_';
    if (!fits)
        return errbuf_fail(err, false, "it must have 1 to %d letters, digits, '-' and '_'", SETTINGS_PREFIX_MAX);
    for (size_t i = 0; i < text.len; i++)
        settings.prefix[i] = (char)tolower((unsigned char)text.ptr[i]);
    settings.prefix[text.len] = '\0';
    return true;
}

static const char *const take_overs[] = {"no", "yes", "valkey"};
static const struct row take_over = {
    .name = "take-over", .kind = KIND_WORD, .value = &settings.take_over, .max = TAKE_VALKEY, .words = take_overs};

static bool read_pair(struct slice name, struct slice value, struct errbuf *err)
{
    bool known = slice_is(name, "prefix"), valid = known && read_prefix(value, err);
    if (slice_is(name, take_over.name)) {
        known = true;
        valid = read_value(&take_over, value, err);
    }
    for (size_t i = 0; i < ROWS && !known; i++) {
        known = slice_is(name, rows[i].name);
        valid = known && read_value(&rows[i], value, err);
    }
    if (!known)
        errbuf_set(err, "no such setting");
    if (!valid)
        errbuf_prefix(err, "'%.*s'", (int)(name.len < 64 ? name.len : 64), name.ptr);
    return valid;
}

static void set_names(const char *prefix)
{
    snprintf(names.reserve, sizeof(names.reserve), "%s.reserve", prefix);
    snprintf(names.insert, sizeof(names.insert), "%s.insert", prefix);
    snprintf(names.load, sizeof(names.load), "%s.load", prefix);
    snprintf(names.madd, sizeof(names.madd), "%s.madd", prefix);
    snprintf(names.merge, sizeof(names.merge), "%s.merge", prefix);
    snprintf(names.loadchunk, sizeof(names.loadchunk), "%s.loadchunk", prefix);
    snprintf(names.apply, sizeof(names.apply), "%s.apply", prefix);
    if (strcmp(prefix, "bf") == 0)
        strcpy(settings.cuckoo_prefix, "cf");
    else
        snprintf(settings.cuckoo_prefix, sizeof(settings.cuckoo_prefix), "%s-cf", prefix);
    prefix = settings.cuckoo_prefix;
    snprintf(names.cf_reserve, sizeof(names.cf_reserve), "%s.reserve", prefix);
    snprintf(names.cf_insert, sizeof(names.cf_insert), "%s.insert", prefix);
    snprintf(names.cf_loadchunk, sizeof(names.cf_loadchunk), "%s.loadchunk", prefix);
}

bool settings_read(struct engine_ctx *ctx, struct engine_string **argv, int argc, struct errbuf *err)
{
    set_initial(ctx);
    for (int i = 0; i + 1 < argc; i += 2) /* the effect on another setting's initial value */
        if (slice_is(text_of(argv[i]), take_over.name) && !slice_is(text_of(argv[i + 1]), "no"))
            settings.layout = slice_is(text_of(argv[i + 1]), "valkey") ? LAYOUT_VALKEY : LAYOUT_REDISBLOOM;
    for (int i = 0; i + 1 < argc; i += 2)
        if (!read_pair(text_of(argv[i]), text_of(argv[i + 1]), err))
            return false;
    set_names(settings.prefix);
    if (argc % 2 == 0)
        return true;
    struct slice name = text_of(argv[argc - 1]);
    return errbuf_fail(err, false, "'%.*s' has no value", (int)(name.len < 64 ? name.len : 64), name.ptr);
}

/* ---- CONFIG ---- */

static long long get_number(const char *name, void *row)
{
    (void)name;
    return *(long long *)((const struct row *)row)->value;
}

static int set_number(const char *name, long long value, void *row, struct engine_string **error)
{
    (void)name;
    (void)error;
    *(long long *)((const struct row *)row)->value = value;
    return ENGINE_OK;
}

/* The value of a setting that is no number; a rate is in `room`. */
static const char *string_of(const struct row *row, char room[REPLY_DOUBLE_MAX])
{
    if (row->kind == KIND_FILE)
        return row->value;
    if (row->kind == KIND_WORD)
        return row->words[*(const int *)row->value];
    reply_double_text(*(double *)row->value, room);
    return room;
}

/* The engine reads the string and leaves it: it is the module's until the next one replaces it. */
static struct engine_string *get_string(const char *name, void *row)
{
    static struct engine_string *last;
    char room[REPLY_DOUBLE_MAX];
    (void)name;
    if (last)
        engine.FreeString(NULL, last);
    const char *text = string_of(row, room);
    last = engine.CreateString(NULL, text, strlen(text));
    return last;
}

static int set_string(const char *name, struct engine_string *value, void *row, struct engine_string **error)
{
    struct errbuf err = {""};
    (void)name;
    if (read_value(row, text_of(value), &err))
        return ENGINE_OK;
    *error = engine.CreateString(NULL, err.text, strlen(err.text));
    return ENGINE_ERR;
}

static int register_row(struct engine_ctx *ctx, const struct row *row)
{
    void *data = (void *)(uintptr_t)row; /* the callbacks only read it */
    char room[REPLY_DOUBLE_MAX];
    if (row->kind == KIND_NUMBER)
        return engine.RegisterNumericConfig(ctx, row->name, *(long long *)row->value, row->flags, row->min, row->max,
                                            get_number, set_number, NULL, data);
    return engine.RegisterStringConfig(ctx, row->name, string_of(row, room), row->flags, get_string, set_string, NULL,
                                       data);
}

bool settings_register(struct engine_ctx *ctx, struct errbuf *err)
{
    if (!engine.RegisterNumericConfig || !engine.RegisterStringConfig || !engine.LoadConfigs)
        return true;
    for (size_t i = 0; i < ROWS; i++)
        if (register_row(ctx, &rows[i]) != ENGINE_OK)
            return errbuf_fail(err, false, "the setting bloomery.%s cannot be registered", rows[i].name);
    if (engine.LoadConfigs(ctx) == ENGINE_OK)
        return true;
    return errbuf_fail(err, false, "cannot read the settings of the configuration file");
}

/* ---- for commands ---- */

struct bf_defaults settings_defaults(void)
{
    static const enum bloom_variant variants[] = {BLOOM_NA, BLOOM_REDISBLOOM, BLOOM_VALKEY, BLOOM_BLOCKED};
    struct bf_defaults defaults = {
        .params = {.capacity = (uint64_t)settings.initial_size,
                   .error_rate = settings.error_rate,
                   .expansion = (uint32_t)settings.expansion_factor},
        .keyed = settings.keyed,
        .key = bloom_keyring_first(keyed_pool),
        .now_ms = clock_unix_ms(),
        .tightening = VALKEY_DEFAULT_TIGHTENING,
        .limit = (uint64_t)settings.max_filter_bytes,
    };
    bf_defaults_take(&defaults, variants[settings.layout]);
    return defaults;
}

struct cuckoo_numbers settings_cuckoo_numbers(void)
{
    return (struct cuckoo_numbers){
        .capacity = (uint64_t)settings.cf_initial_size,
        .bucket_size = (unsigned)settings.cf_bucket_size,
        .iterations = (unsigned)settings.cf_max_iterations,
        .expansion = (unsigned)settings.cf_expansion_factor,
        .keyed = settings.keyed,
        .key = bloom_keyring_first(keyed_pool),
    };
}

enum bf_missing settings_missing(void)
{
    return (enum bf_missing)(BF_MISSING_ABSENT + settings.missing_filter_reply);
}
