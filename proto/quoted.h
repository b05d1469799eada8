/* quoted: text in quotes, as redis-cli and redis.conf have it: "..." with \n \r \t \b \a \xHH and a backslash before
 * anything else for itself; '...' with \' alone. Thread: any. */
#ifndef BLOOMERY_QUOTED_H
#define BLOOMERY_QUOTED_H

#include <stdbool.h>

/* Unescapes the text that begins at *read, its opening quote, and ends before `end` (excluded) to *write. Moves *read
 * behind the closing quote and *write behind what has been written, which never is longer than what was read: the two
 * may be the same memory. False if the closing quote is missing: neither moves. */
bool quoted_take(const char **read, const char *end, char **write);

#endif
