/* supervisor: tells the program that has started the daemon, usually systemd, about the daemon's state: messages to the
 * socket of $NOTIFY_SOCKET, as sd_notify(3) describes them. Without that variable nothing is sent. A message that
 * cannot be sent is dropped: the supervisor acts on missing messages itself.
 *
 * Thread: the main thread's. */
#pragma once

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct supervisor {
    int fd; /* -1: there is no supervisor */
    struct sockaddr_un to;
    socklen_t to_len;
    int64_t watchdog_ms; /* it expects a sign of life within this time; 0: never */
    int64_t sent_ms;     /* time of the last sign of life, or of the last request for more time */
};

void supervisor_init(struct supervisor *supervisor);
void supervisor_deinit(struct supervisor *supervisor);

/* The start continues: the supervisor waits for another minute. `percent` (0..100) of the data are loaded. Called
 * often; sends something every few seconds. */
void supervisor_loading(struct supervisor *supervisor, int64_t now_ms, unsigned percent);

/* The start is done: the data are loaded. */
void supervisor_ready(struct supervisor *supervisor);

/* Called often. The sign of life, twice per watchdog time, unless some event loop has not ticked for half of that
 * time: `ticked_ms` is the earliest of their last ticks (clock_ms()). */
void supervisor_alive(struct supervisor *supervisor, int64_t now_ms, int64_t ticked_ms);

/* Around a time in which the main thread waits for the disk: there are no signs of life. */
void supervisor_pause(struct supervisor *supervisor);
void supervisor_resume(struct supervisor *supervisor);

/* The daemon ends. */
void supervisor_stopping(struct supervisor *supervisor);
