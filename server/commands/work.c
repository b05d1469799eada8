#include "work.h"

#include "bloom_batch.h"

uint32_t work_of_item(const struct bloom_filter *filter, bool adds)
{
    uint32_t work = bloom_filter_nlayers(filter) + WORK_PAGE * bloom_filter_young_bits(filter);
    const struct bloom_params *params = bloom_filter_params(filter);
    if (!adds || !bloom_params_is_cuckoo(params))
        return work;
    return work + (bloom_filter_beyond_cache(filter) ? params->iterations : params->iterations / 8);
}
