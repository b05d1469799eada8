#include "replay_operations.h"

#include <errno.h>
#include <stdlib.h>

#include "cuckoo.h"
#include "grow.h"

int replay_operations_take(struct replay_operations *operations, unsigned layer, const struct bloom_replay_item *items,
                           size_t n, uint64_t counted)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t ordinal = cuckoo_ordinal(layer, items[i].ordinal);
        if (ordinal <= counted)
            continue;
        if (GROW(operations->items, operations->n, operations->room) != 0)
            return -ENOMEM;
        operations->items[operations->n++] = (struct bloom_replay_item){items[i].hash, ordinal};
    }
    return 0;
}

static int by_ordinal(const void *a, const void *b)
{
    uint64_t x = ((const struct bloom_replay_item *)a)->ordinal, y = ((const struct bloom_replay_item *)b)->ordinal;
    return (x > y) - (x < y);
}

/* Ordinals whose lower bits are 0 are not given. */
static bool follows(uint64_t last, uint64_t ordinal)
{
    bool skipped = ((last + 1) & ((UINT64_C(1) << CUCKOO_ORDINAL_BITS) - 1)) == 0;
    return ordinal == last + 1 + skipped;
}

uint64_t replay_operations_do(struct replay_operations *operations, struct bloom_filter *filter, uint64_t *left_out)
{
    struct cuckoo_state state;
    cuckoo_state(filter, &state);
    uint64_t done = 0, last = state.ordinal;
    bool gap = false;
    *left_out = 0;
    if (operations->n)
        qsort(operations->items, operations->n, sizeof(operations->items[0]), by_ordinal);
    for (size_t i = 0; i < operations->n; i++) {
        const struct bloom_replay_item *item = &operations->items[i];
        if (item->ordinal == last)
            continue;
        gap |= !follows(last, item->ordinal);
        last = item->ordinal;
        if (gap && !cuckoo_only_adds(item))
            ++*left_out;
        else
            done += cuckoo_replay(filter, item, item->ordinal);
    }
    return done;
}

void replay_operations_deinit(struct replay_operations *operations)
{
    free(operations->items);
    *operations = (struct replay_operations){0};
}
