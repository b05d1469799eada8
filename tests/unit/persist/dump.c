/* Dumps: the loaded filter equals the dumped one bit by bit, and nothing else can be loaded. The chunks of dumps are
 * damaged, repeated, left out, exchanged and made up at random; only the right ones in the right order make a
 * filter. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "crc64.h"
#include "dump.h"
#include "dump_rig.h"
#include "rdb_reader.h"
#include "redisbloom.h"

static void setup(void)
{
    dump_rig_init(4711);
}

TestSuite(dump, .init = setup, .fini = dump_rig_deinit);

/* ---- chunks ---- */

struct chunk {
    int64_t iterator;
    size_t len;
    unsigned char *bytes;
};

struct chunks {
    struct chunk *items;
    size_t count;
};

/* A dump as a client gets it: each chunk is requested with the iterator of the previous one. */
static struct chunks dump(const struct bloom_filter *filter, uint64_t identity)
{
    struct chunks chunks = {NULL, 0};
    struct dump_plan plan;
    int64_t iterator = 0;
    struct dump_place place = {.nlayers = bloom_filter_nlayers(filter)};

    for (;;) {
        if (iterator != 0)
            cr_assert(dump_place_from(iterator, &place));
        dump_plan_of(filter, place.nlayers, &plan);
        if (place.next == dump_chunks(&plan))
            return chunks;
        size_t len = dump_chunk_bytes(&plan, place.next);
        unsigned char *bytes = malloc(len);
        cr_assert(len <= DUMP_CHUNK_MAX || place.next == 0);
        dump_write_chunk(&plan, filter, identity, rng_next(&rng), &place, bytes);
        iterator = dump_iterator(&place);
        cr_assert(iterator > 0 && iterator < (INT64_C(1) << 53));
        chunks.items = realloc(chunks.items, (chunks.count + 1) * sizeof(*chunks.items));
        chunks.items[chunks.count++] = (struct chunk){iterator, len, bytes};
    }
}

static void chunks_free(struct chunks *chunks)
{
    for (size_t i = 0; i < chunks->count; i++)
        free(chunks->items[i].bytes);
    free(chunks->items);
}

/* Loads a sequence of chunks. Returns the filter if all were taken and the last one completed it, otherwise NULL. */
static struct bloom_filter *load(const struct chunk *chunks, size_t count, struct errbuf *err)
{
    struct bloom_filter *filter = NULL;
    struct dump_load dump_load;
    bool complete = false;

    for (size_t i = 0; i < count; i++) {
        int rc;

        if (i == 0) {
            rc = dump_load_begin(&dump_load, &chunks[i].iterator, chunks[i].bytes, chunks[i].len, err);
            if (rc == DUMP_OK)
                filter = filter_of(&dump_load.plan.params, dump_load.plan.shapes, dump_load.plan.nlayers);
        } else if (complete) {
            rc = DUMP_BAD; /* the server has published the filter by now */
            errbuf_set(err, "too many");
        } else {
            rc = dump_load_chunk(&dump_load, filter, &chunks[i].iterator, chunks[i].bytes, chunks[i].len, &complete,
                                 err);
        }
        if (rc != DUMP_OK) {
            cr_assert_neq(err->text[0], '\0');
            if (filter)
                filter_free(filter);
            return NULL;
        }
    }
    if (!complete && filter) {
        filter_free(filter);
        errbuf_set(err, "not complete");
        return NULL;
    }
    return filter;
}

/* Filters of every form are equal after dump and load: one word, many layers, several chunks, each variant, fixed
 * size. */
Test(dump, chunks_make_the_same_filter_again)
{
    static const struct {
        uint64_t capacity;
        double rate;
        uint32_t expansion;
        unsigned items;
    } cases[] = {
        {1, 0.1, 0, 1}, {10, 0.01, 2, 1000}, {1000000, 0.001, 2, 20000}, {100, 0.01, 0, 200}, {5, 0.2, 1, 150}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bloom_filter *filter = filled(cases[i].capacity, cases[i].rate, cases[i].expansion, cases[i].items);
        struct chunks chunks = dump(filter, 77);
        struct errbuf err = {""};
        struct bloom_filter *again = load(chunks.items, chunks.count, &err);

        cr_assert(again, "%s", err.text);
        cr_assert(same(filter, again), "case %zu", i);
        filter_free(again);
        chunks_free(&chunks);
        filter_free(filter);
    }
}

