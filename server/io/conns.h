/* conns: all connections of a loop: the parts that they share, the end of an iteration, the checks ten times a second,
 * and the end.
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_CONNS_H
#define BLOOMERY_CONNS_H

#include "io.h"

/* Sets up *io, which is zero-initialised, except for the parts that need a loop. 0 or -ENOMEM; conns_deinit() in any
 * case. */
int conns_init(struct io *io, struct server *server, unsigned index, const struct io_calls *calls);
void conns_deinit(struct io *io);

/* The handles, once there is a loop. */
void conns_open(struct io *io);
void conns_close(struct io *io);

/* Copies the settings, once per iteration. */
void conns_refresh(struct io *io, const struct config *config);

/* Sends the replies of the iteration, as far as they may leave and the kernel accepts them. */
void conns_send(struct io *io);

/* Ten times a second: closes clients that are idle for longer than the setting `timeout`, exceed the time of a
 * handshake, have disconnected, or exceed a soft limit of replies for too long. Resumes reading from clients that are
 * blocked by their own replies. */
void conns_tick(struct io *io);

/* Closes all: io->stopping is set. Their subscriptions have ended, too. */
void conns_close_all(struct io *io);

#endif
