/* listen: the listening sockets: TCP addresses of `bind`, and a Unix socket; accepted connections go to the workers.
 *
 * Thread: the main loop's. */
#ifndef BLOOMERY_LISTEN_H
#define BLOOMERY_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"
#include "errbuf.h"

struct main_loop;

/* Opens the listeners of these settings that are not open yet; connections wait there until listen_settle(). 0, or -1
 * with the reason, which names the address, and nothing new is open. */
int listen_open(struct main_loop *ml, const struct config *config, struct errbuf *err);

/* The settings in force have been listened for: accepts at their addresses, closes the others, after it has taken the
 * connections that wait there, and publishes the ports. Never fails. */
void listen_settle(struct main_loop *ml);

/* Accepts, or lets connections wait. */
void listen_accept(struct main_loop *ml, bool yes);

/* "127.0.0.1:6379, [::1]:6380 (TLS), /run/bloomery.sock" */
void listen_names(const struct main_loop *ml, char *text_out, size_t size);

/* Closes all, and removes the Unix socket. The loop then runs the callbacks of closing. */
void listen_close(struct main_loop *ml);

#endif
