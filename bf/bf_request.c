#include "bf_request.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bf_valkey.h"
#include "bloom_scaling.h"
#include "bloom_window.h"
#include "redisbloom.h"

#define UNKNOWN_MAX 64 /* bytes of an unknown word that an error repeats */

bool bf_refuse(struct errbuf *error, const char *text)
{
    return errbuf_fail(error, false, "%s", text);
}

bool bf_wrong_arity(const struct bf_args *args, struct errbuf *error)
{
    char name[32];
    size_t i = 0;
    for (; i + 1 < sizeof(name) && args->name[i]; i++)
        name[i] = (char)(args->valkey ? toupper((unsigned char)args->name[i]) : args->name[i]);
    name[i] = '\0';
    return errbuf_fail(error, false, "ERR wrong number of arguments for '%s' command", name);
}

/* ---- single values ---- */

static bool read_rate(struct slice value, double *rate_out, struct errbuf *error)
{
    if (!slice_to_double(value, rate_out))
        return bf_refuse(error, "ERR bad error rate");
    if (!(*rate_out > 0 && *rate_out < 1))
        return bf_refuse(error, "ERR error rate must be in the range (0.000000, 1.000000)");
    return true;
}

/* take_capacity() checks the range after the options, as RedisBloom does. */
static bool read_capacity(struct slice value, int64_t *capacity_out, struct errbuf *error)
{
    return slice_to_int64(value, capacity_out) || bf_refuse(error, "ERR bad capacity");
}

/* Puts a capacity into `params`, whose rate and expansion must be set, or sets an error with the range. */
static bool take_capacity(int64_t capacity, struct bloom_params *params, struct errbuf *error)
{
    if (capacity < 1) {
        uint64_t most = bloom_first_most(params);
        if (most == 0) /* at a rate that no filter has */
            return bf_refuse(error, "ERR capacity must be at least 1");
        return errbuf_fail(error, false, "ERR capacity must be in the range [1, %llu]", (unsigned long long)most);
    }
    params->capacity = (uint64_t)capacity;
    return true;
}

static bool read_layout(struct slice value, struct bloom_params *params)
{
    static const struct {
        const char *name;
        uint8_t options;
    } layouts[] = {{"NA", 0},
                   {"REDISBLOOM", REDISBLOOM_DEFAULT},
                   {"VALKEY", BLOOM_OPTION_VALKEY},
                   {"BLOCKED", BLOOM_OPTION_BLOCKED}};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (slice_is(value, layouts[i].name)) {
            params->redisbloom = layouts[i].options;
            return true;
        }
    }
    return false;
}

static bool read_ttl(const struct bf_args *args, struct slice value, int64_t now_ms, int64_t *expires_ms_out,
                     struct errbuf *error)
{
    int64_t seconds;
    if (!slice_to_int64(value, &seconds))
        return bf_refuse(error, "ERR value is not an integer or out of range");
    if (seconds < 1 || seconds > (INT64_MAX - now_ms) / 1000)
        return errbuf_fail(error, false, "ERR invalid expire time in '%s' command", args->name);
    *expires_ms_out = now_ms + seconds * 1000;
    return true;
}

static bool read_expansion(struct slice value, uint32_t *expansion_out, struct errbuf *error)
{
    int64_t expansion;
    if (!slice_to_int64(value, &expansion))
        return bf_refuse(error, "ERR bad expansion");
    if (expansion < 0 || expansion > BLOOM_MAX_EXPANSION)
        return errbuf_fail(error, false, "ERR expansion must be in the range [0, %d]", BLOOM_MAX_EXPANSION);
    *expansion_out = (uint32_t)expansion;
    return true;
}

/* ---- windows ---- */

/* The options of a command that concern a window: its own, and LAYOUT, which a window restricts. */
struct window_words {
    bool given, by_items, refresh, layout;
    int64_t length; /* seconds, or items */
    int64_t parts;  /* 0: not given */
};

/* Reads the option at argument *i, if it is one of a window, and moves *i to its last word. False with no error set: it
 * is not one. */
