#include "bloom_alone.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int bloom_alone_init(struct bloom_alone *alone, const struct bloom_shape *shape, const struct bloom_params *params,
                     struct errbuf *err)
{
    const struct bloom_params any = {.capacity = UINT64_MAX, .error_rate = 0.5, .expansion = 1};

    *alone = (struct bloom_alone){NULL, NULL, NULL};
    int rc = bloom_pool_create(&alone->pool);
    if (rc == 0)
        rc = bloom_class_get(alone->pool, params ? params : &any, shape, &alone->class, err);
    if (rc == 0) {
        struct bloom_filter *filter = malloc(bloom_filter_bytes(alone->class));
        rc = filter ? bloom_filter_init(filter, alone->class, err) : -ENOMEM;
        if (rc == 0)
            alone->filter = filter;
        else
            free(filter);
    }
    if (rc < 0)
        errbuf_set(err, "%s", strerror(-rc));
    if (rc != 0)
        bloom_alone_deinit(alone);
    else
        bloom_filter_expect_fill(alone->filter);
    return rc;
}

void bloom_alone_deinit(struct bloom_alone *alone)
{
    if (alone->filter)
        bloom_filter_deinit(alone->filter);
    free(alone->filter);
    bloom_class_release(alone->class);
    bloom_pool_destroy(alone->pool);
    *alone = (struct bloom_alone){NULL, NULL, NULL};
}
