/* mailbox: messages of other threads to a loop. A message is a function that runs on the loop; messages run in the
 * order of their posting. A wake without a message makes the loop read values that other threads have set.
 *
 * A notice is a message without contents, which a part of the loop expects: posted again before it has run, it runs
 * once.
 *
 * Lifetime: mailbox_init(), mailbox_expect() for each notice, mailbox_open() once there is a loop, mailbox_close() on
 * the loop when it ends. Posting is allowed from mailbox_init() on, as long as there is the memory; messages to a
 * mailbox that is not open stay in it. Thread: mailbox_post(), mailbox_notify() and mailbox_wake(): any; everything
 * else: the loop's. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "inlet.h"

/* A message: `run` is called once, on the loop, in an iteration of it. It may post, write to connections, and free the
 * memory that holds the message. It must not block. `ending`: the daemon ends, there are no connections any more, and
 * it only frees what it owns. */
struct message {
    struct inlet_link link; /* internal; the first member */
    void (*run)(struct message *message, bool ending);
};

enum notice {
    NOTICE_PUBLISHED,  /* the hub has messages for clients of the loop (push.h) */
    NOTICE_PUBLISHERS, /* publishers that wait may continue (push.h) */
    NOTICE_CLIENTS,    /* its largest client may have to be closed (client_limit.c) */
    NOTICE_GATE,       /* it is called to the gate (exclusive.h) */
    NOTICE_USERS,      /* users have been changed */
    NOTICE_PAUSE,      /* CLIENT PAUSE or UNPAUSE has been called */
};
#define NOTICES 6

struct notice_message {
    struct message message;
    atomic_bool posted, running;
    void (*run)(void *part);
    void *part;
};

struct mailbox {
    uv_async_t wake;
    struct inlet messages;
    atomic_bool open;   /* `wake` may be sent */
    atomic_uint wakers; /* threads that are about to send it: mailbox_close() waits for them */
    struct notice_message notices[NOTICES];
};

void mailbox_init(struct mailbox *mailbox); /* of zeros */

/* run(part) is called for this notice, unless the daemon ends. */
void mailbox_expect(struct mailbox *mailbox, enum notice notice, void (*run)(void *part), void *part);

/* Calls `on_wake`, whose handle's data is `data`, on the loop after one or more posts or wakes. 0 or -errno. */
int mailbox_open(struct mailbox *mailbox, uv_loop_t *loop, uv_async_cb on_wake, void *data);

/* Closes the handle of the loop. Waits for threads that are sending it, for a system call at most. */
void mailbox_close(struct mailbox *mailbox);

/* Posts a message in the caller's memory, which must stay valid until it has run. Never fails. */
void mailbox_post(struct mailbox *mailbox, struct message *message);

/* Posts a notice. Never fails. */
void mailbox_notify(struct mailbox *mailbox, enum notice notice);

/* Whether run(part) has returned for every notice that was posted before. Thread: any. */
bool mailbox_is_noticed(const struct mailbox *mailbox, enum notice notice);

/* Wakes the loop. Never fails. */
void mailbox_wake(struct mailbox *mailbox);

/* Takes all messages, the oldest first; NULL: none. */
struct message *mailbox_take(struct mailbox *mailbox);

static inline struct message *mailbox_next(const struct message *message)
{
    return (struct message *)(void *)message->link.next;
}
