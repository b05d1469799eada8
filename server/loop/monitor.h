/* monitor: what clients in MONITOR are sent: a line for each command that is run, in Redis's form.
 *
 * A worker collects the lines of an iteration and publishes them as one message before the replies of these commands
 * leave: whoever has seen a reply finds its command in front of all later ones. While nobody monitors, commands pay one
 * comparison. Thread: the worker's. */
#ifndef BLOOMERY_MONITOR_H
#define BLOOMERY_MONITOR_H

#include "resp_parse.h"
#include "session.h"

struct command;
struct worker;

/* Looks whether anybody monitors, for what is read next. One load. */
void monitor_look(struct worker *worker);

/* Adds the line of a command that has been run, or taken into the window (command NULL). Only while
 * worker->monitored. */
void monitor_feed(struct worker *worker, const struct session *session, const struct command *command,
                  const struct resp_command *cmd);

/* Publishes the lines collected. */
void monitor_flush(struct worker *worker);

/* Appends the line, without the line end: seconds.microseconds [0 address] "argument" ... Arguments that are secret by the
 * command's row (command_arg_is_secret(); NULL: none is) are replaced; a line is cut to about MONITOR_MAX_LINE bytes and says
 * by how much. */
#define MONITOR_MAX_LINE ((size_t)1024 * 1024)
void monitor_format(struct buf *out, int64_t unix_us, const char *addr, const struct command *command,
                    const struct resp_command *cmd);

#endif
