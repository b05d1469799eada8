/* expirer: the thread that removes filters when they expire, so that their memory is given back soon. For clients they
 * are gone anyway. It sleeps until the next one is due; when many are it takes few at a time and pauses in between, so
 * that others get at the registry. */
#ifndef BLOOMERY_EXPIRER_H
#define BLOOMERY_EXPIRER_H

struct expirer;
struct registry;

/* Starts the thread. It calls `pace` (may be NULL) after each step, outside of everything: which may wait, so that it
 * goes no faster than others can follow. 0, -ENOMEM or another -errno. */
int expirer_create(struct expirer **expirer_out, struct registry *registry, void (*pace)(void *ctx), void *ctx);

/* Ends it. NULL is fine. */
void expirer_destroy(struct expirer *expirer);

#endif
