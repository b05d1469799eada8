#include "cuckoo_dump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "check.h"
#include "cuckoo.h"
#include "redisbloom_dump.h"
#include "errbuf.h"

#define HEAD_FIELDS 11

/* ---- numbers ---- */

void cuckoo_head_of(const struct bloom_filter *filter, struct cuckoo_head *head_out)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct cuckoo_state state;

    cuckoo_state(filter, &state);
    *head_out = (struct cuckoo_head){
        .items = state.items,
        .buckets = state.buckets,
        .deletes = state.deletes,
        .nlayers = state.nlayers,
        .bucket_size = state.bucket_size,
        .iterations = params->iterations,
        .expansion = params->expansion,
    };
    if (bloom_params_keep_rate(params)) {
        head_out->bits = state.slot_bits;
        head_out->capacity = params->capacity;
        head_out->error_rate = params->error_rate;
        head_out->key = params->key;
    }
}

size_t cuckoo_head_put(const struct cuckoo_head *head, unsigned char out[CUCKOO_HEADER_MAX])
{
    out = le64_put(out, head->items);
    out = le64_put(out, head->buckets);
    out = le64_put(out, head->deletes);
    out = le64_put(out, head->nlayers);
    out = le16_put(out, (uint16_t)head->bucket_size);
    out = le16_put(out, (uint16_t)head->iterations);
    out = le16_put(out, (uint16_t)head->expansion);
    if (head->bits == 0)
        return CUCKOO_HEADER_BYTES;
    out = le16_put(out, (uint16_t)head->bits);
    out = le64_put(out, head->capacity);
    out = le_double_put(out, head->error_rate);
    le64_put(out, head->key);
    return CUCKOO_HEADER_MAX;
}

bool cuckoo_head_get(const unsigned char *bytes, size_t len, struct cuckoo_head *head_out)
{
    if (len != CUCKOO_HEADER_BYTES && len != CUCKOO_HEADER_MAX)
        return false;
    *head_out = (struct cuckoo_head){
        .items = le64_get(bytes),
        .buckets = le64_get(bytes + 8),
        .deletes = le64_get(bytes + 16),
        .nlayers = le64_get(bytes + 24),
        .bucket_size = le16_get(bytes + 32),
        .iterations = le16_get(bytes + 34),
        .expansion = le16_get(bytes + 36),
    };
    if (len == CUCKOO_HEADER_BYTES)
        return true;
    head_out->bits = le16_get(bytes + 38);
    head_out->capacity = le64_get(bytes + 40);
    head_out->error_rate = le_double_get(bytes + 48);
    head_out->key = le64_get(bytes + 56);
    return head_out->bits != 0;
}

static bool is_power(uint64_t n)
{
    return n && (n & (n - 1)) == 0;
}

/* Checks a number of the head. */
static bool is_one(bool possible, const char *what, uint64_t value, struct errbuf *err)
{
    if (!possible)
        errbuf_set(err, "%s: %llu is not possible", what, (unsigned long long)value);
    return possible;
}

static bool rate_is_possible(const struct cuckoo_head *head, struct errbuf *err)
{
    return is_one(cuckoo_bits_possible((double)head->bits), "bits of a slot", head->bits, err) &&
           is_one(head->bucket_size == CUCKOO_RATE_BUCKET, "bucket size", head->bucket_size, err) &&
           is_one(head->buckets >= CUCKOO_RATE_MIN_SLOTS / CUCKOO_RATE_BUCKET, "number of buckets", head->buckets,
                  err) &&
           is_one(head->capacity >= 1, "capacity", head->capacity, err) &&
           is_one(head->error_rate > 0 && head->error_rate < 1, "error rate, the bits of which are", head->bits, err);
}

static bool head_is_possible(const struct cuckoo_head *head, struct errbuf *err)
{
    return is_one(head->nlayers >= 1 && head->nlayers <= BLOOM_MAX_LAYERS, "number of sub-filters", head->nlayers,
                  err) &&
           (head->bits ? rate_is_possible(head, err)
                       : is_one(is_power(head->buckets), "number of buckets", head->buckets, err)) &&
           is_one(head->bucket_size >= 1 && head->bucket_size <= CUCKOO_MAX_BUCKET_SIZE, "bucket size",
                  head->bucket_size, err) &&
           is_one(head->iterations >= 1 && head->iterations <= CUCKOO_MAX_ITERATIONS, "max iterations",
                  head->iterations, err) &&
           is_one(head->expansion == 0 ? head->nlayers == 1
                                       : is_power(head->expansion) && head->expansion <= BLOOM_MAX_EXPANSION,
                  "expansion rate", head->expansion, err) &&
           is_one(head->deletes < UINT64_C(1) << 60, "number of deletions", head->deletes, err);
}

