/* RedisBloom's bytes of cuckoo filters. The first byte chooses: the header of a dump in chunks; otherwise the result
 * of a DUMP, with its checksum corrected first. Accepted small input becomes a filter, which is dumped and restored
 * with the same bytes, and then used: each added item is there, and copies and compactions keep the items. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_pool.h"
#include "bloom_filter.h"
#include "bytes.h"
#include "crc64.h"
#include "cuckoo.h"
#include "cuckoo_dump.h"
#include "fuzz_filters.h"

#define MAX_BYTES  (1u << 18) /* larger filters are not created here */
#define MAX_LAYERS 64
#define ITEMS      4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether these are bytes of one layer. */
static bool has_bytes(const struct bloom_filter *filter, uint64_t at, uint64_t len)
{
    unsigned layer;
    uint64_t left;

    return bloom_filter_find_byte(filter, &at, &layer, &left) && len <= left;
}

/* NULL: it would be too large; there is no other refusal. */
static struct bloom_filter *make(struct bloom_pool *pool, const struct dump_plan *plan)
{
    if (plan->bytes > MAX_BYTES || plan->nlayers > MAX_LAYERS)
        return NULL;
    struct bloom_filter *filter = make_up_to(pool, plan, MAX_BYTES);
    CHECK(filter);
    return filter;
}

static void expect_dump(const struct bloom_filter *filter, const unsigned char *dump, uint64_t len)
{
    unsigned char *again;
    uint64_t again_len;

    CHECK(cuckoo_dump(filter, UINT64_MAX, &again, &again_len) == DUMP_OK);
    CHECK(again_len == len && memcmp(again, dump, (size_t)len) == 0);
    free(again);
}

/* The same filter, by its dump, by a still, and by a header and chunks. */
static void make_again(struct bloom_pool *pool, struct bloom_filter *filter)
{
    unsigned char *dump, bytes[MAX_BYTES];
    struct bloom_filter *still;
    struct cuckoo_head head;
    struct dump_plan plan;
    struct errbuf err = {""};
    uint64_t len;

    CHECK(cuckoo_dump(filter, UINT64_MAX, &dump, &len) == DUMP_OK);
    CHECK(cuckoo_is_dump(dump, (size_t)len) && cuckoo_restore_plan(dump, (size_t)len, &plan, &err) == DUMP_OK);
    struct bloom_filter *again = make(pool, &plan);
    CHECK(again);
    cuckoo_restore(dump, (size_t)len, again);
    expect_dump(again, dump, len);
    drop(again);
    CHECK(bloom_still_begin(filter, &still, &err) == 0);
    expect_dump(still, dump, len);
    bloom_still_end(still);

    cuckoo_head_of(filter, &head);
    CHECK(cuckoo_head_plan(&head, &plan, &err) == DUMP_OK);
    plan.nlayers = 1;
    again = make(pool, &plan);
    CHECK(again && cuckoo_extend(again, (unsigned)head.nlayers, head.deletes, NULL, &err) == BLOOM_OK);
    cuckoo_read(filter, 0, bytes, (size_t)cuckoo_bytes_of(filter));
    for (uint64_t at = 0, i = 0; i < head.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(again, (unsigned)i, &view);
        cuckoo_set_slots(again, at, bytes + at, (size_t)bloom_shape_bytes(&view.shape), NULL);
        at += bloom_shape_bytes(&view.shape);
    }
    expect_dump(again, dump, len);
    drop(again);
    free(dump);
}

static void use(struct bloom_filter *filter, uint64_t seed)
{
    struct cuckoo_state state;
    bool there[ITEMS];

    for (uint64_t i = 0; i < ITEMS; i++) {
        there[i] = cuckoo_add(filter, seed * (i + 1), i % 2, NULL, NULL) <= BLOOM_ADDED;
        CHECK(cuckoo_query(filter, seed * (i + 1)) == (cuckoo_count(filter, seed * (i + 1)) > 0));
        CHECK(!there[i] || cuckoo_query(filter, seed * (i + 1)));
    }
    cuckoo_compact_begin(filter, seed & 1);
    cuckoo_compact(filter, 1000, NULL);
    for (uint64_t i = 0; i < ITEMS; i++)
        CHECK(!there[i] || cuckoo_query(filter, seed * (i + 1)));
    (void)cuckoo_delete(filter, seed, NULL);
    cuckoo_state(filter, &state);
    CHECK(state.items <= state.slots && state.bytes == cuckoo_bytes_of(filter));
    cuckoo_recount(filter);
    uint64_t items = state.items;
    cuckoo_state(filter, &state);
    CHECK(state.items == items);
}

static uint64_t seed_of(const uint8_t *bytes, size_t len)
{
    return cuckoo_hash(bytes, len) | 1;
}

static void try_dump(struct bloom_pool *pool, uint8_t *bytes, size_t len)
{
    struct dump_plan plan;
    struct errbuf err = {""};

    if (len > 10)
        le64_put(bytes + len - 8, crc64(0, bytes, len - 8));
    int rc = cuckoo_is_dump(bytes, len) ? cuckoo_restore_plan(bytes, len, &plan, &err) : DUMP_BAD;
    struct bloom_filter *filter = rc == DUMP_OK ? make(pool, &plan) : NULL;
    CHECK(rc != DUMP_OK || err.text[0] == '\0');
    if (!filter)
        return;
    cuckoo_restore(bytes, len, filter);
    make_again(pool, filter);
    use(filter, seed_of(bytes, len));
    drop(filter);
}

static void try_header(struct bloom_pool *pool, const uint8_t *bytes, size_t len)
{
    unsigned char again[CUCKOO_HEADER_MAX];
    struct cuckoo_head head;
    struct dump_plan plan;
    struct errbuf err = {""};

    if (!cuckoo_head_get(bytes, len, &head))
        return;
    CHECK(cuckoo_head_put(&head, again) == len && memcmp(bytes, again, len) == 0);
    int rc = cuckoo_head_plan(&head, &plan, &err);
    CHECK((rc == DUMP_OK) == (err.text[0] == '\0'));
    struct bloom_filter *filter = rc == DUMP_OK ? make(pool, &plan) : NULL;
    if (!filter)
        return;
    CHECK(cuckoo_bytes_of(filter) <= plan.bytes && bloom_filter_nlayers(filter) == head.nlayers);
    CHECK(!has_bytes(filter, cuckoo_bytes_of(filter), 1) && has_bytes(filter, 0, 1));
    use(filter, seed_of(bytes, len));
    drop(filter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bloom_pool *pool;

    if (size == 0)
        return 0;
    uint8_t *bytes = malloc(size);
    CHECK(bytes && bloom_pool_create(&pool) == 0);
    memcpy(bytes, data + 1, size - 1);
    if (data[0] == 'H')
        try_header(pool, bytes, size - 1);
    else
        try_dump(pool, bytes, size - 1);
    CHECK(bloom_pool_bytes(pool) == 0);
    bloom_pool_destroy(pool);
    free(bytes);
    return 0;
}
