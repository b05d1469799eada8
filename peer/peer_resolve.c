/* Looks up names of hosts. After a timeout the look-up continues in its thread, which frees everything when it ends. */
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "clock.h"
#include "peer_internal.h"

#define CANCEL_POLL_MS 100
#define LOOKUPS_MAX    32 /* at a time, abandoned ones included */

static atomic_uint lookups;

struct lookup {
    atomic_int users; /* the thread and the caller; the last one frees */
    sem_t ended;
    atomic_bool done; /* status and list are there */
    int status;
    struct addrinfo *list; /* NULL: the caller has it */
    char *port;            /* after the host */
    char host[];
};

static const struct addrinfo stream_socket = {.ai_socktype = SOCK_STREAM};

static void free_lookup(struct lookup *lookup)
{
    if (lookup->list)
        freeaddrinfo(lookup->list);
    sem_destroy(&lookup->ended);
    free(lookup);
}

static void leave(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->users, 1) == 1)
        free_lookup(lookup);
}

static void *look_up(void *arg)
{
    struct lookup *lookup = arg;
    lookup->status = getaddrinfo(lookup->host, lookup->port, &stream_socket, &lookup->list);
    atomic_fetch_sub(&lookups, 1);
    atomic_store(&lookup->done, true);
    sem_post(&lookup->ended);
    leave(lookup);
    return NULL;
}

/* The thread takes no signals: they are for the program's own threads. */
static bool start(struct lookup *lookup)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, &attr, look_up, lookup) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return started;
}

/* Waits for the end. 0, -ETIMEDOUT or -ECANCELED. */
static int wait_for(struct lookup *lookup, const struct peer_limit *limit)
{
    while (!atomic_load(&lookup->done)) {
        int64_t now = clock_ms(), until = now + CANCEL_POLL_MS;
        if (limit->cancelled && atomic_load_explicit(limit->cancelled, memory_order_relaxed))
            return -ECANCELED;
        if (now >= limit->end_ms)
            return -ETIMEDOUT;
        until = until < limit->end_ms ? until : limit->end_ms;
        struct timespec end = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
        (void)sem_clockwait(&lookup->ended, CLOCK_MONOTONIC, &end);
    }
    return 0;
}

static struct lookup *create(const char *host, const char *port)
{
    size_t host_size = strlen(host) + 1, port_size = strlen(port) + 1;
    struct lookup *lookup = calloc(1, sizeof(*lookup) + host_size + port_size);
    if (!lookup)
        return NULL;
    memcpy(lookup->host, host, host_size);
    lookup->port = memcpy(lookup->host + host_size, port, port_size);
    atomic_init(&lookup->users, 2);
    sem_init(&lookup->ended, 0, 0);
    return lookup;
}

/* Starts a look-up: 0, -EAGAIN or -ENOMEM. */
static int begin(const char *host, const char *port, struct lookup **lookup_out)
{
    if (atomic_fetch_add(&lookups, 1) >= LOOKUPS_MAX) {
        atomic_fetch_sub(&lookups, 1);
        return -EAGAIN;
    }
    struct lookup *lookup = create(host, port);
    if (lookup && start(lookup)) {
        *lookup_out = lookup;
        return 0;
    }
    atomic_fetch_sub(&lookups, 1);
    if (lookup)
        free_lookup(lookup);
    return -ENOMEM;
}

/* Waits for a look-up, takes its result and ends it. */
static int finish(struct lookup *lookup, const struct peer_limit *limit, struct addrinfo **list_out, int *gai_out)
{
    int status = wait_for(lookup, limit);
    if (status == 0) {
        *gai_out = lookup->status;
        *list_out = lookup->list;
        lookup->list = NULL;
    }
    leave(lookup);
    return status;
}

int peer_resolve(const char *host, const char *port, const struct peer_limit *limit, struct addrinfo **list_out,
                 struct errbuf *err)
{
    struct addrinfo hints = stream_socket;
    struct lookup *lookup;
    hints.ai_flags = AI_NUMERICHOST;
    int gai = getaddrinfo(host, port, &hints, list_out), status = 0;
    if (gai == EAI_NONAME) { /* no address */
        status = begin(host, port, &lookup);
        if (status == 0)
            status = finish(lookup, limit, list_out, &gai);
    }
    if (status != 0) {
        errbuf_set(err, "cannot find %s: %s", host,
                   status == -EAGAIN      ? "too many names are being looked up"
                   : status == -ETIMEDOUT ? "the name look-up timed out"
                                          : strerror(-status));
    } else if (gai != 0) {
        errbuf_set(err, "cannot find %s: %s", host, gai_strerror(gai));
        status = -EHOSTUNREACH;
    }
    return status;
}
