/* Declarations that the files of the library share. A bloomery_filter is a bloomcore filter with its own pool. */
#pragma once

#include "bloom_filter.h"
#include "bloomery.h"
#include "errbuf.h"

struct bloomery_filter {
    struct bloom_alone alone; /* zero: no layers */
    uint8_t variant;          /* of all layers, and if there are none */
};

/* Copies the reason, unless the status is BLOOMERY_OK, and returns the status. */
int bloomery_end(int status, const struct errbuf *err, char *text, size_t size);

/* The status for one of bloomcore: 0, BLOOM_REFUSED, BLOOM_LIMIT or -ENOMEM. */
int bloomery_status_of(int rc);

/* "na" and so on; BLOOMERY_REFUSED for other texts and NULL. */
int bloomery_parse_layout(const char *layout, enum bloom_variant *variant_out, struct errbuf *err);

/* A filter without layers; NULL without memory. */
bloomery_filter *bloomery_new(enum bloom_variant variant, struct errbuf *err);

void bloomery_view(const bloomery_filter *filter, unsigned layer, struct bloom_layer_view *view_out);
