/* Which numbers can describe a filter. */
#include "bloom_params.h"

static bool cuckoo_params_valid(const struct bloom_params *params, struct errbuf *err)
{
    bool power = (params->expansion & (params->expansion - 1)) == 0;

    if (params->iterations < 1 || params->window ||
        (params->redisbloom & ~(BLOOM_OPTION_CUCKOO | BLOOM_OPTION_RATE | REDISBLOOM_NO_SCALING)))
        errbuf_set(err, "invalid options %u and %u iterations of a cuckoo filter", params->redisbloom,
                   params->iterations);
    else if (!power || !(params->redisbloom & REDISBLOOM_NO_SCALING) != (params->expansion != 0))
        errbuf_set(err, "expansion %u of a cuckoo filter is not a power of two, or contradicts its options %u",
                   params->expansion, params->redisbloom);
    else
        return true;
    return false;
}

static bool options_valid(const struct bloom_params *params, struct errbuf *err)
{
    unsigned options = params->redisbloom;

    if (options == BLOOM_OPTION_BLOCKED)
        return true;
    if (options & ~REDISBLOOM_OPTIONS)
        errbuf_set(err, "unknown options %u", options);
    else if (options && !(options & REDISBLOOM_NO_SCALING) != (params->expansion != 0))
        errbuf_set(err, "options %u and expansion %u contradict each other", options, params->expansion);
    else
        return true;
    return false;
}

static bool seeded_params_valid(const struct bloom_params *params, struct errbuf *err)
{
    if (params->redisbloom != BLOOM_OPTION_VALKEY)
        errbuf_set(err, "unknown options %u", params->redisbloom);
    else if (!(params->tightening > 0 && params->tightening < 1))
        errbuf_set(err, "tightening ratio must be in the range (0, 1)");
    else if (params->key)
        errbuf_set(err, "a filter of LAYOUT valkey cannot be KEYED: it has a secret of its own, its seed");
    else
        return true;
    return false;
}

/* ---- shapes ---- */

bool bloom_shape_equal(const struct bloom_shape *a, const struct bloom_shape *b)
{
    return a->nwords == b->nwords && a->k == b->k && a->variant == b->variant && a->n2 == b->n2 &&
           a->spare_bytes == b->spare_bytes && a->capacity == b->capacity && a->error_rate == b->error_rate &&
           a->bpe == b->bpe && a->level == b->level;
}

static bool window_valid(const struct bloom_params *params, struct errbuf *err)
{
    bool by_items = params->window_flags & BLOOM_WINDOW_ITEMS;

    if (params->window == 0) {
        if (params->window_parts == 0 && params->window_flags == 0)
            return true;
        return errbuf_fail(err, false, "parts of a window without a window");
    }
    if (params->redisbloom && params->redisbloom != BLOOM_OPTION_BLOCKED)
        return errbuf_fail(err, false,
                           "a window has Cassandra's layout or LAYOUT blocked, not LAYOUT redisbloom or valkey");
    if (params->window_parts < 1 || params->window_parts > BLOOM_WINDOW_MAX_PARTS ||
        params->window_flags & ~(BLOOM_WINDOW_ITEMS | BLOOM_WINDOW_REFRESH))
        return errbuf_fail(err, false, "the parts of a window must be in the range [1, %d]", BLOOM_WINDOW_MAX_PARTS);
    if (by_items ? params->window < params->window_parts || params->window > BLOOM_WINDOW_MAX_ITEMS
                 : params->window < BLOOM_WINDOW_MIN_US || params->window > BLOOM_WINDOW_MAX_US) {
        if (by_items)
            errbuf_set(err, "the items of a window must be in the range [%u, %llu]: at least one per part",
                       params->window_parts, (unsigned long long)BLOOM_WINDOW_MAX_ITEMS);
        else
            errbuf_set(err, "the seconds of a window must be in the range [1, %lld]",
                       (long long)(BLOOM_WINDOW_MAX_US / 1000000));
        return false;
    }
    return true;
}

bool bloom_params_valid(const struct bloom_params *params, struct errbuf *err)
{
    if (params->capacity < 1)
        return errbuf_fail(err, false, "capacity must be at least 1");
    if (!(params->error_rate > 0 && params->error_rate < 1))
        return errbuf_fail(err, false, "error rate must be in the range (0, 1)");
    if (params->expansion > BLOOM_MAX_EXPANSION && !bloom_params_have_seed(params))
        return errbuf_fail(err, false, "expansion must be in the range [0, %d]", BLOOM_MAX_EXPANSION);
    if (bloom_params_is_cuckoo(params))
        return cuckoo_params_valid(params, err);
    if (params->iterations)
        return errbuf_fail(err, false, "iterations of a filter that is not a cuckoo filter");
    if (!window_valid(params, err))
        return false;
    return bloom_params_have_seed(params) ? seeded_params_valid(params, err) : options_valid(params, err);
}
