/* monitor: the lines of MONITOR: one for each command that runs, in Redis's form.
 *
 * A loop collects the lines of an iteration and publishes them as one message before it sends the replies. So an
 * answered command precedes all later commands. Without a monitor a command pays one comparison. Thread: the loop's. */
#pragma once

#include <stdbool.h>

#include "buf.h"
#include "resp_parse.h"
#include "session.h"

struct command;
struct pubsub;

/* A loop's part. */
struct monitor {
    struct pubsub *hub;
    struct buf lines; /* of this iteration */
    bool watched;     /* there are monitors, as of the latest input */
};

void monitor_init(struct monitor *monitor, struct pubsub *hub);

/* Checks for monitors, for the next input. One load. */
void monitor_look(struct monitor *monitor);

/* Adds the line of a command that was run, or taken into the pipeline (command NULL). Only while monitor->watched. */
void monitor_feed(struct monitor *monitor, const struct session *session, const struct command *command,
                  const struct resp_command *cmd);

/* Publishes the lines collected. */
void monitor_flush(struct monitor *monitor);