/* A filter with other shapes and hash order (imported from an older Cassandra), and one of RedisBloom's, whose layers
 * have their own numbers. */
Test(dump, shapes_and_variants_are_kept)
{
    static const struct bloom_params params[] = {
        {1000, 0.05, 3},
        {100, 0.01, 2, REDISBLOOM_DEFAULT},
        {1000, 0.05, 3, .key = UINT64_C(0x0123456789abcdef)},
        {100, 0.01, 2, REDISBLOOM_DEFAULT, .key = 1},
        {90, 0.2, UINT32_MAX, BLOOM_OPTION_VALKEY, .tightening = 0.3, .seed = {"a secret of thirty-two bytes ..."}},
    };
    static const struct bloom_shape shapes[][2] = {
        {{70, 3, BLOOM_KA}, {1000, 21, BLOOM_KA}},
        {{70, 3, BLOOM_REDISBLOOM, 0, 12, 0, 90, 0.2, 3.5}, {70, 57, BLOOM_REDISBLOOM, 0, 0, 5, 77, 0.3, 81.5}},
        {{70, 3, BLOOM_KA}, {1000, 21, BLOOM_KA}},
        {{70, 3, BLOOM_REDISBLOOM, 0, 12, 0, 90, 0.2, 3.5}, {70, 57, BLOOM_REDISBLOOM, 0, 0, 5, 77, 0.3, 81.5}},
        {{2, 3, BLOOM_VALKEY, 0, 0, 5, 88, 0.2, 1}, {1, 57, BLOOM_VALKEY, 0, 0, 0, 64, 0.3, 1}}};
    struct errbuf err = {""};

    for (unsigned n = 0; n < sizeof(params) / sizeof(params[0]); n++) {
        struct bloom_filter *filter = filter_of(&params[n], shapes[n], 2);
        for (unsigned i = 0; i < 70; i++)
            bloom_filter_add(filter, (struct bloom_hash){rng_next(&rng), rng_next(&rng)}, NULL);
        struct chunks chunks = dump(filter, 1);
        struct bloom_filter *again = load(chunks.items, chunks.count, &err);
        cr_assert(again && same(filter, again), "%s", err.text);
        cr_assert_eq(bloom_filter_params(again)->key, params[n].key);
        cr_assert_eq(bloom_filter_params(again)->tightening, params[n].tightening);
        cr_assert(bloom_seed_equal(&bloom_filter_params(again)->seed, &params[n].seed));
        filter_free(again);
        chunks_free(&chunks);
        filter_free(filter);
    }
}

/* Adds and growth between two chunks: the dump has all items from before its start. */
Test(dump, adds_meanwhile_do_no_harm)
{
    struct bloom_filter *filter = filled(400000, 0.01, 2, 0);
    struct bloom_hash before[1000];
    struct chunk items[32];
    struct dump_plan plan;
    struct dump_place place = {.nlayers = 1};
    struct errbuf err = {""};
    size_t count = 0;

    for (size_t i = 0; i < 1000; i++) {
        before[i] = (struct bloom_hash){rng_next(&rng), rng_next(&rng)};
        bloom_filter_add(filter, before[i], NULL);
    }
    dump_plan_of(filter, 1, &plan);
    while (place.next < dump_chunks(&plan)) {
        size_t len = dump_chunk_bytes(&plan, place.next);

        cr_assert_lt(count, 32);
        items[count].bytes = malloc(len);
        items[count].len = len;
        dump_write_chunk(&plan, filter, 9, count, &place, items[count].bytes);
        items[count++].iterator = dump_iterator(&place);
        for (unsigned i = 0; i < 150000; i++)
            bloom_filter_add(filter, (struct bloom_hash){rng_next(&rng), rng_next(&rng)}, NULL);
    }
    cr_assert_gt(bloom_filter_nlayers(filter), 1);
    struct bloom_filter *again = load(items, count, &err);
    cr_assert(again, "%s", err.text);
    cr_assert_eq(bloom_filter_nlayers(again), 1);
    for (size_t i = 0; i < 1000; i++)
        cr_assert(bloom_filter_query(again, before[i]));
    cr_assert_eq(bloom_filter_items(again), 400000); /* of the layer that was full by then */
    filter_free(again);
    for (size_t i = 0; i < count; i++)
        free(items[i].bytes);
    filter_free(filter);
}

