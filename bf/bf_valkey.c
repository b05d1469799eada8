/* Texts, the order of checks, and sizes are valkey-bloom's (docs/COMPATIBILITY.md). */
#include "bf_valkey.h"

#include <float.h>
#include <math.h>
#include <sys/random.h>

#include "bloom_layout.h"
#include "check.h"
#include "redisbloom.h"
#include "valkey.h"

#define BAD_CAPACITY "ERR bad capacity"
#define TOO_LARGE    "ERR operation exceeds bloom object memory limit"
#define RATE_ENDS    "ERR false positive degrades to 0 on scale out"

/* ---- seeds ---- */

void bf_draw_seed(struct bloom_params *params, bool fresh)
{
    if (fresh)
        CHECK(getrandom(&params->seed, BLOOM_SEED_BYTES, 0) == BLOOM_SEED_BYTES);
}

/* Whether the parameters are of a layout with a seed and lack one, unless it is the fixed one, which they get. */
static bool bf_valkey_lacks_seed(struct bloom_params *params, const struct bf_defaults *defaults, bool given)
{
    bool has = bloom_params_have_seed(params);
    if (has && !given && defaults->fixed_seed)
        params->seed = valkey_fixed_seed;
    return has && !given && !defaults->fixed_seed;
}

/* Gives a new filter this layout: BLOOM_NA, BLOOM_REDISBLOOM or BLOOM_VALKEY, once its rate, expansion and tightening
 * ratio are set; the last one only remains if the layout has one. RedisBloom's rate is at most REDISBLOOM_MAX_RATE. */
static void bf_set_layout(struct bloom_params *params, enum bloom_variant layout)
{
    unsigned redisbloom = REDISBLOOM_DEFAULT | (params->expansion ? 0 : REDISBLOOM_NO_SCALING);

    params->redisbloom = (uint8_t)(layout == BLOOM_REDISBLOOM ? redisbloom : bloom_layout_of(layout)->options);
    if (layout == BLOOM_REDISBLOOM && params->error_rate > REDISBLOOM_MAX_RATE)
        params->error_rate = REDISBLOOM_MAX_RATE;
    if (!bloom_params_have_seed(params))
        params->tightening = 0;
}

void bf_defaults_take(struct bf_defaults *defaults, enum bloom_variant layout)
{
    defaults->params.tightening = defaults->tightening;
    bf_set_layout(&defaults->params, layout);
    defaults->fresh_seed = bf_valkey_lacks_seed(&defaults->params, defaults, false);
    defaults->keyed &= !bloom_params_have_seed(&defaults->params);
    defaults->params.key = defaults->keyed ? defaults->key : 0;
}

/* ---- sizes ---- */

#define OBJECT_BYTES 48  /* of an object, */
#define SLOT_BYTES   8   /* of each slot in its vector of layers, */
#define LAYER_BYTES  208 /* and of a layer without its bits */

static uint64_t object_bytes(unsigned nlayers)
{
    uint64_t slots = nlayers > 1 ? 4 : 1;

    while (slots < nlayers)
        slots *= 2;
    return OBJECT_BYTES + SLOT_BYTES * slots;
}

uint64_t bf_valkey_size(const struct bloom_filter *filter)
{
    unsigned nlayers = bloom_filter_nlayers(filter);
    uint64_t bytes = object_bytes(nlayers);

    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        bytes += LAYER_BYTES + bloom_shape_bytes(&view.shape);
    }
    return bytes;
}

/* Adds up layers until they have `items`. NULL, or the reason why there is no layer more; *items_out is their sum. */
static const char *scale(const struct bloom_params *params, uint64_t items, uint64_t limit, uint64_t *items_out)
{
    uint64_t bytes = 0, capacity = params->capacity, sum = 0;
    const char *reason = NULL;

    for (unsigned i = 0; !reason && sum < items && i < BLOOM_MAX_LAYERS && (i == 0 || params->expansion); i++) {
        double rate = valkey_layer_rate(params->error_rate, params->tightening, i);
        struct bloom_shape shape;
        if (!(rate > DBL_MIN) || -log2(rate) > BLOOM_MAX_HASHES)
            reason = RATE_ENDS;
        else if (valkey_size(0, capacity, rate, &shape, NULL) != BLOOM_OK ||
                 (limit && object_bytes(i + 1) + bytes + LAYER_BYTES + bloom_shape_bytes(&shape) > limit))
            reason = TOO_LARGE;
        else
            sum += capacity;
        bytes += LAYER_BYTES + (reason ? 0 : bloom_shape_bytes(&shape));
        if (!reason && __builtin_mul_overflow(capacity, (uint64_t)params->expansion, &capacity))
            reason = TOO_LARGE;
    }
    *items_out = sum;
    return sum < items && !reason ? RATE_ENDS : reason;
}

