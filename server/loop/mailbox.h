/* mailbox: messages of other threads to a worker's loop. A message is a function that runs on the loop; messages run in
 * the order of their posting. A wake without a message makes the loop read values that other threads have set.
 *
 * Lifetime: mailbox_init(), mailbox_open() once there is a loop, mailbox_close() on the loop when it ends,
 * mailbox_deinit(). Posting is allowed from mailbox_init() to mailbox_deinit(); messages to a mailbox that is not open
 * stay in it. Thread: mailbox_post() and mailbox_wake(): any; everything else: the worker's. */
#ifndef BLOOMERY_MAILBOX_H
#define BLOOMERY_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

struct worker;

/* A message: `run` is called once, on the worker's loop, after worker_enter(). It may post, write to connections, and
 * free the memory that holds the message. At the end of the daemon it is called with worker->stopping set: there are no
 * connections any more, and it must free everything it owns. It must not block. */
struct worker_message {
    struct worker_message *next; /* internal */
    void (*run)(struct worker *worker, struct worker_message *message);
};

struct mailbox {
    uv_async_t wake;
    pthread_mutex_t lock;          /* guards the fields below */
    struct worker_message *newest; /* a list: each message points to the one posted before it */
    bool open;                     /* `wake` may be sent */
};

void mailbox_init(struct mailbox *mailbox);
void mailbox_deinit(struct mailbox *mailbox);

/* Calls `on_wake`, whose handle's data is `data`, on the loop after one or more posts or wakes. 0 or -errno. */
int mailbox_open(struct mailbox *mailbox, uv_loop_t *loop, uv_async_cb on_wake, void *data);

/* Closes the handle of the loop. */
void mailbox_close(struct mailbox *mailbox);

/* Posts a message in the caller's memory, which must stay valid until it has run. Never fails. */
void mailbox_post(struct mailbox *mailbox, struct worker_message *message);

/* Wakes the loop. Never fails. */
void mailbox_wake(struct mailbox *mailbox);

/* Takes all messages, the oldest first; NULL: there are none. */
struct worker_message *mailbox_take(struct mailbox *mailbox);

#endif
