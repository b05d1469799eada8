#include "cf_request.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* RedisBloom's CF.INFO counts its own structures: of a filter, and of each sub-filter. */
#define INFO_FILTER_BYTES 40
#define INFO_LAYER_BYTES  16

static bool fail(struct errbuf *error, const char *text)
{
    errbuf_set(error, "%s", text);
    return false;
}

static bool wrong_arity(const struct bf_args *args, struct errbuf *error)
{
    errbuf_set(error, "ERR wrong number of arguments for '%s' command", args->name);
    return false;
}

/* ---- CF.RESERVE ---- */

/* The value behind the first of these words; RedisBloom looks for it from the key on. False: it is not there. */
static bool find_option(const struct bf_args *args, const char *word, struct slice *value_out)
{
    for (size_t i = 1; i + 1 < args->argc; i++) {
        if (slice_is(bf_arg(args, i), word)) {
            *value_out = bf_arg(args, i + 1);
            return true;
        }
    }
    return false;
}

static bool read_option(const struct bf_args *args, const char *word, int64_t min, int64_t max, unsigned *out,
                        struct errbuf *error)
{
    struct slice value;
    int64_t number;
    if (!find_option(args, word, &value))
        return true;
    if (!slice_to_int64(value, &number)) {
        errbuf_set(error, "Couldn't parse %s", word);
        return false;
    }
    if (number < min || number > max) {
        errbuf_set(error, "%s: value must be in the range [%lld, %lld]", word, (long long)min, (long long)max);
        return false;
    }
    *out = (unsigned)number;
    return true;
}

static bool capacity_is_possible(int64_t capacity, unsigned bucket_size)
{
    return capacity >= (int64_t)bucket_size * 2 && capacity <= (int64_t)CUCKOO_MAX_CAPACITY;
}

/* The capacity is word `at`. */
static bool read_numbers(const struct bf_args *args, size_t at, const struct cuckoo_numbers *defaults,
                         struct cuckoo_numbers *out, struct errbuf *error)
{
    int64_t capacity;
    *out = *defaults;
    if (args->argc <= at || (args->argc - at) % 2 == 0)
        return wrong_arity(args, error);
    if (!slice_to_int64(bf_arg(args, at), &capacity))
        return fail(error, "Bad capacity");
    if (!read_option(args, "MAXITERATIONS", 1, CUCKOO_MAX_ITERATIONS, &out->iterations, error) ||
        !read_option(args, "BUCKETSIZE", 1, CUCKOO_MAX_BUCKET_SIZE, &out->bucket_size, error) ||
        !read_option(args, "EXPANSION", 0, BLOOM_MAX_EXPANSION, &out->expansion, error))
        return false;
    if (!capacity_is_possible(capacity, out->bucket_size)) {
        errbuf_set(error, "Capacity must be in the range [2 * BUCKETSIZE, %llu]",
                   (unsigned long long)CUCKOO_MAX_CAPACITY);
        return false;
    }
    out->capacity = (uint64_t)capacity;
    return true;
}

bool cf_read_reserve(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cuckoo_numbers *out,
                     struct errbuf *error)
{
    return read_numbers(args, 2, defaults, out, error);
}

bool cf_read_plan(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cf_plan *out,
                  struct errbuf *error)
{
    static const char *const words[] = {"BUCKETSIZE", "MAXITERATIONS", "EXPANSION", "ITEMS"};
    struct slice value;
    int64_t items = 0;
    if (!read_numbers(args, 1, defaults, &out->numbers, error))
        return false;
    for (size_t i = 2; i < args->argc; i += 2) { /* ours: no word is passed over */
        bool known = false;
        for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
            known = known || slice_is(bf_arg(args, i), words[w]);
        if (!known)
            return fail(error, "ERR syntax error: the options are BUCKETSIZE, MAXITERATIONS, EXPANSION, ITEMS");
    }
    if (find_option(args, "ITEMS", &value) && (!slice_to_int64(value, &items) || items < 1))
        return fail(error, "ERR ITEMS must be a whole number of at least 1");
    out->items = (uint64_t)items;
    return true;
}

/* ---- CF.INSERT ---- */

/* RedisBloom looks at the first letter of a word only. */
static char letter_of(struct slice word)
{
    return (char)(word.len == 0 ? 0 : word.ptr[0] | 0x20);
}

static bool read_insert_capacity(struct slice word, struct cuckoo_numbers *numbers, struct errbuf *error)
{
    int64_t capacity;
    if (!slice_to_int64(word, &capacity))
        return fail(error, "Bad capacity");
    if (!capacity_is_possible(capacity, numbers->bucket_size)) {
        errbuf_set(error, "Capacity must be in the range [cf-bucket-size * 2, %llu]",
                   (unsigned long long)CUCKOO_MAX_CAPACITY);
        return false;
    }
    numbers->capacity = (uint64_t)capacity;
    return true;
}

bool cf_read_insert(const struct bf_args *args, const struct cuckoo_numbers *defaults, struct cf_insert *out,
                    struct errbuf *error)
{
    *out = (struct cf_insert){.numbers = *defaults};
    for (size_t i = 2; i < args->argc; i++) {
        switch (letter_of(bf_arg(args, i))) {
        case 'c':
            if (++i == args->argc)
                return wrong_arity(args, error);
            if (!read_insert_capacity(bf_arg(args, i), &out->numbers, error))
                return false;
            break;
        case 'n':
            out->no_create = true;
            break;
        case 'i':
            out->first_item = i + 1;
            return out->first_item < args->argc || wrong_arity(args, error);
        default:
            return fail(error, "Unknown argument received");
        }
    }
    return wrong_arity(args, error);
}

size_t cf_first_item(const struct bf_args *args)
{
    size_t i = 2;
    while (letter_of(bf_arg(args, i)) != 'i')
        i += letter_of(bf_arg(args, i)) == 'c' ? 2 : 1;
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
    return *full_out || args->argc == 2 || wrong_arity(args, error);
}

static void reply_full(const struct bf_out *out, const struct cuckoo_state *state)
{
    double slots = (double)state->slots, items = (double)state->items;
    bf_out_named_real(out, "Fill ratio", items / slots);
    bf_out_named_real(out, "Current error rate", state->rate);
    bf_out_named_real(out, "Bytes per item", state->items ? slots / items : 0);
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
        {"Size", INFO_FILTER_BYTES + (uint64_t)INFO_LAYER_BYTES * state.nlayers + state.slots},
        {"Number of buckets", state.buckets},
        {"Number of filters", state.nlayers},
        {"Number of items inserted", state.items},
        {"Number of items deleted", state.deletes},
        {"Bucket size", state.bucket_size},
        {"Expansion rate", params->expansion},
        {"Max iterations", params->iterations},
    };
    size_t n = sizeof(fields) / sizeof(fields[0]);
    out->ops->map(out->ctx, n + (full ? 3 : 0));
    for (size_t i = 0; i < n; i++)
        bf_out_named_count(out, fields[i].name, fields[i].value);
    if (full)
        reply_full(out, &state);
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