/* A dump that may have been altered on its way. */
struct sequence {
    struct chunk items[16];
    size_t count;
    bool right;             /* still a whole dump */
    unsigned char *damaged; /* the bytes of the damaged chunk; NULL: none */
};

/* A flipped bit, a cut, or extra bytes. */
static void damage(struct sequence *sequence)
{
    struct chunk *c = &sequence->items[rng_below(&rng, sequence->count)];

    sequence->damaged = malloc(c->len + 1);
    memcpy(sequence->damaged, c->bytes, c->len);
    sequence->damaged[c->len] = 0;
    c->bytes = sequence->damaged;
    if (rng_below(&rng, 3) == 0)
        c->len = rng_below(&rng, 2) ? c->len + 1 : rng_below(&rng, c->len);
    else
        sequence->damaged[rng_below(&rng, rng_below(&rng, 2) ? c->len
                                          : 64 < c->len      ? 64
                                                             : c->len)] ^= (unsigned char)(1u << rng_below(&rng, 8));
}

/* The first of three dumps with equal numbers of chunks, or an altered form of it. */
static void mishandle(struct sequence *sequence, const struct chunks dumps[3])
{
    struct chunk *items = sequence->items;
    size_t count = dumps[0].count, at = rng_below(&rng, count), other = rng_below(&rng, count);

    *sequence = (struct sequence){.count = count};
    memcpy(items, dumps[0].items, count * sizeof(*items));
    switch (rng_below(&rng, 8)) {
    case 0: /* from another dump of this filter, or of another one */
        memcpy(&items[at], &dumps[1 + rng_below(&rng, 2)].items[at], (count - at) * sizeof(*items));
        sequence->right = memcmp(items, dumps[1].items, count * sizeof(*items)) == 0 ||
                          memcmp(items, dumps[2].items, count * sizeof(*items)) == 0;
        break;
    case 1: { /* exchanged */
        struct chunk c = items[at];
        items[at] = items[other];
        items[other] = c;
        sequence->right = at == other;
        break;
    }
    case 2: /* left out */
        memmove(&items[at], &items[at + 1], (count - at - 1) * sizeof(*items));
        sequence->count--;
        break;
    case 3: /* repeated */
        memmove(&items[at + 1], &items[at], (count - at) * sizeof(*items));
        sequence->count++;
        break;
    case 4: /* with another iterator */
        items[at].iterator ^= (int64_t)(UINT64_C(1) << rng_below(&rng, 64));
        break;
    case 5:
    case 6:
        damage(sequence);
        break;
    default:
        sequence->right = true;
        break;
    }
}

/* A sequence of chunks of several dumps, some of them damaged, makes a filter only if it is exactly one dump from
 * beginning to end. */
Test(dump, only_the_right_chunks_in_the_right_order)
{
    struct bloom_filter *filter = filled(300000, 0.01, 2, 310000);
    struct chunks dumps[3] = {dump(filter, 5), dump(filter, 5), dump(filter, 6)};
    unsigned loaded = 0, refused = 0;

    cr_assert_gt(dumps[0].count, 3);
    cr_assert(dumps[0].count < 16 && dumps[1].count == dumps[0].count && dumps[2].count == dumps[0].count);
    for (unsigned round = 0; round < 4000; round++) {
        struct sequence sequence;
        struct errbuf err = {""};

        mishandle(&sequence, dumps);
        struct bloom_filter *again = load(sequence.items, sequence.count, &err);
        cr_assert_eq(again != NULL, sequence.right, "round %u: %s", round, err.text);
        if (again) {
            cr_assert(same(filter, again));
            filter_free(again);
        }
        sequence.right ? loaded++ : refused++;
        free(sequence.damaged);
    }
    cr_assert_gt(loaded, 400);
    cr_assert_gt(refused, 2000);
    for (size_t i = 0; i < 3; i++)
        chunks_free(&dumps[i]);
    filter_free(filter);
}

/* Signs a chunk that was tampered with, as anyone can. */
static void sign(unsigned char *bytes, size_t len)
{
    XXH128_canonical_t sum;

    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, len - 16));
    memcpy(bytes + len - 16, sum.digest, 16);
}

