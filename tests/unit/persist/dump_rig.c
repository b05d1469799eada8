#include "dump_rig.h"

#include <criterion/criterion.h>
#include <string.h>

struct bloom_pool *pool;
struct rng rng;

void dump_rig_init(uint64_t seed)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
    rng_init(&rng, seed);
}

void dump_rig_deinit(void)
{
    bloom_pool_destroy(pool);
}

struct bloom_filter *filter_of(const struct bloom_params *params, const struct bloom_shape *shapes, unsigned nlayers)
{
    struct bloom_filter *filter = filter_make(pool, params, shapes);
    struct errbuf err = {""};

    for (unsigned i = 1; i < nlayers; i++)
        cr_assert_eq(bloom_filter_append_layer(filter, &shapes[i], &err), 0, "%s", err.text);
    return filter;
}

struct bloom_filter *filled(uint64_t capacity, double rate, uint32_t expansion, unsigned items)
{
    struct bloom_params params = {capacity, rate, expansion};
    struct bloom_filter *filter = filter_of(&params, NULL, 1);

    for (unsigned i = 0; i < items; i++)
        bloom_filter_add(filter, (struct bloom_hash){rng_next(&rng), rng_next(&rng)}, NULL);
    return filter;
}

bool same(const struct bloom_filter *a, const struct bloom_filter *b)
{
    if (bloom_filter_nlayers(a) != bloom_filter_nlayers(b) ||
        memcmp(bloom_filter_params(a), bloom_filter_params(b), sizeof(struct bloom_params)) != 0)
        return false;
    for (unsigned i = 0; i < bloom_filter_nlayers(a); i++) {
        struct bloom_layer_view va, vb;

        bloom_filter_layer(a, i, &va);
        bloom_filter_layer(b, i, &vb);
        if (!bloom_shape_equal(&va.shape, &vb.shape) || va.items != vb.items ||
            memcmp((void *)va.words, (void *)vb.words, va.shape.nwords * 8) != 0)
            return false;
    }
    return true;
}
