/* expirer: the thread that removes filters when they expire, so that their memory is given back soon. For clients they are
 * gone anyway. It sleeps until the next one is due; when many are it takes few at a time and pauses in between, so that
 * others get at the registry. */
#ifndef BLOOMERY_EXPIRER_H
#define BLOOMERY_EXPIRER_H

struct expirer;
struct notify;
struct registry;

/* Starts the thread, which goes no faster than the events of expired filters are published. 0, -ENOMEM or another -errno. */
int expirer_create(struct expirer **expirer_out, struct registry *registry, const struct notify *notify);

/* Ends it. NULL is fine. */
void expirer_destroy(struct expirer *expirer);

#endif
