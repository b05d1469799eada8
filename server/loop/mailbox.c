#include "mailbox.h"

void mailbox_init(struct mailbox *mailbox)
{
    pthread_mutex_init(&mailbox->lock, NULL);
}

void mailbox_deinit(struct mailbox *mailbox)
{
    pthread_mutex_destroy(&mailbox->lock);
}

static void set_open(struct mailbox *mailbox, bool open)
{
    pthread_mutex_lock(&mailbox->lock);
    mailbox->open = open;
    pthread_mutex_unlock(&mailbox->lock);
}

int mailbox_open(struct mailbox *mailbox, uv_loop_t *loop, uv_async_cb on_wake, void *data)
{
    int err = uv_async_init(loop, &mailbox->wake, on_wake);
    mailbox->wake.data = data;
    if (!err)
        set_open(mailbox, true);
    return err;
}

void mailbox_close(struct mailbox *mailbox)
{
    set_open(mailbox, false);
    uv_close((uv_handle_t *)&mailbox->wake, NULL);
}

/* Under the lock: the handle must not be closed meanwhile. */
static void wake(struct mailbox *mailbox)
{
    if (mailbox->open)
        uv_async_send(&mailbox->wake);
}

void mailbox_post(struct mailbox *mailbox, struct worker_message *message)
{
    pthread_mutex_lock(&mailbox->lock);
    message->next = mailbox->newest;
    mailbox->newest = message;
    wake(mailbox);
    pthread_mutex_unlock(&mailbox->lock);
}

void mailbox_wake(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    wake(mailbox);
    pthread_mutex_unlock(&mailbox->lock);
}

struct worker_message *mailbox_take(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    struct worker_message *newest = mailbox->newest, *oldest = NULL;
    mailbox->newest = NULL;
    pthread_mutex_unlock(&mailbox->lock);
    while (newest) {
        struct worker_message *before = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = before;
    }
    return oldest;
}
