/* readiness: whether the daemon would serve reads and writes now.
 *
 * Thread: an online RCU reader. */
#ifndef BLOOMERY_READINESS_H
#define BLOOMERY_READINESS_H

#include <stdbool.h>

struct server;

/* False with a reason of one short sentence, which has no name of a file or filter in it: it is told to anybody. */
struct readiness {
    bool ready;
    char reason[96];
};

void readiness_of(struct server *server, struct readiness *readiness_out);

#endif
