/* accept: the header Accept of a request. Thread: any. */
#ifndef BLOOMERY_ACCEPT_H
#define BLOOMERY_ACCEPT_H

#include <stdbool.h>

/* Whether the header names `type` with a weight above 0, and at least that of `other`. Wildcards do not count for
 * `type`: a browser's are not meant for it. */
bool accept_prefers(const char *accept, const char *type, const char *other);

#endif
