/* sim_daemon: the whole daemon as threads of a run of the schedule. Its parts start as in bloomeryd, on sim_disk, with
 * a Unix socket.
 *
 * Thread: a thread of the run that does not belong to the daemon. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Starts a daemon with `workers` workers and the settings "name", "value", ..., NULL. The daemon runs until it is shut
 * down, or its start fails. */
void sim_daemon_start(unsigned workers, const char *const *settings);

enum sim_daemon_state { SIM_STARTS, SIM_SERVES, SIM_ENDS, SIM_ENDED };
enum sim_daemon_state sim_daemon_state(void);
int sim_daemon_status(void);         /* after its end: 0; else its start failed, or something was lost */
const char *sim_daemon_reason(void); /* the reason of such a status */

/* The socket of a daemon in that process: in memory where there is such a directory. */
void sim_daemon_socket(char path[64], pid_t pid);

/* Waits for the end of a daemon that ends by itself. */
void sim_daemon_join(void);

/* An end as after SIGTERM: with a save if the rules want one, or without. Waits for the end. */
void sim_daemon_stop(void);

/* Ends a daemon whose disk is frozen: it waits for nothing. */
void sim_daemon_tear_down(void);

/* The client's end of a new connection, nonblocking; -1: refused. */
int sim_connect(void);

/* The part of INFO's used_memory_dataset that small filters of SSTables have, and the most for their number. */
size_t sim_daemon_sstable_bytes(size_t *most_out);

/* One of this many allocations of the daemon fails, or of its thread of that name; 0: none. */
void sim_memory_fail(unsigned one_in);
void sim_memory_fail_in(const char *thread, unsigned one_in);
uint64_t sim_memory_failures(void);