uint64_t bf_valkey_most(const struct bloom_params *params, uint64_t limit)
{
    uint64_t items;

    (void)scale(params, UINT64_MAX, limit, &items);
    return items;
}

const char *bf_valkey_refusal(const struct bf_args *args, const struct bloom_params *params,
                              const struct bf_defaults *defaults)
{
    uint64_t items;

    return args->valkey && bloom_params_have_seed(params) ? scale(params, 1, defaults->limit, &items) : NULL;
}

/* The error of VALIDATESCALETO, once the parameters are complete; NULL: there is none. */
static const char *bf_valkey_scale_error(const struct bloom_params *params, const struct bf_valkey_words *words,
                                         uint64_t limit)
{
    uint64_t items;

    if (words->scale_to == 0)
        return NULL;
    if (params->expansion == 0)
        return "ERR cannot use NONSCALING and VALIDATESCALETO options together";
    const char *reason = scale(params, words->scale_to, limit, &items);
    if (items >= words->scale_to)
        return NULL;
    return strcmp(reason, TOO_LARGE) == 0 ? "ERR provided VALIDATESCALETO causes bloom object to exceed memory limit"
                                          : "ERR provided VALIDATESCALETO causes false positive to degrade to 0";
}

const char *bf_valkey_no_growth(const struct bloom_filter *filter)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    double rate = valkey_layer_rate(params->error_rate, params->tightening, bloom_filter_nlayers(filter));

    return rate > DBL_MIN && -log2(rate) <= BLOOM_MAX_HASHES ? TOO_LARGE : RATE_ENDS;
}

/* ---- layouts ---- */

bool bf_valkey_settle(struct bloom_params *params, const struct bf_defaults *defaults,
                      const struct bf_valkey_words *words, bool *fresh_out, struct errbuf *error)
{
    if (words->given && !bloom_params_have_seed(params))
        return bf_refuse(error, "ERR SEED, TIGHTENING and VALIDATESCALETO need LAYOUT valkey");
    bf_set_layout(params, bloom_params_variant(params));
    *fresh_out = bf_valkey_lacks_seed(params, defaults, words->seed);
    const char *why_not = defaults->obeys ? NULL : bf_valkey_scale_error(params, words, defaults->limit);
    return !why_not || bf_refuse(error, why_not);
}

/* ---- values ---- */

/* A number above 0 and below 1. A text that means no number of that kind, as infinity, is out of range. */
static bool read_share(struct slice value, double *out, const char *bad, const char *range, struct errbuf *error)
{
    if (!slice_is(value, "NAN") && (!slice_to_double(value, out) || memchr(value.ptr, 'x', value.len)))
        return bf_refuse(error, bad);
    return (!slice_is(value, "NAN") && *out > 0 && *out < 1) || bf_refuse(error, range);
}

static bool read_rate(struct slice value, double *out, struct errbuf *error)
{
    return read_share(value, out, "ERR bad error rate", "ERR (0 < error rate range < 1)", error);
}

/* Of 63 bits, with a sign and zeros in front. */
static bool read_number(struct slice value, int64_t *out)
{
    if (value.len > 1 && value.ptr[0] == '+')
        value = (struct slice){value.ptr + 1, value.len - 1};
    while (value.len > 1 && value.ptr[0] == '0')
        value = (struct slice){value.ptr + 1, value.len - 1};
    return slice_to_int64(value, out) && *out >= 0;
}

static bool read_capacity(struct slice value, uint64_t *out, struct errbuf *error)
{
    int64_t number;

    if (!read_number(value, &number))
        return bf_refuse(error, BAD_CAPACITY);
    *out = (uint64_t)number;
    return number > 0 || bf_refuse(error, "ERR (capacity should be larger than 0)");
}