static bool window_option(const struct bf_args *args, size_t *i, struct window_words *words, struct errbuf *error)
{
    struct slice word = bf_arg(args, *i);
    size_t left = args->argc - *i - 1;
    error->text[0] = '\0';
    if (slice_is(word, "REFRESH")) {
        words->refresh = true;
        return true;
    }
    if (slice_is(word, "PARTS")) {
        if (left < 1 || !slice_to_int64(bf_arg(args, ++*i), &words->parts) || words->parts < 1 ||
            words->parts > BLOOM_WINDOW_MAX_PARTS)
            return errbuf_fail(error, false, "ERR PARTS takes a number in the range [1, %d]", BLOOM_WINDOW_MAX_PARTS);
        return true;
    }
    if (!slice_is(word, "WINDOW"))
        return false;
    words->given = true;
    words->by_items = left > 0 && slice_is(bf_arg(args, *i + 1), "ITEMS");
    *i += words->by_items;
    left -= words->by_items;
    if (left < 1 || !slice_to_int64(bf_arg(args, ++*i), &words->length) || words->length < 1)
        return bf_refuse(error, "ERR WINDOW takes a number of seconds, or ITEMS and a number of items");
    if (words->by_items ? (uint64_t)words->length > BLOOM_WINDOW_MAX_ITEMS
                        : words->length > BLOOM_WINDOW_MAX_US / 1000000)
        return errbuf_fail(
            error, false, "ERR the %s of WINDOW must be in the range [1, %lld]", words->by_items ? "ITEMS" : "seconds",
            words->by_items ? (long long)BLOOM_WINDOW_MAX_ITEMS : (long long)(BLOOM_WINDOW_MAX_US / 1000000));
    return true;
}

/* Puts the window into `params`, whose other options are set already. */
static bool take_window(const struct window_words *words, struct bloom_params *params, struct errbuf *error)
{
    int64_t parts = words->parts ? words->parts : BLOOM_WINDOW_PARTS;
    if (!words->given)
        return (!words->parts && !words->refresh) || bf_refuse(error, "ERR PARTS and REFRESH need WINDOW");
    bool blocked = params->redisbloom == BLOOM_OPTION_BLOCKED;
    if (params->redisbloom && !blocked && words->layout)
        return errbuf_fail(error, false,
                           "ERR a window is kept in LAYOUT na or blocked: WINDOW and LAYOUT %s exclude each other",
                           bloom_params_have_seed(params) ? "valkey" : "redisbloom");
    if (words->by_items && !words->parts && parts > words->length)
        parts = words->length;
    if (words->by_items && parts > words->length)
        return errbuf_fail(error, false, "ERR PARTS must not be more than the ITEMS of the window, %lld",
                           (long long)words->length);
    if (!blocked)
        params->redisbloom = 0;
    params->window = (uint64_t)words->length * (words->by_items ? 1 : 1000000);
    params->window_parts = (uint16_t)parts;
    params->window_flags =
        (uint8_t)((words->by_items ? BLOOM_WINDOW_ITEMS : 0) | (words->refresh ? BLOOM_WINDOW_REFRESH : 0));
    return true;
}

/* ---- keys ---- */

const char *bf_key_text(uint64_t key, char out[BF_KEY_TEXT])
{
    snprintf(out, BF_KEY_TEXT, "%016llx", (unsigned long long)key);
    return out;
}

/* A layout with a seed has a secret of its own. */
static bool take_key(bool *keyed, const struct bf_defaults *defaults, struct bloom_params *params, struct errbuf *error)
{
    bool seeded = bloom_params_have_seed(params);
    if (*keyed && seeded && !defaults->keyed)
        return bf_refuse(error, "ERR a filter of LAYOUT valkey cannot be KEYED: its seed is its key: give LAYOUT na");
    *keyed &= !seeded;
    params->key = *keyed ? defaults->key : 0;
    return true;
}

/* ---- BF.RESERVE, BF.PLAN ---- */

/* A command's option beside EXPANSION, NONSCALING and LAYOUT, with one value. */
struct other_option {
    const char *word;
    const char *missing; /* the error if its value is missing */
    const char *takes;   /* the end of the error about an unknown word */
    bool (*read)(const struct bf_args *args, struct slice value, void *into, struct errbuf *error);
    void *into;
    bool windows; /* the command takes WINDOW, PARTS and REFRESH */
    bool *keyed;  /* and KEYED; NULL: it does not */
};