static int shape_at(const struct cuckoo_head *head, const struct bloom_shape *shapes, unsigned i,
                    struct bloom_shape *shape_out, struct errbuf *err)
{
    if (i > 0)
        return cuckoo_next_shape(&shapes[i - 1], (unsigned)head->expansion, shape_out, err);
    return head->bits ? cuckoo_rate_shape(head->buckets, (unsigned)head->bits, shape_out, err)
                      : cuckoo_layer_shape(head->buckets, (unsigned)head->bucket_size, shape_out, err);
}

static void plan_params(const struct cuckoo_head *head, const struct bloom_shape *first, struct bloom_params *params)
{
    *params = (struct bloom_params){
        .capacity = head->bits ? head->capacity : first->capacity,
        .error_rate = head->bits ? head->error_rate : first->error_rate,
        .expansion = (uint32_t)head->expansion,
        .redisbloom = (uint8_t)(BLOOM_OPTION_CUCKOO | (head->expansion ? 0 : REDISBLOOM_NO_SCALING) |
                                (head->bits ? BLOOM_OPTION_RATE : 0)),
        .key = head->key,
        .iterations = (uint16_t)head->iterations,
    };
}

int cuckoo_head_plan(const struct cuckoo_head *head, struct dump_plan *plan_out, struct errbuf *err)
{
    uint64_t slots = 0;

    if (!head_is_possible(head, err))
        return DUMP_BAD;
    *plan_out = (struct dump_plan){.nlayers = (unsigned)head->nlayers, .items = head->items};
    for (unsigned i = 0; i < plan_out->nlayers; i++) {
        struct bloom_shape *shape = &plan_out->shapes[i];
        if (shape_at(head, plan_out->shapes, i, shape, err) != BLOOM_OK)
            return errbuf_fail(err, DUMP_BAD, "sub-filter %u: it would be too large", i);
        plan_out->bytes += shape->nwords * 8;
        slots += shape->capacity;
    }
    if (!is_one(head->items <= slots, "number of items", head->items, err))
        return DUMP_BAD;
    plan_params(head, &plan_out->shapes[0], &plan_out->params);
    return is_one(head->nlayers <= cuckoo_most_layers(&plan_out->params, &plan_out->shapes[0]),
                  "number of sub-filters at this error rate", head->nlayers, err)
               ? DUMP_OK
               : DUMP_BAD;
}

/* ---- reading ---- */

static int read_rate(struct rdb_reader *reader, struct cuckoo_head *head)
{
    uint64_t rate;
    TRY(rdb_module_unsigned(reader, &head->bits, "the bits of a slot"));
    TRY(rdb_module_unsigned(reader, &head->capacity, "the capacity"));
    TRY(rdb_module_unsigned(reader, &rate, "the error rate"));
    memcpy(&head->error_rate, &rate, sizeof(rate));
    return rdb_module_unsigned(reader, &head->key, "the key");
}

static int read_head(struct rdb_reader *reader, struct cuckoo_head *head, bool own)
{
    *head = (struct cuckoo_head){0};
    TRY(rdb_module_unsigned(reader, &head->nlayers, "the number of sub-filters"));
    TRY(rdb_module_unsigned(reader, &head->buckets, "the number of buckets"));
    TRY(rdb_module_unsigned(reader, &head->items, "the number of items"));
    TRY(rdb_module_unsigned(reader, &head->deletes, "the number of deletions"));
    TRY(rdb_module_unsigned(reader, &head->bucket_size, "the bucket size"));
    TRY(rdb_module_unsigned(reader, &head->iterations, "the max iterations"));
    TRY(rdb_module_unsigned(reader, &head->expansion, "the expansion rate"));
    return own ? read_rate(reader, head) : RDB_OK;
}

struct filling {
    cuckoo_make_fn *make; /* NULL: the filter is known, or the slots are only checked */
    void *ctx;
    const struct dump_plan *plan;
    struct bloom_filter *filter;
    unsigned layer;
    uint64_t at;
};

static int fill(void *ctx, const unsigned char *bytes, size_t len)
{
    struct filling *target = ctx;

    if (target->make && target->at == 0)
        TRY(target->make(target->ctx, target->plan, target->layer, &target->filter));
    if (target->filter)
        bloom_filter_put_bytes(target->filter, target->layer, target->at, bytes, len);
    target->at += len;
    return 0;
}

static int read_layers(struct rdb_reader *reader, struct filling *target)
{
    const struct dump_plan *plan = target->plan;
    for (unsigned i = 0; i < plan->nlayers; i++) {
        uint64_t buckets, bytes = bloom_shape_bytes(&plan->shapes[i]);
        target->layer = i;
        target->at = 0;
        TRY(rdb_module_unsigned(reader, &buckets, "the buckets of a sub-filter"));
        if (buckets != cuckoo_shape_buckets(&plan->shapes[i]))
            return rdb_bad(reader, "sub-filter %u has %llu buckets, which do not follow from the first", i,
                           (unsigned long long)buckets);
        TRY(rdb_module_string(reader, &bytes, fill, target, "the slots of a sub-filter"));
    }
    return rdb_module_end(reader);
}