static bool read_expansion(struct slice value, uint32_t *out, struct errbuf *error)
{
    int64_t number;

    if (!read_number(value, &number) || number < 1 || number > UINT32_MAX)
        return bf_refuse(error, "ERR bad expansion");
    *out = (uint32_t)number;
    return true;
}

/* ---- commands ---- */

bool bf_valkey_has_ours(const struct bf_args *args, size_t first)
{
    static const char *const ours[] = {"LAYOUT", "TTL", "KEYED", "WINDOW", "PARTS", "REFRESH", "OWNER"};

    for (; first < args->argc && !slice_is(bf_arg(args, first), "ITEMS"); first++)
        for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
            if (slice_is(bf_arg(args, first), ours[i]))
                return true;
    return false;
}

bool bf_valkey_option(const struct bf_args *args, size_t *i, struct bloom_params *params, struct bf_valkey_words *words,
                      struct errbuf *error)
{
    struct slice word = bf_arg(args, *i);

    error->text[0] = '\0';
    if (!slice_is(word, "SEED") && !slice_is(word, "TIGHTENING") && !slice_is(word, "VALIDATESCALETO"))
        return false;
    words->given = true;
    if (++*i == args->argc)
        return bf_wrong_arity(args, error);
    struct slice value = bf_arg(args, *i);
    if (slice_is(word, "VALIDATESCALETO"))
        return read_capacity(value, &words->scale_to, error);
    if (slice_is(word, "TIGHTENING"))
        return read_share(value, &params->tightening, "ERR bad tightening ratio",
                          "ERR (0 < tightening ratio range < 1)", error);
    if (value.len != BLOOM_SEED_BYTES)
        return bf_refuse(error, "ERR invalid seed");
    memcpy(&params->seed, value.ptr, BLOOM_SEED_BYTES);
    words->seed = true;
    return true;
}

bool bf_valkey_reserve(const struct bf_args *args, struct bloom_params *params, bool *fixed_out, struct errbuf *error)
{
    if (args->argc < 4 || args->argc > 6)
        return bf_wrong_arity(args, error);
    if (!read_rate(bf_arg(args, 2), &params->error_rate, error) ||
        !read_capacity(bf_arg(args, 3), &params->capacity, error))
        return false;
    if (args->argc == 4)
        return true;
    *fixed_out = args->argc == 5;
    if (!slice_is(bf_arg(args, 4), *fixed_out ? "NONSCALING" : "EXPANSION"))
        return bf_refuse(error, "ERROR");
    return *fixed_out || read_expansion(bf_arg(args, 5), &params->expansion, error);
}

/* The last of several options with one meaning counts. */
bool bf_valkey_insert(const struct bf_args *args, struct bf_insert *out, struct bf_valkey_words *words, bool *fixed_out,
                      struct errbuf *error)
{
    struct bloom_params *params = &out->params;

    for (size_t i = 2; i < args->argc; i++) {
        struct slice word = bf_arg(args, i);
        bool capacity = slice_is(word, "CAPACITY"), rate = slice_is(word, "ERROR");
        if (slice_is(word, "ITEMS")) {
            out->first_item = i + 1;
            return out->first_item < args->argc || bf_wrong_arity(args, error);
        }
        if (slice_is(word, "NOCREATE")) {
            out->no_create = true;
        } else if (slice_is(word, "NONSCALING")) {
            *fixed_out = true;
        } else if (capacity || rate || slice_is(word, "EXPANSION")) {
            if (++i == args->argc)
                return bf_wrong_arity(args, error);
            struct slice value = bf_arg(args, i);
            if (!(capacity ? read_capacity(value, &params->capacity, error)
                  : rate   ? read_rate(value, &params->error_rate, error)
                           : read_expansion(value, &params->expansion, error)))
                return false;
            *fixed_out &= capacity || rate;
            out->sized |= capacity || rate;
        } else if (!bf_valkey_option(args, &i, params, words, error)) {
            return error->text[0] ? false : bf_refuse(error, "ERR unknown argument received");
        }
    }
    out->first_item = args->argc;
    return true;
}
