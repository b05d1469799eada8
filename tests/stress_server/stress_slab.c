/* One slab under many threads: objects are made by all and freed by the thread that takes them over, as entries are
 * made by workers and freed by the reclaimer. Entries come from malloc() under the sanitizers, so that these detect
 * uses after a free; the slab itself is checked here.
 *
 * Claims: an object is zeroed, belongs to one owner until it is freed, and in the end no more pages are held than
 * one for each size. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slab.h"
#include "stress.h"

#define THREADS 4
#define SHARED  4096 /* places at which objects change hands */
#define ROUNDS  200000

struct object {
    uint32_t size;
    uint32_t mark;
};

static struct slab *slab;
static _Atomic(struct object *) shared[SHARED];

static void release(struct object *object)
{
    unsigned char *bytes = (unsigned char *)object;
    for (uint32_t i = sizeof(*object); i < object->size; i++)
        EXPECT(bytes[i] == (unsigned char)object->mark, "byte %u of an object of %u was overwritten", i, object->size);
    slab_free(object);
}

static struct object *make(unsigned *state)
{
    uint32_t size =
        (uint32_t)sizeof(struct object) + (uint32_t)rand_r(state) % (SLAB_MAX_SIZE - sizeof(struct object) + 1);
    struct object *object = slab_alloc(slab, size);
    EXPECT(object, "no memory");
    for (uint32_t i = 0; i < size; i++)
        EXPECT(((unsigned char *)object)[i] == 0, "byte %u of a new object of %u is not zero", i, size);
    object->size = size;
    object->mark = (uint32_t)rand_r(state);
    memset(object + 1, (int)(unsigned char)object->mark, size - sizeof(*object));
    return object;
}

static void *work(void *arg)
{
    unsigned state = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        /* waves: fill the places, then empty most of them, so that pages become empty */
        struct object *mine = i / (4 * SHARED) % 2 == 0 || rand_r(&state) % 64 == 0 ? make(&state) : NULL;
        struct object *theirs = atomic_exchange(&shared[(unsigned)rand_r(&state) % SHARED], mine);
        if (theirs)
            release(theirs);
    }
    return NULL;
}

int main(void)
{
    void *(*const threads[])(void *) = {work, work, work, work};
    EXPECT(slab = slab_create(), "no memory");
    run_threads(threads, THREADS);
    for (size_t i = 0; i < SHARED; i++)
        if (shared[i])
            release(shared[i]);
    EXPECT(slab_bytes(slab) <= (SLAB_MAX_SIZE / 8) * (UINT64_C(64) << 10), "%llu bytes of pages without objects",
           (unsigned long long)slab_bytes(slab));
    slab_destroy(slab);
    printf("%u objects made or taken over by each of %u threads\n", ROUNDS, THREADS);
    return 0;
}
