/* forget: the dead parts of windows (bloom_window.h) are emptied off the event loops, by the reclaimer.
 *
 * Thread: any, in an RCU read section. */
#ifndef BLOOMERY_FORGET_H
#define BLOOMERY_FORGET_H

#include "bloom_filter.h"
#include "server.h"
#include "slice.h"

/* After a use of the window `filter`, which had this name: has its dead parts emptied, if there are large ones that no
 * thread empties yet. Small ones are emptied by the add that needs their place. */
void forget_tidy(struct server *server, struct slice name, struct bloom_filter *filter);

#endif
