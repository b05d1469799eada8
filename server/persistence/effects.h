/* effects: passes changes of whole filters (created, loaded, deleted, expired, renamed, given an expiry) on to the
 * parts of the server that need them. It is the registry's one listener; a new consumer gets a line here, and no
 * command must care.
 *
 * Thread: effects_attach(): after loading, before the workers start. The consumers run under the registry's mutex
 * (registry_effect.h). */
#ifndef BLOOMERY_EFFECTS_H
#define BLOOMERY_EFFECTS_H

struct server;

void effects_attach(struct server *server);

/* Waits a while if consumers have fallen behind: for threads that change masses of filters. `server` is the struct
 * server. */
void effects_pace(void *server);

#endif
