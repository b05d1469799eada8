/* effects: what happens to filters as a whole (created, loaded, deleted, expired, renamed, given a time), passed on to
 * everything in the server that has to know of it. The one listener of the registry: whoever needs effects gets a line
 * here, and no command has to think of it.
 *
 * Thread: effects_attach() before the workers start, after loading; what is called for an effect runs under the
 * registry's mutex (registry_effect.h). */
#ifndef BLOOMERY_EFFECTS_H
#define BLOOMERY_EFFECTS_H

struct server;

void effects_attach(struct server *server);

/* Waits a while if those that are told have fallen behind: for threads that cause effects in masses. `server` is the
 * struct server. */
void effects_pace(void *server);

#endif
