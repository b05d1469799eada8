#include "machine.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number in a file; `most` if there is none, as in "max". */
static uint64_t read_limit(const char *dir, const char *file, uint64_t most)
{
    char path[PATH_MAX];
    uint64_t bytes;
    if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
        return most;
    FILE *limit = fopen(path, "re");
    if (!limit)
        return most;
    bool found = fscanf(limit, "%" SCNu64, &bytes) == 1;
    fclose(limit);
    return found && bytes > 0 && bytes < most ? bytes : most;
}

/* The least limit of a group and its parents. Those above a container's own group are missing. */
static uint64_t limit_of(const char *mount, const char *group, const char *file, uint64_t most)
{
    char dir[PATH_MAX];
    if (snprintf(dir, sizeof(dir), "%s%s", mount, group) >= (int)sizeof(dir))
        return most;
    for (size_t top = strlen(mount);;) {
        most = read_limit(dir, file, most);
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < top)
            return most;
        *slash = '\0';
    }
}

uint64_t machine_memory_of(const char *groups, const char *root, uint64_t physical)
{
    char line[PATH_MAX], mount[PATH_MAX];
    uint64_t most = physical;
    FILE *file = fopen(groups, "re");
    while (file && fgets(line, sizeof(line), file)) { /* "<number>:<controllers>:<path>" */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (strcmp(controllers, ":") == 0)
            most = limit_of(root, group, "memory.max", most);
        else if (strcmp(controllers, ":memory") == 0 &&
                 snprintf(mount, sizeof(mount), "%s/memory", root) < (int)sizeof(mount))
            most = limit_of(mount, group, "memory.limit_in_bytes", most);
    }
    if (file)
        fclose(file);
    return most;
}

uint64_t machine_memory(void)
{
    uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return machine_memory_of("/proc/self/cgroup", "/sys/fs/cgroup", physical);
}

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
