#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "bloom_pool.h"
#include "pool_rig.h"

TestSuite(bloom_pool, .init = setup, .fini = teardown);

static struct bloom_class *class_of(uint64_t capacity, double rate, uint32_t expansion, const struct bloom_shape *shape)
{
    struct bloom_params params = {capacity, rate, expansion};
    struct bloom_class *class;
    struct errbuf err = {""};

    cr_assert_eq(bloom_class_get(pool, &params, shape, &class, &err), 0, "%s", err.text);
    return class;
}

Test(bloom_pool, null_is_destroyed_and_released)
{
    bloom_pool_destroy(NULL);
    bloom_class_release(NULL);
}

Test(bloom_pool, equal_parameters_are_one_class_and_others_are_not)
{
    struct bloom_class *class = class_of(100, 0.01, 2, NULL);
    struct bloom_class *others[] = {class_of(101, 0.01, 2, NULL), class_of(100, 0.02, 2, NULL),
                                    class_of(100, 0.01, 3, NULL), class_of(100, 0.01, 0, NULL),
                                    class_of(100, 0.01, 2, &(struct bloom_shape){5, 5, BLOOM_NA})};
    struct bloom_class *same = class_of(100, 0.01, 2, NULL);

    cr_assert_eq(same, class);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        cr_assert_neq(others[i], class);
        bloom_class_release(others[i]);
    }
    bloom_class_release(same);
    bloom_class_release(class);
}

/* A loaded and a reserved filter share a class if their first layers are equal, in either order. */
Test(bloom_pool, a_given_shape_that_equals_the_plan_is_the_planned_class)
{
    struct bloom_size size;
    struct bloom_shape shape;
    struct bloom_class *a, *b;

    cr_assert_eq(bloom_size_plan(100, 0.005, &size, NULL), BLOOM_SIZE_OK);
    shape = (struct bloom_shape){size.nwords, (uint8_t)size.k, BLOOM_NA};
    for (int planned_first = 0; planned_first < 2; planned_first++) {
        a = class_of(100, 0.01, 2, planned_first ? NULL : &shape);
        b = class_of(100, 0.01, 2, planned_first ? &shape : NULL);
        cr_assert_eq(a, b);
        bloom_class_release(a);
        bloom_class_release(b);
    }
    shape.variant = BLOOM_KA;
    a = class_of(100, 0.01, 2, NULL);
    b = class_of(100, 0.01, 2, &shape);
    cr_assert_neq(a, b);
    bloom_class_release(a);
    bloom_class_release(b);
}

/* As many classes as make the table grow several times; each is found again, and they are freed in another order. */
Test(bloom_pool, ten_thousand_classes)
{
    enum { N = 10000 };
    static struct bloom_class *classes[N];

    for (uint64_t i = 0; i < N; i++)
        classes[i] = class_of(i + 1, 0.01, 2, NULL);
    for (uint64_t i = 0; i < N; i++) {
        struct bloom_class *again = class_of(i + 1, 0.01, 2, NULL);

        cr_assert_eq(again, classes[i]);
        bloom_class_release(again);
    }
    for (uint64_t i = 0; i < N; i++)
        bloom_class_release(classes[i * 7919 % N]);
}