static bool unknown_option(struct slice word, const char *takes, struct errbuf *error)
{
    return errbuf_fail(error, false, "ERR unknown option '%.*s': %s",
                       (int)(word.len < UNKNOWN_MAX ? word.len : UNKNOWN_MAX), word.ptr, takes);
}

/* The options from argument `first` on. */
static bool read_options(const struct bf_args *args, size_t first, const struct other_option *other,
                         struct bloom_params *params, struct errbuf *error)
{
    bool fixed = false, expansion_given = false;
    struct window_words window = {0};
    for (size_t i = first; i < args->argc; i++) {
        struct slice word = bf_arg(args, i);
        bool has_value = i + 1 < args->argc;
        if (slice_is(word, "NONSCALING")) {
            fixed = true;
        } else if (other->keyed && slice_is(word, "KEYED")) {
            *other->keyed = true;
        } else if (slice_is(word, "EXPANSION")) {
            if (!has_value)
                return bf_refuse(error, "ERR no expansion");
            if (!read_expansion(bf_arg(args, ++i), &params->expansion, error))
                return false;
            expansion_given = true;
        } else if (slice_is(word, "LAYOUT")) {
            if (!has_value || !read_layout(bf_arg(args, ++i), params))
                return bf_refuse(error, "ERR LAYOUT takes na, redisbloom, valkey or blocked");
            window.layout = true;
        } else if (slice_is(word, other->word)) {
            if (!has_value)
                return bf_refuse(error, other->missing);
            if (!other->read(args, bf_arg(args, ++i), other->into, error))
                return false;
        } else if (!other->windows || !window_option(args, &i, &window, error)) {
            return (other->windows && error->text[0]) ? false : unknown_option(word, other->takes, error);
        }
    }
    if (fixed && expansion_given && params->expansion)
        return bf_refuse(error, "Nonscaling filters cannot expand");
    if (fixed)
        params->expansion = 0;
    return take_window(&window, params, error);
}

/* Argument `first` is the rate, the next one the capacity, then come the options. */
static bool read_params(const struct bf_args *args, size_t first, const struct other_option *other,
                        struct bloom_params *params, struct errbuf *error)
{
    int64_t capacity;
    return read_rate(bf_arg(args, first), &params->error_rate, error) &&
           read_capacity(bf_arg(args, first + 1), &capacity, error) &&
           read_options(args, first + 2, other, params, error) && take_capacity(capacity, params, error);
}

struct ttl {
    int64_t now_ms, *expires_ms;
};

static bool ttl_option(const struct bf_args *args, struct slice value, void *into, struct errbuf *error)
{
    const struct ttl *ttl = into;
    return read_ttl(args, value, ttl->now_ms, ttl->expires_ms, error);
}

/* RedisBloom limits the number of arguments, and its clients' tests rely on that. */
static bool too_many_args(const struct bf_args *args)
{
    size_t most = 7;
    for (size_t i = 4; i < args->argc && args->argc > 7; i++) {
        struct slice word = bf_arg(args, i);
        most += slice_is(word, "TTL") || slice_is(word, "LAYOUT") || slice_is(word, "WINDOW") || slice_is(word, "PARTS")
                    ? 2
                    : slice_is(word, "REFRESH") || slice_is(word, "ITEMS") || slice_is(word, "KEYED");
    }
    return args->argc > most;
}

/* For a command that has its own rate and capacity. */
static struct bloom_params new_params(const struct bf_defaults *defaults)
{
    return (struct bloom_params){.expansion = defaults->params.expansion,
                                 .redisbloom = defaults->params.redisbloom,
                                 .tightening = defaults->tightening};
}

