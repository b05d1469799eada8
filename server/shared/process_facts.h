/* process_facts: the process itself; constant once the workers run, except for atomic members. */
#ifndef BLOOMERY_PROCESS_FACTS_H
#define BLOOMERY_PROCESS_FACTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct process_facts {
    char run_id[41];
    char config_file[4096]; /* absolute, or "" */
    char executable[4096];
    char *data_dir;       /* as it was given at the start */
    bool has_pidfile;     /* it was written, and is removed at the end */
    _Atomic int port;     /* TCP port of the listening sockets, 0 if none */
    _Atomic int tls_port; /* likewise of those with TLS */
    int64_t started_ms;   /* monotonic */
    int64_t started_unix_ms;
    _Atomic int64_t main_user_usec; /* CPU time of the main thread */
    _Atomic int64_t main_sys_usec;
};

#endif
