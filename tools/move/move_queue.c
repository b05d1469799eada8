#include <stdlib.h>

#include "move_internal.h"

#define QUEUE_MAX \
    100000 /* some 15 MB; the scanner is faster than the workers, so that it soon knows how many there are */

void move_queue_init(struct move_queue *queue)
{
    *queue = (struct move_queue){.last = &queue->first};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
}

void move_queue_deinit(struct move_queue *queue)
{
    while (queue->first) {
        struct move_filter *filter = queue->first;
        queue->first = filter->next;
        free(filter);
    }
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->changed);
}

bool move_queue_put(struct move *move, struct move_filter *filter)
{
    struct move_queue *queue = &move->queue;
    pthread_mutex_lock(&queue->lock);
    while (queue->count >= QUEUE_MAX && !queue->ended)
        pthread_cond_wait(&queue->changed, &queue->lock);
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
    pthread_mutex_unlock(&queue->lock);
    return taken;
}

void move_queue_end(struct move_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->ended = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
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
    pthread_mutex_lock(&queue->lock);
    while (!queue->first && !queue->ended)
        pthread_cond_wait(&queue->changed, &queue->lock);
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
    pthread_mutex_unlock(&queue->lock);
    return n;
}