bool bf_read_reserve(const struct bf_args *args, const struct bf_defaults *defaults, struct bf_reserve *out,
                     struct errbuf *error)
{
    struct ttl ttl = {defaults->now_ms, &out->expires_ms};
    struct other_option other = {"TTL",
                                 "ERR TTL without seconds",
                                 "BF.RESERVE takes EXPANSION n, NONSCALING, LAYOUT name, TTL seconds, WINDOW seconds "
                                 "or ITEMS n, PARTS n, REFRESH and KEYED",
                                 ttl_option,
                                 &ttl,
                                 .windows = true,
                                 .keyed = &out->keyed};
    const struct bf_valkey_words none = {0};
    *out = (struct bf_reserve){.params = new_params(defaults), .keyed = defaults->keyed};
    if (args->valkey && !bf_valkey_has_ours(args, 4)) {
        bool fixed = false;
        if (!bf_valkey_reserve(args, &out->params, &fixed, error))
            return false;
        out->params.expansion = fixed ? 0 : out->params.expansion;
    } else if (args->argc < 4 || too_many_args(args)) {
        return bf_wrong_arity(args, error);
    } else if (!read_params(args, 2, &other, &out->params, error)) {
        return false;
    }
    if (!bf_valkey_settle(&out->params, defaults, &none, &out->fresh_seed, error))
        return false;
    out->refused = bf_valkey_refusal(args, &out->params, defaults);
    return take_key(&out->keyed, defaults, &out->params, error);
}

static bool items_option(const struct bf_args *args, struct slice value, void *into, struct errbuf *error)
{
    int64_t items;
    (void)args;
    if (!slice_to_int64(value, &items) || items < 1)
        return bf_refuse(error, "ERR bad number of items");
    *(uint64_t *)into = (uint64_t)items;
    return true;
}

bool bf_read_plan(const struct bf_args *args, const struct bf_defaults *defaults, struct bf_plan *out,
                  struct errbuf *error)
{
    struct other_option other = {"ITEMS",
                                 "ERR bad number of items",
                                 "BF.PLAN takes EXPANSION n, NONSCALING, LAYOUT name, WINDOW seconds or ITEMS n, PARTS "
                                 "n, REFRESH and ITEMS n",
                                 items_option,
                                 &out->items,
                                 .windows = true};
    *out = (struct bf_plan){.params = new_params(defaults)};
    if (args->argc < 3)
        return bf_wrong_arity(args, error);
    double rate; /* RedisBloom's words for BF.RESERVE do not say that the order may be wrong */
    if (slice_to_double(bf_arg(args, 1), &rate) && !(rate > 0 && rate < 1))
        return bf_refuse(error, "ERR the error rate must be above 0 and below 1, and comes first: BF.PLAN 0.01 1000");
    const struct bf_valkey_words none = {0};
    bool fresh;
    return read_params(args, 1, &other, &out->params, error) &&
           bf_valkey_settle(&out->params, defaults, &none, &fresh, error);
}

/* ---- BF.INSERT ---- */

/* Reads an option of a new filter's size. Errors are RedisBloom's for BF.INSERT, shorter than BF.RESERVE's. */
static bool size_option(struct slice option, struct slice value, struct bf_insert *out, struct errbuf *error)
{
    int64_t number;
    if (slice_is(option, "CAPACITY")) {
        if (!slice_to_int64(value, &number) || number < 1)
            return bf_refuse(error, "Bad capacity");
        out->params.capacity = (uint64_t)number;
        out->sized = true;
    } else if (slice_is(option, "ERROR")) {
        double rate;
        if (!slice_to_double(value, &rate) || !(rate > 0 && rate < 1))
            return bf_refuse(error, "Bad error rate");
        out->params.error_rate = rate;
        out->sized = true;
    } else if (slice_is(option, "LAYOUT")) {
        if (!read_layout(value, &out->params))
            return bf_refuse(error, "Bad layout");
    } else {
        if (!slice_to_int64(value, &number) || number < 0 || number > BLOOM_MAX_EXPANSION)
            return bf_refuse(error, "Bad expansion");
        out->params.expansion = (uint32_t)number;
    }
    return true;
}

