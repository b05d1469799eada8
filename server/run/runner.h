/* runner: the parts of a loop that run commands, above those of its connections. Each belongs to the unit of its name.
 *
 * Thread: the loop's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "admission.h"
#include "exclusive.h"
#include "fetch.h"
#include "io.h"
#include "job.h"
#include "keyed.h"
#include "log_waits.h"
#include "monitor.h"
#include "push.h"
#include "pipeline.h"

struct runner {
    struct io io; /* comes first: its connections point to it */
    struct push push;
    struct section section;
    struct monitor monitor;
    struct log_waits log;
    struct keyed keyed;
    struct fetches fetches;
    struct pipeline pipeline;
    struct admission admission;
    struct jobs jobs;
    struct sleepers sleepers;
    size_t slice_items; /* of the next slice of a command with many items: command_slice_items() */
};

static inline struct runner *runner_of(struct io *io)
{
    return (struct runner *)(void *)io;
}

/* Sets up the parts above io, which is there. 0 or -ENOMEM; runner_deinit() in any case. */
int runner_init(struct runner *runner);
void runner_deinit(struct runner *runner);

/* client_calls: the beginning and the end of a client, as its connection asks for them (io.h). */

struct conn;

/* The functions of struct io_calls. */
const char *client_open(struct conn *conn);
size_t client_memory(const struct conn *conn);
bool client_unsubscribe(struct conn *conn);
void client_close(struct conn *conn);