static const struct {
    size_t offset;
    unsigned width;
    uint64_t value;
} bad_fields[] = {
    {4, 1, 2},                   /* version */
    {5, 1, 'D'},                 /* kind */
    {6, 1, 1},                   /* reserved */
    {16, 4, 1},                  /* number */
    {20, 4, 99},                 /* count */
    {24, 4, 1},                  /* digest of what came before */
    {28, 4, 1},                  /* reserved */
    {32, 8, 0},                  /* capacity */
    {40, 8, 0},                  /* rate 0 */
    {40, 8, 0x7ff8000000000000}, /* rate NaN */
    {40, 8, 0x3ff0000000000000}, /* rate 1 */
    {48, 4, 32769},              /* expansion */
    {48, 4, 0},                  /* a fixed filter of several layers */
    {52, 4, 0},                  /* layers */
    {52, 4, 65},
    {52, 4, 0xffffffff},
    {52, 4, 1}, /* fewer layers than bytes */
    {56, 8, 8}, /* bytes */
    {56, 8, UINT64_MAX},
    {72, 8, 0}, /* words of layer 0 */
    {72, 8, UINT64_C(1) << 31},
    {72, 8, UINT64_MAX},
    {80, 1, 0}, /* k */
    {80, 1, 22},
    {81, 1, 3}, /* variant */
    {81, 1, 1}, /* another variant than the other layers */
    {81, 1, 5},
    {82, 1, 1}, /* numbers of RedisBloom's layout, which is not this one */
    {83, 1, 1},
    {84, 1, 5},
    {85, 1, 1}, /* reserved */
    {87, 1, 1}, /* a window in the first layer only */
    {87, 1, 2}, /* a key likewise */
    {87, 1, 4}, /* an unknown flag */
};

/* A made-up header with a correct checksum: every field value that no filter can have is refused. */
Test(dump, made_up_headers_are_refused)
{
    struct bloom_filter *filter = filled(100, 0.01, 2, 1000);
    struct chunks chunks = dump(filter, 5);
    unsigned char *header = chunks.items[0].bytes;
    size_t len = chunks.items[0].len;
    struct dump_load dump_load;
    struct errbuf err;

    for (size_t i = 0; i < sizeof(bad_fields) / sizeof(bad_fields[0]); i++) {
        unsigned char *bad = malloc(len);

        memcpy(bad, header, len);
        memcpy(bad + bad_fields[i].offset, &bad_fields[i].value, bad_fields[i].width);
        sign(bad, len);
        err.text[0] = '\0';
        cr_assert_eq(dump_load_begin(&dump_load, &chunks.items[0].iterator, bad, len, &err), DUMP_BAD, "field %zu", i);
        cr_assert_neq(err.text[0], '\0');
        free(bad);
    }
    chunks_free(&chunks);
    filter_free(filter);
}

/* The last chunk states the number of items in each layer, at most its capacity. */
Test(dump, made_up_counts_are_refused)
{
    struct bloom_filter *filter = filled(100, 0.01, 2, 250);
    struct chunks chunks = dump(filter, 5);
    struct chunk *last = &chunks.items[chunks.count - 1];
    uint64_t counts[2] = {100, 201};
    struct errbuf err = {""};

    cr_assert_eq(bloom_filter_nlayers(filter), 2);
    memcpy(last->bytes + 32, counts, sizeof(counts));
    sign(last->bytes, last->len);
    memcpy(&last->iterator, last->bytes + last->len - 16, 4);
    last->iterator = (last->iterator & 0x1fffff) | (chunks.items[chunks.count - 2].iterator & ~INT64_C(0x1fffff));
    last->iterator += INT64_C(1) << 21;
    cr_assert_null(load(chunks.items, chunks.count, &err));
    cr_assert(strstr(err.text, "capacity"), "%s", err.text);
    chunks_free(&chunks);
    filter_free(filter);
}

/* Corrects the checksum at the end. */
static void seal(unsigned char *bytes, size_t len)
{
    uint64_t crc = crc64(0, bytes, len - 8);

    memcpy(bytes + len - 8, &crc, 8);
}

