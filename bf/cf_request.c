#include "cf_request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cuckoo_shape.h"

/* RedisBloom's CF.INFO counts its own structures: of a filter, and of each sub-filter. */
#define INFO_FILTER_BYTES 40
#define INFO_LAYER_BYTES  16

/* ---- CF.RESERVE ---- */

/* The value after the first of these words from `from` on. False: it is missing. */
static bool find_option(const struct bf_args *args, const char *word, size_t from, struct slice *value_out)
{
    for (size_t i = from; i + 1 < args->argc; i++) {
        if (slice_is(bf_arg(args, i), word)) {
            *value_out = bf_arg(args, i + 1);
            return true;
        }
    }
    return false;
}

static bool read_option(const struct bf_args *args, const char *word, size_t from, int64_t min, int64_t max,
                        unsigned *out, struct errbuf *error)
{
    struct slice value;
    int64_t number;
    if (!find_option(args, word, from, &value))
        return true;
    if (!slice_to_int64(value, &number))
        return errbuf_fail(error, false, "Couldn't parse %s", word);
    if (number < min || number > max)
        return errbuf_fail(error, false, "%s: value must be in the range [%lld, %lld]", word, (long long)min,
                           (long long)max);
    *out = (unsigned)number;
    return true;
}

/* `least_text` is how the error names the lowest capacity. */
static bool take_capacity(int64_t capacity, unsigned least, const char *least_text, struct cuckoo_numbers *out,
                          struct errbuf *error)
{
    if (capacity < (int64_t)least || capacity > (int64_t)CUCKOO_MAX_CAPACITY)
        return errbuf_fail(error, false, "Capacity must be in the range [%s, %llu]", least_text,
                           (unsigned long long)CUCKOO_MAX_CAPACITY);
    out->capacity = (uint64_t)capacity;
    return true;
}

/* The capacity is word `at`. */
static bool read_numbers(const struct bf_args *args, size_t at, const struct cuckoo_numbers *defaults,
                         struct cuckoo_numbers *out, struct errbuf *error)
{
    int64_t capacity;
    *out = *defaults;
    out->keyed = false;
    out->key = 0;
    if (args->argc <= at || (args->argc - at) % 2 == 0)
        return bf_wrong_arity(args, error);
    if (!slice_to_int64(bf_arg(args, at), &capacity))
        return bf_refuse(error, "Bad capacity");
    size_t from = 1; /* the key, where RedisBloom begins to look */
    if (!read_option(args, "MAXITERATIONS", from, 1, CUCKOO_MAX_ITERATIONS, &out->iterations, error) ||
        !read_option(args, "BUCKETSIZE", from, 1, CUCKOO_MAX_BUCKET_SIZE, &out->bucket_size, error) ||
        !read_option(args, "EXPANSION", from, 0, BLOOM_MAX_EXPANSION, &out->expansion, error))
        return false;
    return take_capacity(capacity, 2 * out->bucket_size, "2 * BUCKETSIZE", out, error);
}

/* ---- our layout ---- */

/* Whether the words from `at` on have this one. */
static bool has_word(const struct bf_args *args, size_t at, const char *word)
{
    for (; at < args->argc; at++)
        if (slice_is(bf_arg(args, at), word))
            return true;
    return false;
}

static bool read_rate(struct slice value, double *out, struct errbuf *error)
{
    double lowest = ceil(cuckoo_lowest_rate() * 1e6) / 1e6;
    if (slice_to_double(value, out) && *out >= lowest && *out < 1)
        return true;
    return errbuf_fail(error, false,
                       "ERR ERROR must be in the range [%g, 1): fingerprints of 16 bits have no lower rate, but Bloom "
                       "filters have",
                       lowest);
}

/* The numbers of our layout that a command may leave out. */
static struct cuckoo_numbers rate_defaults(const struct cuckoo_numbers *defaults, bool keyed)
{
    keyed = keyed || defaults->keyed;
    return (struct cuckoo_numbers){
        .capacity = defaults->capacity,
        .bucket_size = CUCKOO_RATE_BUCKET,
        .iterations = CUCKOO_RATE_ITERATIONS,
        .expansion = CUCKOO_RATE_EXPANSION,
        .keyed = keyed,
        .key = keyed ? defaults->key : 0,
    };
}

