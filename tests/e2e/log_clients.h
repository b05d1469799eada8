/* log_clients: clients that write and remember the replies, and checks for tests of the log. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon.h"
#include "disk_control.h"

#define WRITERS_MAX 64

/* Writers add to the filter "w". Each has its own items, "<writer>:<n>", n = 0, 1, 2, ... in pipelines. */
struct writers {
    int port;
    unsigned count;
    unsigned pipeline;
    long limit;              /* items of each writer; 0: until the connection ends */
    long sent[WRITERS_MAX];  /* sent items */
    long acked[WRITERS_MAX]; /* acknowledged items */
    void *threads[WRITERS_MAX];
};

/* Reserves "w" if it is missing (small, scaling, at a rate without false positives), and starts the writers. */
void writers_start(struct writers *writers, int port, unsigned count, unsigned pipeline);
void writers_join(struct writers *writers);

/* Asserts that all acknowledged items are present, and that BF.CARD is the number of present ones. */
void writers_check(const struct writers *writers, int port);

/* Runs `bloomery check` on the data directory; returns its exit status. *output_out is valid until the next call. */
int check_tool(const struct daemon *daemon, const char **output_out);

/* Repeats the command until the reply begins with `prefix`; fails after a long time. */
void wait_for_reply(int port, const char *prefix, const char *command);
