/* The single piece of a DUMP: a value of the module's type. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "crc64.h"
#include "cuckoo.h"
#include "cuckoo_dump.h"
#include "cuckoo_shape.h"
#include "dump.h"
#include "dump_rig.h"
#include "lzf_pack.h"
#include "rdb_reader.h"
#include "redisbloom_dump.h"
#include "redisbloom_size.h"

static void setup(void)
{
    dump_rig_init(5);
}

TestSuite(dump_value, .init = setup, .fini = dump_rig_deinit);

/* Corrects the checksum at the end. */
static void seal(unsigned char *bytes, size_t len)
{
    uint64_t crc = crc64(0, bytes, len - 8);

    memcpy(bytes + len - 8, &crc, 8);
}

Test(dump_value, one_piece_makes_the_same_filter_again)
{
    struct bloom_filter *filter = filled(10, 0.01, 2, 3000);
    struct dump_plan plan, read;
    struct errbuf err = {""};

    dump_plan_of(filter, bloom_filter_nlayers(filter), &plan);
    size_t len = (size_t)dump_whole_bytes(&plan);
    unsigned char *bytes = malloc(len);
    dump_write_whole(&plan, filter, bytes);
    cr_assert_eq(dump_read_plan(bytes, len, &read, &err), DUMP_OK, "%s", err.text);
    struct bloom_filter *again = filter_of(&read.params, read.shapes, read.nlayers);
    cr_assert_eq(dump_read_whole(bytes, len, again, &err), DUMP_OK, "%s", err.text);
    cr_assert(same(filter, again));

    for (unsigned round = 0; round < 2000; round++) {
        size_t at = rng_below(&rng, len);
        unsigned char bit = (unsigned char)(1u << rng_below(&rng, 8));

        bytes[at] ^= bit;
        cr_assert_neq(dump_read_plan(bytes, len, &read, &err), DUMP_OK, "byte %zu", at);
        if (at < len - 10) { /* even with the right checksum: the version of RDB means nothing */
            seal(bytes, len);
            cr_assert(dump_read_plan(bytes, len, &read, &err) != DUMP_OK ||
                          dump_read_whole(bytes, len, again, &err) != DUMP_OK,
                      "byte %zu", at);
        }
        bytes[at] ^= bit;
        seal(bytes, len);
        cr_assert_neq(dump_read_plan(bytes, rng_below(&rng, len), &read, &err), DUMP_OK);
    }
    filter_free(again);
    free(bytes);
    filter_free(filter);
}

static int read_piece(const unsigned char *bytes, size_t len)
{
    struct dump_plan plan;
    struct errbuf err = {""};

    if (dump_read_plan(bytes, len, &plan, &err) != DUMP_OK)
        return DUMP_BAD;
    struct bloom_filter *again = filter_of(&plan.params, plan.shapes, plan.nlayers);
    int rc = dump_read_whole(bytes, len, again, &err);
    filter_free(again);
    return rc;
}

static int read_redisbloom(const unsigned char *bytes, size_t len)
{
    struct dump_plan plan;
    struct errbuf err = {""};

    return rdb_is_dump(bytes, len) ? redisbloom_restore_plan(bytes, len, &plan, &err) : DUMP_BAD;
}

static int read_cuckoo(const unsigned char *bytes, size_t len)
{
    struct dump_plan plan;
    struct errbuf err = {""};

    return cuckoo_is_dump(bytes, len) ? cuckoo_restore_plan(bytes, len, &plan, &err) : DUMP_BAD;
}

static unsigned char *write_piece(const struct bloom_filter *filter, size_t *len_out)
{
    struct dump_plan plan;

    dump_plan_of(filter, bloom_filter_nlayers(filter), &plan);
    *len_out = (size_t)dump_whole_bytes(&plan);
    unsigned char *bytes = malloc(*len_out);
    dump_write_whole(&plan, filter, bytes);
    return bytes;
}

static unsigned char *write_redisbloom(const struct bloom_filter *filter, size_t *len_out)
{
    unsigned char *bytes;
    uint64_t len;

    cr_assert_eq(redisbloom_dump(filter, UINT64_MAX, &bytes, &len), DUMP_OK);
    *len_out = (size_t)len;
    return bytes;
}

static unsigned char *write_cuckoo(const struct bloom_filter *filter, size_t *len_out)
{
    unsigned char *bytes;
    uint64_t len;

    cr_assert_eq(cuckoo_dump(filter, UINT64_MAX, &bytes, &len), DUMP_OK);
    *len_out = (size_t)len;
    return bytes;
}

struct form {
    struct bloom_params params;
    struct cuckoo_numbers cuckoo;
    unsigned char *(*write)(const struct bloom_filter *filter, size_t *len_out);
    int (*read)(const unsigned char *bytes, size_t len);
};

static struct bloom_filter *some_items(const struct form *form)
{
    struct bloom_params params = form->params;
    struct bloom_shape shape;
    struct errbuf err = {""};
    bool cuckoo = form->write == write_cuckoo;

    cr_assert(!cuckoo || cuckoo_plan(&form->cuckoo, &params, &shape, &err) == BLOOM_OK, "%s", err.text);
    struct bloom_filter *filter = filter_of(&params, cuckoo ? &shape : NULL, 1);
    for (int i = 0; i < 10; i++) {
        if (cuckoo)
            cuckoo_add(filter, rng_next(&rng), false, NULL, &err);
        else
            bloom_filter_add(filter, (struct bloom_hash){rng_next(&rng), rng_next(&rng)}, &err);
    }
    return filter;
}

