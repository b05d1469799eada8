#include "process_use.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fsops.h"

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static void read_memory(struct process_use *out)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages, resident;
    if (!file)
        return;
    if (fscanf(file, "%llu %llu", &pages, &resident) == 2) {
        out->virtual_bytes = (double)pages * (double)sysconf(_SC_PAGESIZE);
        out->resident = (double)resident * (double)sysconf(_SC_PAGESIZE);
    }
    fclose(file);
}

static void count_descriptors(struct process_use *out)
{
    DIR *dir = fs_open_dir("/proc/self/fd");
    if (!dir)
        return;
    out->open_fds = -1; /* the directory's own */
    for (const struct dirent *entry; (entry = readdir(dir));)
        out->open_fds += entry->d_name[0] != '.';
    closedir(dir);
}

void process_use(struct process_use *out)
{
    struct rusage usage;
    struct rlimit limit;
    *out = (struct process_use){NAN, NAN, NAN, NAN, NAN};
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        out->max_fds = limit.rlim_cur == RLIM_INFINITY ? INFINITY : (double)limit.rlim_cur;
    read_memory(out);
    count_descriptors(out);
}