/* capacity ERROR rate [MAXITERATIONS n] [EXPANSION n] [KEYED]; with `items_out`, [ITEMS n]. The capacity is word `at`;
 * each word is known, unlike in RedisBloom. */
static bool read_rated(const struct bf_args *args, size_t at, const struct cuckoo_numbers *defaults,
                       struct cuckoo_numbers *out, int64_t *items_out, struct errbuf *error)
{
    int64_t capacity;
    *out = rate_defaults(defaults, has_word(args, at + 1, "KEYED"));
    for (size_t i = at + 1; i < args->argc; i++) {
        struct slice word = bf_arg(args, i);
        bool counted = slice_is(word, "MAXITERATIONS") || slice_is(word, "EXPANSION");
        bool last = i + 1 == args->argc;
        if (slice_is(word, "KEYED"))
            continue;
        if (!counted && !slice_is(word, "ERROR") && !(items_out && slice_is(word, "ITEMS")))
            return errbuf_fail(error, false,
                               "ERR syntax error: the options beside ERROR are MAXITERATIONS, EXPANSION, KEYED%s",
                               items_out ? ", ITEMS" : "");
        if (last)
            return bf_wrong_arity(args, error);
        if (slice_is(word, "ERROR") && !read_rate(bf_arg(args, i + 1), &out->error_rate, error))
            return false;
        if (slice_is(word, "ITEMS") && (!slice_to_int64(bf_arg(args, i + 1), items_out) || *items_out < 1))
            return bf_refuse(error, "ERR ITEMS must be a whole number of at least 1");
        i++;
    }
    if (!slice_to_int64(bf_arg(args, at), &capacity))
        return bf_refuse(error, "Bad capacity");
    return take_capacity(capacity, 1, "1", out, error) &&
           read_option(args, "MAXITERATIONS", at + 1, 1, CUCKOO_MAX_ITERATIONS, &out->iterations, error) &&
           read_option(args, "EXPANSION", at + 1, 0, BLOOM_MAX_EXPANSION, &out->expansion, error);
}

bool cf_read_reserve(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cuckoo_numbers *out,
                     struct errbuf *error)
{
    if (has_word(args, 3, "ERROR"))
        return read_rated(args, 2, defaults, out, NULL, error);
    if (has_word(args, 3, "KEYED"))
        return bf_refuse(error, CF_KEYED_NO_RATE);
    return read_numbers(args, 2, defaults, out, error);
}

bool cf_read_plan(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cf_plan *out,
                  struct errbuf *error)
{
    static const char *const words[] = {"BUCKETSIZE", "MAXITERATIONS", "EXPANSION", "ITEMS"};
    struct slice value;
    int64_t items = 0;
    if (has_word(args, 2, "ERROR")) {
        bool read = read_rated(args, 1, defaults, &out->numbers, &items, error);
        out->items = (uint64_t)items;
        return read;
    }
    if (!read_numbers(args, 1, defaults, &out->numbers, error))
        return false;
    for (size_t i = 2; i < args->argc; i += 2) { /* ours: no word is skipped */
        bool known = false;
        for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
            known = known || slice_is(bf_arg(args, i), words[w]);
        if (!known)
            return bf_refuse(error,
                             "ERR syntax error: the options are BUCKETSIZE, MAXITERATIONS, EXPANSION, ERROR, ITEMS");
    }
    if (find_option(args, "ITEMS", 2, &value) && (!slice_to_int64(value, &items) || items < 1))
        return bf_refuse(error, "ERR ITEMS must be a whole number of at least 1");
    out->items = (uint64_t)items;
    return true;
}

/* ---- CF.INSERT ---- */

/* RedisBloom checks the first letter of a word only. */
static char letter_of(struct slice word)
{
    return (char)(word.len == 0 ? 0 : word.ptr[0] | 0x20);
}

/* The number of words of the option at word i of CF.INSERT. */
static size_t insert_words(const struct bf_args *args, size_t i)
{
    return letter_of(bf_arg(args, i)) == 'c' || slice_is(bf_arg(args, i), "ERROR") ? 2 : 1;
}

/* Whether CF.INSERT has this option. */
static bool insert_has(const struct bf_args *args, const char *word)
{
    for (size_t i = 2; i < args->argc && letter_of(bf_arg(args, i)) != 'i'; i += insert_words(args, i))
        if (slice_is(bf_arg(args, i), word))
            return true;
    return false;
}

