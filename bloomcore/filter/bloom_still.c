#include "bloom_still.h"

#include <errno.h>
#include <stdlib.h>

#include "bloom_filter.h"
#include "bloom_layer.h"
#include "cuckoo_slots.h"

/* The words of a still take memory as they are written, and count by themselves. */
static int init_uncharged(struct bloom_filter *shape, struct bloom_class *class, struct errbuf *err)
{
    uint64_t bytes = bloom_geometry_nwords(&class->geometry) * 8;

    bloom_pool_discharge(class->pool, bytes); /* the filter itself has charged as many */
    int rc = bloom_filter_init_instead(shape, class, err);
    if (rc != 0)
        bloom_pool_charge_anyway(class->pool, bytes);
    return rc;
}

static int push_uncharged(struct bloom_filter *shape, const struct bloom_filter *filter, unsigned index,
                          struct errbuf *err)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    struct bloom_layer_view view;

    bloom_filter_layer(filter, index, &view);
    bloom_pool_discharge(pool, view.shape.nwords * 8);
    int rc = bloom_filter_push_anyway(shape, &view.shape, err);
    if (rc != 0)
        bloom_pool_charge_anyway(pool, view.shape.nwords * 8);
    return rc;
}

static void free_shape(struct bloom_filter *shape)
{
    struct bloom_pool *pool = bloom_filter_class(shape)->pool;
    uint64_t bytes = bloom_filter_words_bytes(shape);

    bloom_filter_deinit(shape);
    bloom_pool_charge_anyway(pool, bytes);
    free(shape);
}

/* A filter with the first n layers; NULL without memory. */
static struct bloom_filter *make_shape(const struct bloom_filter *filter, unsigned n, struct errbuf *err)
{
    struct bloom_class *class = bloom_filter_class(filter);
    struct bloom_filter *shape = malloc(bloom_filter_bytes(class));

    if (!shape || init_uncharged(shape, class, err) != 0) {
        free(shape);
        return NULL;
    }
    for (unsigned i = 1; i < n; i++) {
        if (push_uncharged(shape, filter, i, err) != 0) {
            free_shape(shape);
            return NULL;
        }
    }
    for (struct bloom_layer *layer = bloom_filter_newest(shape); layer;
         layer = (struct bloom_layer *)bloom_layer_older(layer))
        if (!layer->geometry->words_inline)
            bloom_words_stay(&class->pool->maps, bloom_layer_words(layer), bloom_geometry_nwords(layer->geometry));
    return shape;
}

int bloom_still_begin(struct bloom_filter *filter, struct bloom_filter **still_out, struct errbuf *err)
{
    int rc = BLOOM_REFUSED;

    while (rc == BLOOM_REFUSED) { /* it has grown, or shrunk, meanwhile */
        struct bloom_filter *shape = make_shape(filter, bloom_filter_nlayers(filter), err);
        rc = shape ? cuckoo_still_attach(filter, shape) : -ENOMEM;
        *still_out = shape;
        if (rc != 0 && shape)
            free_shape(shape);
    }
    if (rc != 0)
        errbuf_set(err, "out of memory");
    return rc;
}

void bloom_still_end(struct bloom_filter *still)
{
    if (!still)
        return;
    cuckoo_still_detach(still);
    free_shape(still);
}
