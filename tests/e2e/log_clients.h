/* log_clients: clients that write until the daemon is killed and know what was answered, a disk that can be told to fail,
 * and the questions that every test of the log asks afterwards. */
#ifndef BLOOMERY_TEST_LOG_CLIENTS_H
#define BLOOMERY_TEST_LOG_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon.h"

#define WRITERS_MAX 64

/* Writers add to the filter "w", each its own items, "<writer>:<n>", n = 0, 1, 2, ... in pipelines. */
struct writers {
    int port;
    unsigned count;
    unsigned pipeline;
    long limit;                /* items of each; 0: until the connection ends */
    bool transactions;         /* each pipeline is one MULTI */
    long sent[WRITERS_MAX];    /* items that were sent */
    long first[WRITERS_MAX];   /* item that this run began with */
    long acked[WRITERS_MAX];   /* items first .. acked - 1 were answered */
    char *known[WRITERS_MAX];  /* per item: it was there at the last check; malloc'ed */
    long nknown[WRITERS_MAX];
    double acked_at[WRITERS_MAX][4096]; /* when item (i * 256) had been, for those that fit; seconds */
    void *threads[WRITERS_MAX];
};

/* Reserves "w" (growing from small, at a rate at which no false positive happens) unless it is there, and starts them. */
void writers_start(struct writers *writers, int port, unsigned count, unsigned pipeline);
void writers_join(struct writers *writers);

/* What every state after a restart must hold: all items that were answered before the time `before` (0: all) are present,
 * so are all that were at the last check, and BF.CARD is the number of those that are present. */
void writers_check(struct writers *writers, int port, double before);
void writers_free(struct writers *writers);

double seconds_now(void);

/* `bloomery check` of the data directory: its exit status; what it printed is in *output_out until the next call. */
int check_tool(const struct daemon *daemon, const char **output_out);

/* The disk of daemons that are started from now on (disk_shim.c). */
void disk_attach(void);
void disk_detach(void);
void disk_set(const char *what); /* "" for a good one */

/* A field of INFO as a number. */
long long info_number(int port, const char *field);

/* Runs the command until the reply begins with `prefix`; fails after a long time. */
void wait_for_reply(int port, const char *prefix, const char *command);

#endif