/* Zeros at the end do not change the checksum: what is one byte longer, or shorter by a zero, does not end where its
 * value does. */
Test(dump_value, zeros_at_the_end_are_no_part_of_it)
{
    static const struct form forms[] = {
        {{100, 0.01, 2}, {0}, write_piece, read_piece},
        {{.capacity = 100, .error_rate = 0.01, .expansion = 2, .redisbloom = REDISBLOOM_DEFAULT},
         {0},
         write_redisbloom,
         read_redisbloom},
        {{0}, {.capacity = 100, .bucket_size = 2, .iterations = 20, .expansion = 1}, write_cuckoo, read_cuckoo},
        {{0},
         {.capacity = 100, .bucket_size = CUCKOO_RATE_BUCKET, .iterations = 20, .expansion = 1, .error_rate = 0.01},
         write_cuckoo,
         read_cuckoo},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        unsigned shorter = 0;
        for (unsigned n = 0; n < 20000 && shorter < 3; n++) { /* one checksum in 256 ends with a zero */
            size_t len;
            struct bloom_filter *filter = some_items(&forms[i]);
            unsigned char *bytes = forms[i].write(filter, &len);

            cr_assert_eq(forms[i].read(bytes, len), DUMP_OK, "form %zu", i);
            if (bytes[len - 1] == 0) {
                cr_assert_neq(forms[i].read(bytes, len - 1), DUMP_OK, "form %zu", i);
                shorter++;
            }
            bytes = realloc(bytes, len + 9);
            memset(bytes + len, 0, 9);
            for (size_t more = 1; more <= 9; more++)
                cr_assert_neq(forms[i].read(bytes, len + more), DUMP_OK, "form %zu, %zu bytes more", i, more);
            free(bytes);
            filter_free(filter);
        }
        cr_expect_eq(shorter, 3);
    }
}

/* The strings of an engine may be compressed, each or none. */
Test(dump_value, one_piece_with_compressed_strings_is_the_same_filter)
{
    struct bloom_filter *filter = filled(200000, 0.01, 2, 30);
    struct dump_plan plan, read;
    struct errbuf err = {""};

    dump_plan_of(filter, 1, &plan);
    size_t len = (size_t)dump_whole_bytes(&plan), chunk_len;
    unsigned char *plain = malloc(len), *packed = malloc(len), *bytes = malloc(2 * len), *at = packed;
    const unsigned char *from = plain;
    dump_write_whole(&plan, filter, plain);
    memcpy(at, from, 12); /* up to the number of chunks: type, id, opcode, number */
    at += 12;
    from += 12;
    for (uint32_t i = 0; i < dump_chunks(&plan); i++) {
        unsigned char space[RDB_LENGTH_MAX_BYTES];

        chunk_len = dump_chunk_bytes(&plan, i);
        *at++ = *from++;
        from += rdb_put_length(space, chunk_len) - space;
        size_t n = lzf_pack(from, chunk_len, bytes);
        *at++ = 0xc3;
        at = rdb_put_length(rdb_put_length(at, n), chunk_len);
        memcpy(at, bytes, n);
        at += n;
        from += chunk_len;
    }
    memcpy(at, from, 11); /* the end, the version, room for the checksum */
    size_t packed_len = (size_t)(at - packed) + 11;
    cr_assert_lt(packed_len, len / 4);
    seal(packed, packed_len);
    cr_assert_eq(dump_read_plan(packed, packed_len, &read, &err), DUMP_OK, "%s", err.text);
    struct bloom_filter *again = filter_of(&read.params, read.shapes, read.nlayers);
    cr_assert_eq(dump_read_whole(packed, packed_len, again, &err), DUMP_OK, "%s", err.text);
    cr_assert(same(filter, again));
    filter_free(again);
    free(plain);
    free(packed);
    free(bytes);
    filter_free(filter);
}

static int64_t now_us; /* of the windows' clock */

static int64_t driven_clock(void)
{
    return now_us;
}

/* Other threads turn the window during a dump: a part may begin after the dump has checked the clock. */
Test(dump_value, a_part_that_began_while_the_dump_began_is_new)
{
    const struct bloom_params params = {.capacity = 10, .error_rate = 0.01, .window = 60000000, .window_parts = 1};
    struct bloom_filter *filter = filter_of(&params, NULL, 1);
    struct dump_plan plan, read;
    struct errbuf err = {""};

    bloom_pool_set_clock(pool, driven_clock);
    now_us = 5000001;
    cr_assert_eq(bloom_filter_add(filter, bloom_filter_hash(filter, "x", 1), &err), BLOOM_ADDED);
    now_us = 5000000;
    dump_plan_of(filter, 1, &plan);
    size_t len = (size_t)dump_whole_bytes(&plan);
    unsigned char *bytes = malloc(len);
    dump_write_whole(&plan, filter, bytes);
    cr_assert_eq(dump_read_plan(bytes, len, &read, &err), DUMP_OK, "%s", err.text);
    cr_assert_eq(read.turns[0].number, 1);
    cr_assert_eq(read.turns[0].age_us, 0);
    free(bytes);
    filter_free(filter);
}
