#include "value.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bloom_keyring.h"
#include "bloom_merge.h"
#include "bloom_window.h"
#include "cuckoo.h"
#include "memory.h"
#include "value_window.h"

_Static_assert(sizeof(struct value) % 8 == 0, "the filter lies behind it, aligned to 8");

static struct bloom_pool *pool;
static uint64_t last_id, process_seed;

struct value value_husk;

struct bloom_pool *values_pool(void)
{
    return pool;
}

uint64_t value_dump_identity(const struct value *value)
{
    return process_seed + value->id * BLOOM_MAX_LAYERS * 2;
}

/* ---- life ---- */

struct value *value_create(struct bloom_class *class, bool limited, int *status_out, struct errbuf *err)
{
    if (limited && !memory_allowed(bloom_class_bytes(class), bloom_class_bytes(class), err)) {
        *status_out = BLOOM_LIMIT;
        return NULL;
    }
    struct value *value = memory_zeroed(sizeof(*value) + bloom_filter_bytes(class));
    if (!value) {
        *status_out = -1;
        errbuf_set(err, "out of memory");
        return NULL;
    }
    *status_out = bloom_filter_init(value_filter(value), class, err);
    if (*status_out != 0) {
        memory_release(value);
        return NULL;
    }
    value->id = ++last_id;
    value->usage.since_s = (int64_t)time(NULL);
    return value;
}

struct value *value_create_shaped(const struct bloom_params *params, const struct bloom_shape *shapes, unsigned nlayers,
                                  bool limited, int *status_out, struct errbuf *err)
{
    struct bloom_class *class;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < nlayers; i++)
        bytes += shapes[i].nwords * 8;
    if (limited && !memory_allowed(bytes, bytes, err)) {
        *status_out = BLOOM_LIMIT;
        return NULL;
    }
    *status_out = bloom_class_get(pool, params, &shapes[0], &class, err);
    if (*status_out != 0)
        return NULL;
    struct value *value = value_create(class, false, status_out, err);
    bloom_class_release(class);
    for (unsigned i = 1; value && i < nlayers; i++) {
        *status_out = bloom_filter_append_layer(value_filter(value), &shapes[i], err);
        if (*status_out == 0)
            continue;
        value_free(value);
        value = NULL;
    }
    return value;
}

struct value *value_begin_load(struct bf_load *load, bool limited, int *status_out, struct errbuf *err)
{
    const struct dump_plan *plan = bf_load_plan(load);
    struct value *value = value_create_shaped(&plan->params, plan->shapes, plan->nlayers, limited, status_out, err);
    if (value)
        value->load = load;
    else
        bf_load_end(load);
    return value;
}

void value_end_load(struct value *value)
{
    bf_load_end(value->load);
    value->load = NULL;
}

void value_free(void *at)
{
    struct value *value = at;
    if (!value || value == &value_husk)
        return;
    if (bloom_filter_forgets(value_filter(value)))
        window_freed(value_filter(value));
    bloom_filter_deinit(value_filter(value));
    bf_load_end(value->load);
    memory_release(value);
}

bool value_is_blank(const struct value *value)
{
    return !value->load && bloom_filter_is_blank(value_filter(value));
}

static struct value *copy_cuckoo(const struct bloom_filter *filter)
{
    struct errbuf err = {""};
    int status;
    struct value *copy = value_create(bloom_filter_class_of(filter), false, &status, &err);
    if (!copy || cuckoo_take(value_filter(copy), filter, &err) == 0)
        return copy;
    value_free(copy);
    return NULL;
}

struct value *value_copy(const struct value *value)
{
    const struct bloom_filter *filter = value_filter(value);
    struct bloom_union counts = {{0}, {0}};
    struct errbuf err = {""};
    struct dump_plan plan;
    int status;
    if (bloom_params_is_cuckoo(bloom_filter_params(filter)))
        return copy_cuckoo(filter);
    dump_plan_of(filter, bloom_filter_nlayers(filter), &plan);
    struct value *copy = value_create_shaped(&plan.params, plan.shapes, plan.nlayers, false, &status, &err);
    if (!copy)
        return NULL;
    if (bloom_filter_forgets(filter))
        window_copy(value_filter(copy), filter, value->load != NULL);
    else
        bloom_filter_or(value_filter(copy), filter, plan.nlayers, &counts);
    for (unsigned i = 0; i < plan.nlayers && !bloom_filter_forgets(filter); i++)
        bloom_filter_set_items(value_filter(copy), i, counts.most[i]);
    if (!value->load || (copy->load = bf_load_copy(value->load)))
        return copy;
    value_free(copy);
    return NULL;
}

size_t value_memory(const struct value *value)
{
    if (value == &value_husk)
        return 0;
    return sizeof(*value) + bloom_filter_memory(value_filter(value)) + (value->load ? bf_load_memory(value->load) : 0);
}

bool value_key_is_new(const struct value *value, struct errbuf *text_out)
{
    static uint64_t reported_key;
    uint64_t key = bloom_filter_missing_key(value_filter(value));
    char text[BF_KEY_TEXT];
    if (key == 0 || key == reported_key)
        return false;
    reported_key = key;
    errbuf_set(text_out,
               "bf-key-file lacks the key %s of some filters: they are kept and replicated, but cannot be queried here",
               bf_key_text(key, text));
    return true;
}

bool values_init(struct errbuf *err)
{
    if (!pool && bloom_pool_create_in(&engine_memory, &pool) != 0) { /* there is one after a load that failed */
        errbuf_set(err, "out of memory");
        return false;
    }
    window_clock_init(pool);
    process_seed = bf_random();
    return true;
}