/* The options up to ITEMS. */
static bool insert_options(const struct bf_args *args, const struct bf_defaults *defaults, struct bf_insert *out,
                           bool *fixed_out, struct window_words *window, struct bf_valkey_words *words,
                           struct errbuf *error)
{
    for (size_t i = 2; i < args->argc; i++) {
        struct slice word = bf_arg(args, i);
        bool has_value = i + 1 < args->argc;
        if (slice_is(word, "ITEMS")) {
            out->first_item = i + 1;
            return has_value || bf_wrong_arity(args, error);
        }
        if (slice_is(word, "NOCREATE")) {
            out->no_create = true;
        } else if (slice_is(word, "NONSCALING")) {
            *fixed_out = true;
        } else if (slice_is(word, "KEYED")) {
            out->keyed = true;
        } else if (slice_is(word, "OWNER")) { /* bf_first_item() has the bytes */
            if (!has_value || bf_arg(args, i + 1).len < 1 || bf_arg(args, i + 1).len > 64)
                return bf_refuse(error, "ERR OWNER takes an id of 1 to 64 bytes");
            i++;
        } else if (slice_is(word, "TTL")) {
            if (!has_value)
                return bf_wrong_arity(args, error);
            if (!read_ttl(args, bf_arg(args, ++i), defaults->now_ms, &out->expires_ms, error))
                return false;
        } else if (slice_is(word, "CAPACITY") || slice_is(word, "ERROR") || slice_is(word, "EXPANSION") ||
                   slice_is(word, "LAYOUT")) {
            if (!has_value)
                return bf_wrong_arity(args, error);
            if (!size_option(word, bf_arg(args, ++i), out, error))
                return false;
            window->layout |= slice_is(word, "LAYOUT");
        } else if (!bf_valkey_option(args, &i, &out->params, words, error) &&
                   (error->text[0] || !window_option(args, &i, window, error))) {
            return error->text[0] ? false : bf_refuse(error, "Unknown argument received");
        }
    }
    out->first_item = args->argc;
    return args->valkey || words->given || bf_wrong_arity(args, error);
}

bool bf_read_insert(const struct bf_args *args, const struct bf_defaults *defaults, struct bf_insert *out,
                    struct errbuf *error)
{
    struct window_words window = {0};
    struct bf_valkey_words words = {0};
    bool fixed = false;
    *out = (struct bf_insert){.params = defaults->params, .keyed = defaults->keyed};
    out->params.tightening = defaults->tightening;
    if (!(args->valkey && !bf_valkey_has_ours(args, 2)
              ? bf_valkey_insert(args, out, &words, &fixed, error)
              : insert_options(args, defaults, out, &fixed, &window, &words, error)))
        return false;
    if (fixed)
        out->params.expansion = 0;
    if (words.given && !window.layout) /* which only one layout has */
        out->params.redisbloom = BLOOM_OPTION_VALKEY;
    if (!take_window(&window, &out->params, error))
        return false;
    out->sized |= window.given;
    if (!bf_valkey_settle(&out->params, defaults, &words, &out->fresh_seed, error) ||
        !take_key(&out->keyed, defaults, &out->params, error))
        return false;
    out->refused = bf_valkey_refusal(args, &out->params, defaults);
    if (out->refused)
        return true;
    if (bloom_first_shape(&out->params, &(struct bloom_shape){0}, NULL) == BLOOM_OK)
        return true;
    return bf_refuse(error, bloom_first_most(&out->params) ? "Bad capacity" : "Bad error rate");
}

size_t bf_first_item(const struct bf_args *args, struct slice *owner_out)
{
    size_t i = 2;
    *owner_out = (struct slice){NULL, 0};
    while (i < args->argc && !slice_is(bf_arg(args, i), "ITEMS")) {
        struct slice word = bf_arg(args, i), next = i + 1 < args->argc ? bf_arg(args, i + 1) : word;
        bool owner = slice_is(word, "OWNER");
        if (owner)
            *owner_out = next;
        i += slice_is(word, "WINDOW") && slice_is(next, "ITEMS") ? 3 : owner ? 2 : 1;
    }
    return i < args->argc ? i + 1 : args->argc;
}

bool bf_claim_hashes(const struct bloom_filter *filter, struct slice owner, struct slice item,
                     struct bloom_hash hash_out[2], struct slice *mark_out)
{
    size_t front = 8 + owner.len;
    char *mark = malloc(front + item.len);
    *mark_out = (struct slice){mark, front + item.len};
    if (!mark)
        return false;
    memcpy(mark, "\1OWNER\1", 7);
    mark[7] = (char)owner.len;
    memcpy(mark + 8, owner.ptr, owner.len);
    if (item.len)
        memcpy(mark + front, item.ptr, item.len);
    hash_out[0] = bloom_filter_hash(filter, mark, front + item.len);
    hash_out[1] = bloom_filter_hash(filter, item.ptr, item.len);
    return true;
}

/* ---- BF.QUERY, BF.FALSEPOSITIVE ---- */

