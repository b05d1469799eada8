#include "bloom_clone.h"

#include <errno.h>
#include <stdlib.h>

#include "bloom_filter.h"
#include "cuckoo.h"

int bloom_clone_make(struct bloom_filter *filter, struct bloom_filter **clone_out, struct errbuf *err)
{
    struct bloom_class *class = bloom_filter_class_of(filter);
    struct bloom_filter *clone = malloc(bloom_filter_bytes(class));

    if (!clone || bloom_filter_init_instead(clone, class, err) != 0) {
        free(clone);
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    int rc = cuckoo_copy(filter, clone, err);
    if (rc != 0) {
        bloom_clone_free(clone);
        return -ENOMEM;
    }
    *clone_out = clone;
    return 0;
}

void bloom_clone_free(struct bloom_filter *clone)
{
    if (clone)
        bloom_filter_deinit(clone);
    free(clone);
}
