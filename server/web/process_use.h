/* process_use: what the process takes of the machine, as Prometheus's own clients tell it. Thread: any. */
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
