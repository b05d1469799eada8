/* log_clients: clients that write and know what was answered, and the questions that tests of the log ask. */
#ifndef BLOOMERY_TEST_LOG_CLIENTS_H
#define BLOOMERY_TEST_LOG_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon.h"
#include "disk_control.h"

#define WRITERS_MAX 64

/* Writers add to the filter "w", each its own items, "<writer>:<n>", n = 0, 1, 2, ... in pipelines. */
struct writers {
    int port;
    unsigned count;
    unsigned pipeline;
    long limit;              /* items of each; 0: until the connection ends */
    long sent[WRITERS_MAX];  /* items that were sent */
    long acked[WRITERS_MAX]; /* that were answered */
    void *threads[WRITERS_MAX];
};

/* Reserves "w" (growing from small, at a rate at which no false positive happens) unless it is there, starts them. */
void writers_start(struct writers *writers, int port, unsigned count, unsigned pipeline);
void writers_join(struct writers *writers);

/* All items that were answered are present, and BF.CARD is the number of those that are. */
void writers_check(const struct writers *writers, int port);

/* `bloomery check` of the data directory: its exit status; what it printed is in *output_out until the next call. */
int check_tool(const struct daemon *daemon, const char **output_out);

/* Runs the command until the reply begins with `prefix`; fails after a long time. */
void wait_for_reply(int port, const char *prefix, const char *command);

#endif
