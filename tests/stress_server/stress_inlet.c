/* An inlet under many threads. Run under ThreadSanitizer, too.
 *
 * Claims: the taker gets every link once, those of one thread in the order of their puts, with the thread's earlier
 * writes; no wake is lost; after the end of the inlet it is empty. */
#include <sched.h>
#include <stdlib.h>

#include "inlet.h"
#include "stress.h"

#define PUTTERS 4
#define PUTS    20000

struct item {
    struct inlet_link link;
    unsigned putter, number;
};

static struct work_inlet inlet;

static unsigned next[PUTTERS];
static atomic_uint putting = PUTTERS;

static void *put_all(void *arg)
{
    for (unsigned i = 0; i < PUTS; i++) {
        struct item *item = malloc(sizeof(*item));
        EXPECT(item, "no memory");
        item->putter = (unsigned)(uintptr_t)arg - 1;
        item->number = i;
        work_inlet_put(&inlet, &item->link);
        if (i % 64 == 0)
            sched_yield();
    }
    if (atomic_fetch_sub(&putting, 1) == 1)
        work_inlet_end(&inlet);
    return NULL;
}

static void *take_all(void *arg)
{
    bool ended = false;

    (void)arg;
    while (!ended) {
        struct inlet_link *after, *link = work_inlet_take(&inlet, &ended);
        if (!link && !ended)
            work_inlet_wait(&inlet);
        for (; link; link = after) {
            struct item *item = (struct item *)(void *)link;
            after = link->next;
            EXPECT(item->number == next[item->putter], "%u of %u", item->number, item->putter);
            next[item->putter]++;
            free(item);
        }
    }
    return NULL;
}

int main(void)
{
    void *(*const fns[PUTTERS + 1])(void *) = {put_all, put_all, put_all, put_all, take_all};

    work_inlet_init(&inlet);
    run_threads(fns, PUTTERS + 1);
    for (unsigned i = 0; i < PUTTERS; i++)
        EXPECT(next[i] == PUTS, "%u of %u", next[i], i);
    EXPECT(!inlet_take(&inlet.inlet), "a link is left");
    work_inlet_deinit(&inlet);
    return 0;
}