bool cf_read_insert(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cf_insert *out,
                    struct errbuf *error)
{
    bool rated = insert_has(args, "ERROR");
    int64_t capacity;
    if (!rated && insert_has(args, "KEYED"))
        return bf_refuse(error, CF_KEYED_NO_RATE);
    *out = (struct cf_insert){.numbers = rated ? rate_defaults(defaults, insert_has(args, "KEYED")) : *defaults};
    if (!rated)
        out->numbers.keyed = false;
    for (size_t i = 2; i < args->argc; i++) {
        if (slice_is(bf_arg(args, i), "KEYED"))
            continue;
        if (slice_is(bf_arg(args, i), "OWNER"))
            return bf_refuse(error, "ERR OWNER is for Bloom filters: use BF.INSERT");
        if (slice_is(bf_arg(args, i), "ERROR")) {
            if (++i == args->argc)
                return bf_wrong_arity(args, error);
            if (!read_rate(bf_arg(args, i), &out->numbers.error_rate, error))
                return false;
            continue;
        }
        switch (letter_of(bf_arg(args, i))) {
        case 'c':
            if (++i == args->argc)
                return bf_wrong_arity(args, error);
            if (!slice_to_int64(bf_arg(args, i), &capacity))
                return bf_refuse(error, "Bad capacity");
            if (!take_capacity(capacity, rated ? 1 : 2 * out->numbers.bucket_size, rated ? "1" : "cf-bucket-size * 2",
                               &out->numbers, error))
                return false;
            break;
        case 'n':
            out->no_create = true;
            break;
        case 'i':
            out->first_item = i + 1;
            return out->first_item < args->argc || bf_wrong_arity(args, error);
        default:
            return bf_refuse(error, "Unknown argument received");
        }
    }
    return bf_wrong_arity(args, error);
}

size_t cf_first_item(const struct bf_args *args)
{
    size_t i = 2;
    while (letter_of(bf_arg(args, i)) != 'i')
        i += insert_words(args, i);
    return i + 1;
}

/* ---- replies ---- */

void cf_reply_added(const struct bf_out *out, enum bloom_add answer, bool only_new)
{
    if (only_new || (answer > BLOOM_ADDED && !out->maps))
        out->ops->integer(out->ctx, answer > BLOOM_ADDED ? -1 : answer == BLOOM_ADDED);
    else
        out->ops->boolean(out->ctx, answer == BLOOM_ADDED);
}

bool cf_read_info(const struct bf_args *args, bool *full_out, struct errbuf *error)
{
    *full_out = args->argc == 3 && slice_is(bf_arg(args, 2), "FULL");
    return *full_out || args->argc == 2 || bf_wrong_arity(args, error);
}

/* Of a filter that keeps its rate. */
static void reply_rate(const struct bf_out *out, const struct bloom_filter *filter, const struct cuckoo_state *state)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct bloom_layer_view first;
    char text[BF_KEY_TEXT];
    bloom_filter_layer(filter, 0, &first);
    bf_out_named_real(out, "Error rate", params->error_rate);
    bf_out_named_count(out, "Capacity", params->capacity);
    bf_out_named_count(out, "Fingerprint bits", state->slot_bits);
    bf_out_named_count(out, "Most filters", cuckoo_most_layers(params, &first.shape));
    if (params->key) {
        out->ops->status(out->ctx, "Key");
        bf_out_text(out, bf_key_text(params->key, text));
    }
}

void cf_reply_info(const struct bf_out *out, const struct bloom_filter *filter, bool full)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct cuckoo_state state;
    cuckoo_state(filter, &state);
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {
        {"Size", INFO_FILTER_BYTES + (uint64_t)INFO_LAYER_BYTES * state.nlayers + state.bytes},
        {"Number of buckets", state.buckets},
        {"Number of filters", state.nlayers},
        {"Number of items inserted", state.items},
        {"Number of items deleted", state.deletes},
        {"Bucket size", state.bucket_size},
        {"Expansion rate", params->expansion},
        {"Max iterations", params->iterations},
    };
    size_t n = sizeof(fields) / sizeof(fields[0]);
    bool rate = full && bloom_params_keep_rate(params);
    out->ops->map(out->ctx, n + (full ? 3u : 0u) + (rate ? 4u + (params->key != 0) : 0u));
    for (size_t i = 0; i < n; i++)
        bf_out_named_count(out, fields[i].name, fields[i].value);
    if (full) {
        bf_out_named_real(out, "Fill ratio", (double)state.items / (double)state.slots);
        bf_out_named_real(out, "Current error rate", state.rate);
        bf_out_named_real(out, "Bytes per item", state.items ? (double)state.bytes / (double)state.items : 0);
    }
    if (rate)
        reply_rate(out, filter, &state);
}