Test(bloom_pool, wrong_parameters_are_refused_with_what_would_be_right)
{
    static const struct {
        struct bloom_params params;
        const char *error;
    } rows[] = {
        {{0, 0.01, 2}, "capacity must be at least 1"},
        {{1, 0, 2}, "error rate must be in the range (0, 1)"},
        {{1, 1, 2}, "error rate must be in the range (0, 1)"},
        {{1, NAN, 0}, "error rate must be in the range (0, 1)"},
        {{1, -1, 0}, "error rate must be in the range (0, 1)"},
        {{1, 0.01, BLOOM_MAX_EXPANSION + 1}, "expansion must be in the range [0, 32768]"},
        {{UINT64_C(1) << 40, 0.1, 0}, "capacity must be in the range [1, 27487790677] for error rate 0.1"},
        {{UINT64_C(1) << 40, 0.2, 2},
         "the first layer of a scaling filter gets half the error rate, 0.1: "
         "capacity must be in the range [1, 27487790677] for error rate 0.1"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct bloom_class *class = NULL;
        struct errbuf err = {""};

        cr_assert_eq(bloom_class_get(pool, &rows[i].params, NULL, &class, &err), BLOOM_REFUSED, "row %zu", i);
        cr_assert_str_eq(err.text, rows[i].error);
        cr_assert_eq(bloom_class_get(pool, &rows[i].params, NULL, &class, NULL), BLOOM_REFUSED);
        cr_assert_null(class);
    }
    struct bloom_class *class = NULL;
    struct bloom_params fine = {1, 0.01, BLOOM_MAX_EXPANSION};
    struct errbuf err = {""};
    cr_assert_eq(bloom_class_get(pool, &fine, &(struct bloom_shape){1, 0, 0}, &class, &err), BLOOM_REFUSED);
    cr_assert_str_eq(err.text, "hash count 0: must be in the range [1, 21]");
}

/* ---- limits ---- */

static struct bloom_filter *try_filter(struct bloom_class *class, int expected, struct errbuf *err)
{
    struct bloom_filter *filter = malloc(bloom_filter_bytes(class));

    cr_assert_eq(bloom_filter_init(filter, class, err), expected, "%s", err->text);
    if (expected == 0)
        return filter;
    free(filter);
    return NULL;
}

static void drop(struct bloom_filter *filter)
{
    bloom_filter_deinit(filter);
    free(filter);
}

/* One byte less than needed, exactly enough, one byte more; for inline, heap and mapped words. */
Test(bloom_pool, the_limit_for_one_filter_is_exact)
{
    static const uint64_t sizes[] = {1, 512, 513, (2 << 20) / 8 - 1, (2 << 20) / 8, 1000000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct bloom_class *class = class_of(100, 0.01, 0, &(struct bloom_shape){sizes[i], 5, BLOOM_NA});
        struct errbuf err = {""};
        char expected[128];

        bloom_pool_set_limits(pool, sizes[i] * 8 - 1, 0);
        try_filter(class, BLOOM_LIMIT, &err);
        snprintf(expected, sizeof(expected), "the filter would need %llu bytes, the limit for one filter is %llu",
                 (unsigned long long)sizes[i] * 8, (unsigned long long)sizes[i] * 8 - 1);
        cr_assert_str_eq(err.text, expected);
        cr_assert_eq(bloom_pool_bytes(pool), 0);
        for (uint64_t more = 0; more < 2; more++) {
            bloom_pool_set_limits(pool, sizes[i] * 8 + more, 0);
            drop(try_filter(class, 0, &err));
        }
        bloom_class_release(class);
    }
}

Test(bloom_pool, the_limit_for_all_filters_is_exact_and_room_given_back_is_used_again)
{
    struct bloom_class *class = class_of(100, 0.01, 0, &(struct bloom_shape){1000, 5, BLOOM_NA});
    struct bloom_filter *a, *b;
    struct errbuf err = {""};

    bloom_pool_set_limits(pool, 0, 15999);
    a = try_filter(class, 0, &err);
    try_filter(class, BLOOM_LIMIT, &err);
    cr_assert_str_eq(err.text, "8000 bytes more are needed, 8000 are in use, the limit for all filters is 15999");
    bloom_pool_set_limits(pool, 0, 16000);
    b = try_filter(class, 0, &err);
    cr_assert_eq(bloom_pool_bytes(pool), 16000);
    bloom_pool_set_limits(pool, 0, 1); /* existing filters stay */
    cr_assert_eq(bloom_filter_add(a, (struct bloom_hash){1, 2}, &err), BLOOM_ADDED);
    drop(a);
    bloom_pool_set_limits(pool, 0, 16000);
    drop(try_filter(class, 0, &err));
    drop(b);
    cr_assert_eq(bloom_pool_bytes(pool), 0);
    bloom_class_release(class);
}

/* Growth counts all layers of the filter, names the limit in its refusal, and continues once there is room. */
Test(bloom_pool, limits_hold_for_growth_too)
{
    struct bloom_class *class = class_of(10, 0.01, 2, NULL);
    struct errbuf err = {""};
    struct bloom_filter *filter;
    struct bloom_layer_view view;
    uint64_t item = 0, first;
    enum bloom_add answer;

    filter = try_filter(class, 0, &err);
    bloom_class_release(class);
    bloom_filter_layer(filter, 0, &view);
    first = view.shape.nwords * 8;
    bloom_pool_set_limits(pool, first + 8, 0);
    while ((answer = bloom_filter_add(filter, murmur3_hash(&item, sizeof(item)), &err)) != BLOOM_NO_ROOM)
        item++;
    cr_assert_eq(bloom_filter_items(filter), 10);
    cr_assert_eq(
        strncmp(err.text, "cannot grow by layer 1 (capacity 20, error rate 0.00166667): the filter would need ", 82), 0,
        "%s", err.text);
    cr_assert_eq(bloom_pool_bytes(pool), first);
    cr_assert_eq(bloom_filter_append_layer(filter, &(struct bloom_shape){2, 5, 0}, &err), BLOOM_LIMIT);
    bloom_pool_set_limits(pool, 0, first);
    cr_assert_eq(bloom_filter_add(filter, murmur3_hash(&item, sizeof(item)), &err), BLOOM_NO_ROOM);
    bloom_pool_set_limits(pool, 0, 0);
    cr_assert_eq(bloom_filter_add(filter, murmur3_hash(&item, sizeof(item)), &err), BLOOM_ADDED);
    cr_assert_eq(bloom_filter_nlayers(filter), 2);
    drop(filter);
}

/* ---- memory of the host ---- */

static size_t held, pieces, refuse_from;

static void *host_zeroed(size_t bytes)
{
    size_t *piece = bytes >= refuse_from ? NULL : calloc(1, bytes + 16);

    if (!piece)
        return NULL;
    *piece = bytes;
    held += bytes;
    pieces++;
    return piece + 2;
}

static void host_release(void *memory)
{
    size_t *piece = (size_t *)memory - 2;

    held -= *piece;
    pieces--;
    free(piece);
}

/* Words of small and large layers and of layers added by growth are in the host's memory; all of it is given back, and
 * a refusal changes nothing in the filter. */
Test(bloom_pool, all_of_a_filter_lies_in_the_memory_of_its_host)
{
    static const struct bloom_memory memory = {host_zeroed, host_release};
    struct bloom_params params = {3000000, 0.01, 2};
    struct bloom_pool *own;
    struct bloom_class *class;
    struct bloom_layer_view view;
    struct errbuf err = {""};

    refuse_from = SIZE_MAX;
    cr_assert_eq(bloom_pool_create_in(&memory, &own), 0);
    cr_assert_eq(bloom_class_get(own, &params, NULL, &class, &err), 0);
    struct bloom_filter *filter = malloc(bloom_filter_bytes(class));
    cr_assert_eq(bloom_filter_init(filter, class, &err), 0, "%s", err.text);
    bloom_filter_layer(filter, 0, &view);
    cr_assert_geq(view.shape.nwords * 8, BLOOM_ROOM_MIN_BYTES);
    cr_assert_null(view.room);
    cr_assert_eq(held, view.shape.nwords * 8);
    cr_assert(bloom_pool_is_settled(own));
    bloom_filter_expect_fill(filter);

    refuse_from = 1000;
    cr_assert_eq(bloom_filter_append_layer(filter, &view.shape, &err), -ENOMEM);
    cr_assert_eq(bloom_filter_nlayers(filter), 1);
    refuse_from = SIZE_MAX;
    cr_assert_eq(bloom_filter_append_layer(filter, &(struct bloom_shape){5, 5, BLOOM_NA}, &err), 0, "%s", err.text);
    cr_assert_eq(bloom_filter_append_layer(filter, &view.shape, &err), 0, "%s", err.text);
    cr_assert_gt(held, 2 * view.shape.nwords * 8);
    cr_assert_eq(pieces, 4);
    cr_assert_eq(bloom_filter_add(filter, (struct bloom_hash){1, 2}, NULL), BLOOM_ADDED);
    cr_assert(bloom_filter_query(filter, (struct bloom_hash){1, 2}));

    bloom_filter_deinit(filter);
    free(filter);
    cr_assert_eq(held, 0);
    cr_assert_eq(pieces, 0);
    bloom_class_release(class);
    bloom_pool_destroy(own);
}
