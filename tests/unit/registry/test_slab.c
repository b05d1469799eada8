/* Small objects in pages of equal ones: none overlaps another, freed memory is used again, also for other sizes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "slab.h"

#define COUNT 20000

static size_t size_of(unsigned i, unsigned round)
{
    return 1 + (i * 37 + round * 101) % SLAB_MAX_SIZE;
}

static void fill(unsigned char *object, unsigned i, unsigned round)
{
    for (size_t b = 0; b < size_of(i, round); b++)
        cr_assert_eq(object[b], 0, "byte %zu of object %u is not zero", b, i);
    memset(object, (int)(1 + i % 255), size_of(i, round));
}

static void expect_filled(const unsigned char *object, unsigned i, unsigned round)
{
    for (size_t b = 0; b < size_of(i, round); b++)
        cr_assert_eq(object[b], 1 + i % 255, "byte %zu of object %u", b, i);
}

/* Half of all objects are freed and made again with other sizes, three times. */
Test(slab, objects_are_zeroed_and_apart)
{
    static unsigned char *objects[COUNT];
    static unsigned round_of[COUNT];
    struct slab *slab = slab_create();
    cr_assert(slab);
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            if (objects[i] && (i + round) % 2)
                continue;
            if (objects[i]) {
                expect_filled(objects[i], i, round_of[i]);
                slab_free(objects[i]);
            }
            objects[i] = slab_alloc(slab, size_of(i, round));
            cr_assert(objects[i] && (uintptr_t)objects[i] % 8 == 0);
            round_of[i] = round;
            fill(objects[i], i, round);
        }
    }
    for (unsigned i = 0; i < COUNT; i++) {
        expect_filled(objects[i], i, round_of[i]);
        slab_free(objects[i]);
    }
    slab_destroy(slab);
}

/* Larger objects can take the memory of many small ones; only a page stays. */
Test(slab, pages_without_objects_are_used_for_other_sizes)
{
    static void *objects[COUNT];
    struct slab *slab = slab_create();
    uint64_t most = 0;
    cr_assert(slab);
    for (size_t size = 8; size <= SLAB_MAX_SIZE; size += 56) {
        for (unsigned i = 0; i < COUNT; i++)
            cr_assert(objects[i] = slab_alloc(slab, size));
        uint64_t bytes = slab_bytes(slab);
        cr_assert_leq(bytes, COUNT * size + COUNT * size / 50 + 16 * 65536, "%zu bytes each", size);
        most = bytes > most ? bytes : most;
        for (unsigned i = 0; i < COUNT; i++)
            slab_free(objects[i]);
        cr_assert_leq(slab_bytes(slab), 65536);
    }
    cr_assert_leq(most, COUNT * SLAB_MAX_SIZE + (1 << 20));
    slab_destroy(slab);
}
