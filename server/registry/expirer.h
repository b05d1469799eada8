/* expirer: the thread that removes expired filters, so that their memory is freed soon; for clients they are gone
 * already. It sleeps until the next filter is due. When many are due it removes a few at a time and pauses in between,
 * so that other threads get the registry's mutex. */
#ifndef BLOOMERY_EXPIRER_H
#define BLOOMERY_EXPIRER_H

struct expirer;
struct registry;

/* Starts the thread. After each step it calls `pace` (may be NULL) without locks; `pace` may sleep, so that the
 * consumers of its events keep up. 0, -ENOMEM or another -errno. */
int expirer_create(struct expirer **expirer_out, struct registry *registry, void (*pace)(void *ctx), void *ctx);

/* Ends it. NULL is fine. */
void expirer_destroy(struct expirer *expirer);

#endif