/* A chunk is no piece, a piece is no chunk, and RedisBloom's dumps are recognised. */
Test(dump, other_bytes_are_told_apart)
{
    struct bloom_filter *filter = filled(100, 0.01, 2, 10);
    struct chunks chunks = dump(filter, 1);
    struct dump_plan plan;
    struct dump_load dump_load;
    unsigned char bytes[1024], module[40] = {7, 0x81};
    struct errbuf err = {""};

    cr_assert_eq(dump_read_plan(chunks.items[0].bytes, chunks.items[0].len, &plan, &err), DUMP_FOREIGN);
    dump_plan_of(filter, 1, &plan);
    cr_assert_leq(dump_whole_bytes(&plan), sizeof(bytes));
    dump_write_whole(&plan, filter, bytes);
    cr_assert_eq(dump_load_begin(&dump_load, NULL, bytes, (size_t)dump_whole_bytes(&plan), &err), DUMP_FOREIGN);
    seal(module, sizeof(module));
    cr_assert_eq(dump_read_plan(module, sizeof(module), &plan, &err), DUMP_FOREIGN);
    cr_assert_eq(dump_load_begin(&dump_load, NULL, "garbage", 7, &err), DUMP_FOREIGN);
    cr_assert(strstr(err.text, "begins with its header, iterator 1"));
    cr_assert_eq(dump_load_begin(&dump_load, NULL, NULL, 0, &err), DUMP_FOREIGN);
    chunks_free(&chunks);
    filter_free(filter);
}

/* A half-loaded filter keeps its chunks without their iterators: with the identity and the nonce of the header they
 * are written again unchanged, and taken without iterators; a chunk out of order is refused there, too. */
Test(dump, chunks_that_have_come_are_written_again_as_they_were)
{
    struct bloom_filter *filter = filled(500000, 0.01, 2, 700000);
    struct chunks chunks = dump(filter, 77);
    struct dump_load load, replayed;
    struct dump_place place;
    struct errbuf err = {""};
    bool complete = false;

    cr_assert_gt(chunks.count, 4);
    cr_assert_eq(dump_load_begin(&load, &chunks.items[0].iterator, chunks.items[0].bytes, chunks.items[0].len, &err),
                 DUMP_OK, "%s", err.text);
    struct bloom_filter *half = filter_of(&load.plan.params, load.plan.shapes, load.plan.nlayers);
    for (size_t i = 1; i < 3; i++)
        cr_assert_eq(dump_load_chunk(&load, half, &chunks.items[i].iterator, chunks.items[i].bytes, chunks.items[i].len,
                                     &complete, &err),
                     DUMP_OK, "%s", err.text);
    place = (struct dump_place){.nlayers = load.plan.nlayers};
    for (size_t i = 0; i < 3; i++) {
        size_t len = dump_chunk_bytes(&load.plan, place.next);
        unsigned char *again = malloc(len);

        cr_assert_eq(len, chunks.items[i].len);
        dump_write_chunk(&load.plan, half, load.identity, load.nonce, &place, again);
        cr_assert_eq(memcmp(again, chunks.items[i].bytes, len), 0, "chunk %zu", i);
        cr_assert_eq(dump_iterator(&place), chunks.items[i].iterator);
        free(again);
    }
    cr_assert(dump_is_header(chunks.items[0].bytes, chunks.items[0].len));
    cr_assert_not(dump_is_header(chunks.items[1].bytes, chunks.items[1].len));
    cr_assert_eq(dump_load_begin(&replayed, NULL, chunks.items[0].bytes, chunks.items[0].len, &err), DUMP_OK);
    cr_assert_eq(replayed.nonce, load.nonce);
    cr_assert_eq(dump_load_chunk(&replayed, half, NULL, chunks.items[2].bytes, chunks.items[2].len, &complete, &err),
                 DUMP_BAD);
    chunks_free(&chunks);
    filter_free(half);
    filter_free(filter);
}

/* Iterators are positive and fit a double; any other number is refused. */
Test(dump, iterators)
{
    struct dump_place place = {.nlayers = BLOOM_MAX_LAYERS, .next = DUMP_MAX_CHUNKS - 1, .chain = (1u << 21) - 1}, back;

    cr_assert_eq(dump_iterator(&place), (INT64_C(1) << 53) - 1);
    cr_assert(dump_place_from(dump_iterator(&place), &back));
    cr_assert(back.nlayers == BLOOM_MAX_LAYERS && back.next == place.next && back.chain == place.chain);
    cr_assert_not(dump_place_from(0, &back));
    cr_assert_not(dump_place_from(1, &back));
    cr_assert_not(dump_place_from(-1, &back));
    cr_assert_not(dump_place_from(INT64_MIN, &back));
    cr_assert_not(dump_place_from(INT64_C(1) << 53 | 1 << 21, &back));
    cr_assert(dump_place_from(1 << 21, &back));
    cr_assert(back.nlayers == 1 && back.next == 1 && back.chain == 0);
}