static bool missing_of(struct slice word, enum bf_missing *missing_out)
{
    static const struct {
        const char *word;
        enum bf_missing missing;
    } words[] = {{"ERROR", BF_MISSING_ERROR}, {"NULL", BF_MISSING_NULL}, {"ABSENT", BF_MISSING_ABSENT}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (slice_is(word, words[i].word)) {
            *missing_out = words[i].missing;
            return true;
        }
    }
    return false;
}

bool bf_read_query(const struct bf_args *args, struct bf_query *out, struct errbuf *error)
{
    size_t i = 2;
    *out = (struct bf_query){.missing = BF_MISSING_ERROR};
    for (; i < args->argc && !slice_is(bf_arg(args, i), "ITEMS"); i += 2) {
        if (!slice_is(bf_arg(args, i), "MISSING") || i + 1 == args->argc)
            return bf_refuse(error, "ERR syntax error: BF.QUERY takes MISSING ERROR|NULL|ABSENT, then ITEMS");
        if (!missing_of(bf_arg(args, i + 1), &out->missing))
            return bf_refuse(error, "ERR MISSING takes ERROR, NULL or ABSENT");
    }
    out->first_item = i + 1;
    return out->first_item < args->argc || bf_wrong_arity(args, error);
}

/* The lengths first: hundreds of names are compared. */
static bool ends_names(struct slice word)
{
    return (word.len == 5 && slice_is(word, "ITEMS")) || (word.len == 3 && slice_is(word, "KEY"));
}

bool bf_read_find(const struct bf_args *args, struct bf_find *out, struct errbuf *error)
{
    size_t i = 1;
    *out = (struct bf_find){.count = args->argc > 1 && slice_is(bf_arg(args, 1), "COUNT")};
    out->first_name = i += out->count;
    while (i < args->argc && !ends_names(bf_arg(args, i)))
        i++;
    if (i == args->argc)
        return bf_refuse(
            error, "ERR syntax error: BF.FIND takes [COUNT], names or patterns, then ITEMS item ... or KEY key ...");
    out->keys = slice_is(bf_arg(args, i), "KEY");
    out->names = i - out->first_name;
    out->first_item = i + 1;
    out->items = args->argc - out->first_item;
    return (out->names > 0 && out->items > 0) || bf_wrong_arity(args, error);
}

bool bf_read_import(const struct bf_args *args, struct bf_import *out, struct errbuf *error)
{
    int64_t capacity;
    *out = (struct bf_import){.capacity = 0};
    for (size_t i = 3; i < args->argc; i++) {
        struct slice word = bf_arg(args, i);
        if (slice_is(word, "REPLACE")) {
            out->replace = true;
            continue;
        }
        bool known = slice_is(word, "VARIANT") || slice_is(word, "CAPACITY") || slice_is(word, "ERROR");
        if (!known)
            return unknown_option(word, "BF.IMPORT takes VARIANT, CAPACITY, ERROR and REPLACE", error);
        if (i + 1 == args->argc)
            return bf_refuse(error, "ERR syntax error: the last option has no value");
        struct slice value = bf_arg(args, ++i);
        if (slice_is(word, "VARIANT")) {
            if (!slice_is(value, "na") && !slice_is(value, "me") && !slice_is(value, "ka"))
                return bf_refuse(error, "ERR the variant must be na, me or ka");
            out->variant = value;
        } else if (slice_is(word, "ERROR")) {
            if (!read_rate(value, &out->error_rate, error))
                return false;
        } else {
            if (!read_capacity(value, &capacity, error))
                return false;
            if (capacity < 1)
                return bf_refuse(error, "ERR capacity must be at least 1");
            out->capacity = (uint64_t)capacity;
        }
    }
    return true;
}

bool bf_read_false_positives(const struct bf_args *args, uint32_t *count_out, struct errbuf *error)
{
    int64_t count = 1;
    if (args->argc > 3)
        return bf_wrong_arity(args, error);
    if (args->argc == 3 && (!slice_to_int64(bf_arg(args, 2), &count) || count < 1 || count > UINT32_MAX))
        return errbuf_fail(error, false, "ERR count must be an integer in the range [1, %u]", UINT32_MAX);
    *count_out = (uint32_t)count;
    return true;
}
