#include "descriptors.h"

#include <sys/resource.h>

#define FILES      64 /* and listening sockets */
#define PER_WORKER 8  /* epoll, eventfd, libuv's others */

int64_t descriptors_reserved(unsigned nworkers)
{
    return FILES + (int64_t)nworkers * PER_WORKER;
}

static void raise_limit(struct rlimit *limit, rlim_t want)
{
    rlim_t hard = limit->rlim_max;
    limit->rlim_cur = want;
    if (hard < want)
        limit->rlim_max = want; /* permitted with CAP_SYS_RESOURCE */
    if (setrlimit(RLIMIT_NOFILE, limit) == 0)
        return;
    limit->rlim_cur = limit->rlim_max = hard;
    (void)setrlimit(RLIMIT_NOFILE, limit);
}

int64_t descriptors_for_clients(int64_t clients, unsigned nworkers)
{
    struct rlimit limit;
    int64_t reserved = descriptors_reserved(nworkers);
    rlim_t want = (rlim_t)(clients + reserved);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return clients; /* the limit is unknown: accept() will report it */
    if (limit.rlim_cur < want)
        raise_limit(&limit, want);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return clients;
    return (int64_t)limit.rlim_cur > reserved ? (int64_t)limit.rlim_cur - reserved : 0;
}
