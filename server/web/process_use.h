/* process_use: the resources of the machine that the process uses, as Prometheus's own clients report them. Thread:
 * any. */
#ifndef BLOOMERY_PROCESS_USE_H
#define BLOOMERY_PROCESS_USE_H

/* NAN: unknown. */
struct process_use {
    double cpu_seconds;
    double resident, virtual_bytes;
    double open_fds, max_fds; /* max_fds: infinite without a limit */
};

void process_use(struct process_use *out);

#endif
