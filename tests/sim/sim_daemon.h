/* sim_daemon: the whole daemon as threads of a run of the schedule: its parts as bloomeryd starts them, on sim_disk,
 * with a Unix socket to connect to.
 *
 * Thread: a thread of the run that is none of the daemon's. */
#ifndef BLOOMERY_SIM_DAEMON_H
#define BLOOMERY_SIM_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts a daemon with that many workers and these settings, "name", "value", ..., NULL. It runs on until it has been
 * shut down, or its start has failed. */
void sim_daemon_start(unsigned workers, const char *const *settings);

enum sim_daemon_state { SIM_STARTS, SIM_SERVES, SIM_ENDS, SIM_ENDED };
enum sim_daemon_state sim_daemon_state(void);
int sim_daemon_status(void);         /* after its end: 0, or why it did not start or lost something */
const char *sim_daemon_reason(void); /* the text of it */

/* Waits for the end of a daemon that ends by itself. */
void sim_daemon_join(void);

/* As SIGTERM asks: an end by the rules of saves; or one that continues. Waits for it. */
void sim_daemon_stop(void);

/* The end of a daemon whose disk is frozen: nothing holds it up. */
void sim_daemon_tear_down(void);

/* A connection's end for the client, which does not block; -1: it was refused. */
int sim_connect(void);

/* One in so many allocations of the daemon fails; 0: none. */
void sim_memory_fail(unsigned one_in);
uint64_t sim_memory_failures(void);

#endif