int cuckoo_read_value(struct rdb_reader *reader, uint64_t type, cuckoo_make_fn *make, void *ctx,
                      struct dump_plan *plan_out)
{
    struct filling target = {.make = make, .ctx = ctx, .plan = plan_out, .filter = make ? NULL : ctx};
    unsigned encver = (unsigned)RDB_MODULE_VERSION(type);
    bool own = RDB_MODULE_TYPE(type) == CUCKOO_OWN_TYPE_ID && encver == CUCKOO_OWN_ENCVER;
    struct cuckoo_head head;

    if (encver != CUCKOO_ENCVER && !own)
        return errbuf_fail(reader->err, RDB_BAD,
                           encver < CUCKOO_ENCVER
                               ? "a cuckoo filter of RedisBloom before 2.2 (encoding %u) has hashes that later "
                                 "versions do not use: make it anew from its items"
                               : "a cuckoo filter in the unknown encoding %u",
                           encver);
    TRY(read_head(reader, &head, own));
    if (cuckoo_head_plan(&head, plan_out, reader->err) != DUMP_OK)
        return RDB_BAD;
    TRY(read_layers(reader, &target));
    if (target.filter) {
        cuckoo_recount(target.filter);
        cuckoo_set_counts(target.filter, 0, head.deletes);
    }
    return RDB_OK;
}

bool cuckoo_is_dump(const void *data, size_t len)
{
    uint64_t type = rdb_dump_type(data, len);

    return type == CUCKOO_TYPE_ID || type == CUCKOO_OWN_TYPE_ID;
}

static int read_dump(const void *data, size_t len, struct bloom_filter *filter, struct dump_plan *plan,
                     struct errbuf *err)
{
    struct rdb_reader reader;
    uint64_t id;
    TRY(rdb_open_dump(&reader, data, len, &id, err));
    TRY(cuckoo_read_value(&reader, id, NULL, filter, plan));
    return rdb_close_dump(&reader);
}

int cuckoo_restore_plan(const void *data, size_t len, struct dump_plan *plan_out, struct errbuf *err)
{
    return read_dump(data, len, NULL, plan_out, err) == RDB_OK ? DUMP_OK : DUMP_BAD;
}

void cuckoo_restore(const void *data, size_t len, struct bloom_filter *filter)
{
    struct errbuf err = {""};
    struct dump_plan plan;

    CHECK(read_dump(data, len, filter, &plan, &err) == RDB_OK); /* read before */
}

/* ---- writing ---- */

static unsigned char *put_rate(unsigned char *at, const struct cuckoo_head *head)
{
    uint64_t rate;

    memcpy(&rate, &head->error_rate, sizeof(rate));
    at = rdb_put_unsigned(at, head->bits);
    at = rdb_put_unsigned(at, head->capacity);
    at = rdb_put_unsigned(at, rate);
    return rdb_put_unsigned(at, head->key);
}

static unsigned char *write_dump(const struct bloom_filter *filter, unsigned char *dump)
{
    unsigned char *at = dump;
    struct cuckoo_head head;
    uint64_t from = 0;

    cuckoo_head_of(filter, &head);
    at = rdb_put_module(at, head.bits ? CUCKOO_OWN_TYPE_ID | CUCKOO_OWN_ENCVER : CUCKOO_TYPE_ID | CUCKOO_ENCVER);
    at = rdb_put_unsigned(at, head.nlayers);
    at = rdb_put_unsigned(at, head.buckets);
    at = rdb_put_unsigned(at, head.items);
    at = rdb_put_unsigned(at, head.deletes);
    at = rdb_put_unsigned(at, head.bucket_size);
    at = rdb_put_unsigned(at, head.iterations);
    at = rdb_put_unsigned(at, head.expansion);
    if (head.bits)
        at = put_rate(at, &head);
    for (unsigned i = 0; i < head.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        uint64_t bytes = bloom_shape_bytes(&view.shape);
        at = rdb_put_string_head(rdb_put_unsigned(at, cuckoo_shape_buckets(&view.shape)), bytes);
        cuckoo_read(filter, from, at, (size_t)bytes);
        at += bytes;
        from += bytes;
    }
    return rdb_put_dump_end(at, dump);
}

int cuckoo_dump(const struct bloom_filter *filter, uint64_t max, unsigned char **dump_out, uint64_t *len_out)
{
    uint64_t nlayers = bloom_filter_nlayers(filter);

    *len_out = cuckoo_bytes_of(filter) + RDB_DUMP_MAX + (HEAD_FIELDS + 2 * nlayers) * RDB_MODULE_FIELD_MAX;
    if (*len_out > max)
        return REDISBLOOM_LARGE;
    unsigned char *dump = malloc((size_t)*len_out);
    if (!dump)
        return -ENOMEM;
    *len_out = (uint64_t)(write_dump(filter, dump) - dump);
    *dump_out = dump;
    return DUMP_OK;
}