void cf_reply_debug(const struct bf_out *out, const struct bloom_filter *filter)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct cuckoo_state state;
    char text[256];
    cuckoo_state(filter, &state);
    snprintf(text, sizeof(text),
             "bktsize:%u buckets:%llu items:%llu deletes:%llu filters:%u max_iterations:%u expansion:%u",
             state.bucket_size, (unsigned long long)state.buckets, (unsigned long long)state.items,
             (unsigned long long)state.deletes, state.nlayers, params->iterations, params->expansion);
    bf_out_text(out, text);
}

/* ---- CF.PLAN: how many items a cuckoo filter holds before it grows, its error rate then, and both for a number of
 * items ---- */

/* A filter with this many items. */
struct outlook {
    unsigned nlayers; /* 0: it does not take them */
    uint64_t bytes;
    double rate;
};

static struct outlook look_ahead(const struct bloom_params *params, const struct bloom_shape *first, double load,
                                 double items, unsigned most_layers)
{
    double slots = (double)first->capacity, absent = 1;
    struct outlook outlook = {0};
    unsigned most = cuckoo_most_layers(params, first);
    double size = (double)bloom_shape_bytes(first) / slots;
    for (unsigned i = 0; i < most_layers && i < most; i++) {
        double here = items < slots * load ? items : slots * load;
        items -= here;
        absent *= 1 - cuckoo_rate((unsigned)first->bpe, first->k, here / slots);
        outlook.bytes += slots < 0x1p62 ? (uint64_t)(slots * size) : UINT64_MAX >> 2;
        if (items < 1) {
            outlook.nlayers = i + 1;
            outlook.rate = 1 - absent;
            return outlook;
        }
        if (params->expansion == 0)
            break;
        slots *= params->expansion;
    }
    return (struct outlook){0};
}

void cf_reply_plan(const struct bf_out *out, const struct cf_plan *requested, unsigned most_layers)
{
    struct bloom_params params;
    struct bloom_shape first;
    struct errbuf err = {""};
    struct outlook outlook = {0};
    bool rate = requested->numbers.error_rate > 0;
    double load = rate ? 0.95 : cuckoo_load(requested->numbers.bucket_size, requested->numbers.iterations);
    if (load <= 0 || cuckoo_plan(&requested->numbers, &params, &first, &err) != BLOOM_OK) {
        bf_out_errorf(out, CF_NO_MEMORY, err.text);
        return;
    }
    if (requested->items)
        outlook = look_ahead(&params, &first, load, (double)requested->items, most_layers);
    if (requested->items && outlook.nlayers == 0) {
        unsigned most = cuckoo_most_layers(&params, &first);
        most = most < most_layers ? most : most_layers;
        bf_out_errorf(out, "ERR %llu items do not fit into %u sub-filter%s: a larger capacity or %s is needed",
                      (unsigned long long)requested->items, most, most == 1 ? "" : "s", rate ? "ERROR" : "EXPANSION");
        return;
    }
    out->ops->map(out->ctx, (requested->items ? 8u : 5u) + (rate ? 2u : 0u));
    bf_out_named_count(out, "Slots", first.capacity);
    bf_out_named_count(out, "Size", bloom_shape_bytes(&first));
    bf_out_named_count(out, "Items before growth", (uint64_t)floor((double)first.capacity * load));
    bf_out_named_real(out, "Error rate then", cuckoo_rate((unsigned)first.bpe, first.k, load));
    bf_out_named_real(out, "Bytes per item then", (double)bloom_shape_bytes(&first) / ((double)first.capacity * load));
    if (rate) {
        bf_out_named_count(out, "Fingerprint bits", (uint64_t)first.bpe);
        bf_out_named_count(out, "Most sub-filters", cuckoo_most_layers(&params, &first));
    }
    if (requested->items) {
        bf_out_named_count(out, "Sub-filters", outlook.nlayers);
        bf_out_named_count(out, "Total size", outlook.bytes);
        bf_out_named_real(out, "Error rate", outlook.rate);
    }
}
