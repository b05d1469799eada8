/* The queue between the scanner and the workers. */
#include <stdlib.h>

#include "move_internal.h"
#include "lock.h"

#define QUEUE_MAX 100000 /* some 15 MB; the scanner runs ahead, to know how many filters there are */

void move_queue_init(struct move_queue *queue)
{
    *queue = (struct move_queue){.last = &queue->first};
    pthread_cond_init(&queue->changed, NULL);
}

void move_queue_deinit(struct move_queue *queue)
{
    while (queue->first) {
        struct move_filter *filter = queue->first;
        queue->first = filter->next;
        free(filter);
    }
    pthread_cond_destroy(&queue->changed);
}

bool move_queue_put(struct move *move, struct move_filter *filter)
{
    struct move_queue *queue = &move->queue;
    lock_take(&move->lock);
    while (queue->count >= QUEUE_MAX && !queue->ended)
        lock_wait(&queue->changed, &move->lock);
    bool taken = !queue->ended;
    if (taken) {
        filter->next = NULL;
        *queue->last = filter;
        queue->last = &filter->next;
        queue->count++;
        pthread_cond_broadcast(&queue->changed);
    } else {
        free(filter);
    }
    lock_give(&move->lock);
    return taken;
}

void move_queue_end(struct move *move)
{
    struct move_queue *queue = &move->queue;
    lock_take(&move->lock);
    queue->ended = true;
    pthread_cond_broadcast(&queue->changed);
    lock_give(&move->lock);
}

static struct move_filter *take_first(struct move_queue *queue)
{
    struct move_filter *filter = queue->first;
    queue->first = filter->next;
    if (!queue->first)
        queue->last = &queue->first;
    queue->count--;
    return filter;
}

size_t move_queue_take(struct move *move, struct move_filter **filters)
{
    struct move_queue *queue = &move->queue;
    int64_t bytes = 0;
    size_t n = 0;
    lock_take(&move->lock);
    while (!queue->first && !queue->ended)
        lock_wait(&queue->changed, &move->lock);
    while (queue->first && n < MOVE_BATCH && !move_stopped(move)) {
        int64_t size = queue->first->info.size;
        if (n > 0 && (size > MOVE_LARGE_BYTES || bytes + size > MOVE_BATCH_BYTES))
            break;
        filters[n++] = take_first(queue);
        bytes += size;
        if (size > MOVE_LARGE_BYTES)
            break;
    }
    pthread_cond_broadcast(&queue->changed);
    lock_give(&move->lock);
    return n;
}
