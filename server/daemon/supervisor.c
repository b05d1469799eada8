#include "supervisor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOADING_SENT_MS   5000
#define LOADING_WAIT_US   60000000
#define UNWATCHED_HOURS   24
#define MAX_WATCHDOG_USEC (INT64_MAX / 2)

static void send_text(const struct supervisor *supervisor, const char *text)
{
    if (supervisor->fd >= 0)
        (void)!sendto(supervisor->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                      (const struct sockaddr *)&supervisor->to, supervisor->to_len);
}

/* A path, or '@' and an abstract name. False: neither. */
static bool set_address(struct supervisor *supervisor, const char *path)
{
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len >= sizeof(supervisor->to.sun_path))
        return false;
    supervisor->to.sun_family = AF_UNIX;
    memcpy(supervisor->to.sun_path, path, len + 1);
    if (path[0] == '@')
        supervisor->to.sun_path[0] = '\0';
    supervisor->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return true;
}

/* The watchdog's time, if it is meant for this process. */
static int64_t watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && strtoll(pid, NULL, 10) != getpid()))
        return 0;
    char *end;
    errno = 0;
    long long value = strtoll(usec, &end, 10);
    return errno || *end || value <= 0 || value > MAX_WATCHDOG_USEC ? 0 : (value + 999) / 1000;
}

void supervisor_init(struct supervisor *supervisor)
{
    const char *path = getenv("NOTIFY_SOCKET");
    *supervisor = (struct supervisor){.fd = -1};
    if (!path || !set_address(supervisor, path))
        return;
    supervisor->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    supervisor->watchdog_ms = supervisor->fd >= 0 ? watchdog_ms() : 0;
}

void supervisor_deinit(struct supervisor *supervisor)
{
    if (supervisor->fd >= 0)
        close(supervisor->fd);
    supervisor->fd = -1;
}

void supervisor_loading(struct supervisor *supervisor, int64_t now_ms, unsigned percent)
{
    char text[128];
    if (supervisor->sent_ms && now_ms - supervisor->sent_ms < LOADING_SENT_MS)
        return;
    supervisor->sent_ms = now_ms;
    snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%d\nSTATUS=Loading: %u %%", LOADING_WAIT_US, percent);
    send_text(supervisor, text);
}

void supervisor_ready(struct supervisor *supervisor)
{
    supervisor->sent_ms = 0;
    send_text(supervisor, "READY=1\nSTATUS=Serving");
}

void supervisor_alive(struct supervisor *supervisor, int64_t now_ms, int64_t ticked_ms)
{
    int64_t half_ms = supervisor->watchdog_ms / 2;
    if (!supervisor->watchdog_ms || now_ms - supervisor->sent_ms < half_ms || now_ms - ticked_ms > half_ms)
        return;
    supervisor->sent_ms = now_ms;
    send_text(supervisor, "WATCHDOG=1");
}

static void set_watchdog(const struct supervisor *supervisor, int64_t usec)
{
    char text[64];
    if (!supervisor->watchdog_ms)
        return;
    snprintf(text, sizeof(text), "WATCHDOG_USEC=%" PRId64 "\nWATCHDOG=1", usec);
    send_text(supervisor, text);
}

void supervisor_pause(struct supervisor *supervisor)
{
    set_watchdog(supervisor, INT64_C(3600000000) * UNWATCHED_HOURS);
}

void supervisor_resume(struct supervisor *supervisor)
{
    set_watchdog(supervisor, supervisor->watchdog_ms * 1000);
}

void supervisor_stopping(struct supervisor *supervisor)
{
    send_text(supervisor, "STOPPING=1\nSTATUS=Stopping");
}
