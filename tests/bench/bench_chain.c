/* bench_chain: the cost of chains of many layers in process: bytes, sizing, growth, a query for an item that is in none
 * of the layers (it looks into all of them), and the description of all layers.
 *
 *   bench_chain [capacity of a layer] [error rate] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bloom_filter.h"
#include "bloom_plan.h"
#include "rng.h"

#define QUERIES 4096
#define ROUNDS  5

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static struct bloom_hash random_hash(struct rng *rng)
{
    uint64_t h1 = rng_next(rng);

    return (struct bloom_hash){h1, rng_next(rng)};
}

static double query_ns(const struct bloom_filter *filter, const struct bloom_hash *hashes)
{
    double best = 1e300;
    unsigned present = 0;

    for (int round = 0; round < ROUNDS; round++) {
        double began = now_us();

        for (unsigned i = 0; i < QUERIES; i++)
            present += bloom_filter_query(filter, hashes[i]);
        double each = (now_us() - began) * 1e3 / QUERIES;
        best = each < best ? each : best;
    }
    if (present > QUERIES * ROUNDS / 10)
        printf("(%u present)\n", present);
    return best;
}

/* All layers as BF.INFO FULL sees them. */
static double describe_us(const struct bloom_filter *filter)
{
    double began = now_us();
    volatile uint64_t sum = 0;

    for (unsigned i = 0; i < bloom_filter_nlayers(filter); i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        sum = sum + view.items;
    }
    return now_us() - began;
}

static double plan_us(const struct bloom_params *params, unsigned layers)
{
    static struct bloom_plan plan;
    double best = 1e300;

    for (int round = 0; round < ROUNDS; round++) {
        double began = now_us();
        struct errbuf err = {""};

        if (bloom_plan(params, params->capacity * layers, &plan, &err) != BLOOM_OK)
            printf("%s\n", err.text);
        double took = now_us() - began;
        best = took < best ? took : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const unsigned stops[] = {1, 10, 64, 100, 250, 500, 1000};
    struct bloom_params params = {argc > 1 ? strtoull(argv[1], NULL, 10) : 100, argc > 2 ? strtod(argv[2], NULL) : 0.01,
                                  1};
    struct bloom_hash hashes[QUERIES];
    struct bloom_pool *pool;
    struct bloom_class *class;
    struct errbuf err = {""};
    struct rng rng;

    if (bloom_pool_create(&pool) != 0 || bloom_class_get(pool, &params, NULL, &class, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    struct bloom_filter *filter = malloc(bloom_filter_bytes(class));
    if (!filter || bloom_filter_init(filter, class, &err) != 0)
        return 1;
    rng_init(&rng, 5);
    for (unsigned i = 0; i < QUERIES; i++)
        hashes[i] = random_hash(&rng);
    printf("layers of %llu items, error rate %g\n", (unsigned long long)params.capacity, params.error_rate);
    printf(
        "layers |      bytes | bits per item | adds since, us each | absent query, ns | all layers, us | plan, us\n");
    uint64_t before = 0;
    for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++) {
        uint64_t items = stops[i] * params.capacity;
        double began = now_us();

        while (bloom_filter_items(filter) < items) {
            for (uint64_t n = items - bloom_filter_items(filter); n > 0; n--) {
                if (bloom_filter_add(filter, random_hash(&rng), &err) == BLOOM_NO_ROOM) {
                    fprintf(stderr, "%s\n", err.text);
                    return 1;
                }
            }
        }
        double adds = (now_us() - began) / (double)(items - before);
        uint64_t bytes = bloom_filter_memory(filter);
        printf("%6u | %10llu | %13.1f | %19.2f | %16.0f | %14.1f | %8.1f\n", stops[i], (unsigned long long)bytes,
               (double)bytes * 8 / (double)items, adds, query_ns(filter, hashes), describe_us(filter),
               plan_us(&params, stops[i]));
        before = items;
    }
    bloom_filter_deinit(filter);
    free(filter);
    bloom_class_release(class);
    bloom_pool_destroy(pool);
    return 0;
}
