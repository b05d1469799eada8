#include "mailbox.h"

#include <sched.h>

static void run_notice(struct message *message, bool ending)
{
    struct notice_message *notice = (struct notice_message *)message;
    atomic_store(&notice->running, true); /* before `posted` goes: see mailbox_is_noticed() */
    atomic_store(&notice->posted, false);
    if (!ending)
        notice->run(notice->part);
    atomic_store(&notice->running, false);
}

void mailbox_init(struct mailbox *mailbox)
{
    for (int i = 0; i < NOTICES; i++)
        mailbox->notices[i].message.run = run_notice;
}

void mailbox_expect(struct mailbox *mailbox, enum notice notice, void (*run)(void *part), void *part)
{
    mailbox->notices[notice].run = run;
    mailbox->notices[notice].part = part;
}

int mailbox_open(struct mailbox *mailbox, uv_loop_t *loop, uv_async_cb on_wake, void *data)
{
    int err = uv_async_init(loop, &mailbox->wake, on_wake);
    mailbox->wake.data = data;
    if (!err)
        atomic_store(&mailbox->open, true);
    return err;
}

/* A thread that counts itself later finds the mailbox closed. */
void mailbox_close(struct mailbox *mailbox)
{
    atomic_store(&mailbox->open, false);
    while (atomic_load(&mailbox->wakers))
        sched_yield();
    uv_close((uv_handle_t *)&mailbox->wake, NULL);
}

void mailbox_wake(struct mailbox *mailbox)
{
    atomic_fetch_add(&mailbox->wakers, 1);
    if (atomic_load(&mailbox->open))
        uv_async_send(&mailbox->wake);
    atomic_fetch_sub(&mailbox->wakers, 1);
}

void mailbox_post(struct mailbox *mailbox, struct message *message)
{
    inlet_put(&mailbox->messages, &message->link);
    mailbox_wake(mailbox);
}

void mailbox_notify(struct mailbox *mailbox, enum notice notice)
{
    if (!atomic_exchange(&mailbox->notices[notice].posted, true))
        mailbox_post(mailbox, &mailbox->notices[notice].message);
}

bool mailbox_is_noticed(const struct mailbox *mailbox, enum notice notice)
{
    return !atomic_load(&mailbox->notices[notice].posted) && !atomic_load(&mailbox->notices[notice].running);
}

struct message *mailbox_take(struct mailbox *mailbox)
{
    return (struct message *)(void *)inlet_take(&mailbox->messages);
}
